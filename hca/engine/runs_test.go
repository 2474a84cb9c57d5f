package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// runsOf posts n requests of size bytes on a and returns how many packets and
// runs one batch has of what a host then sends: a its requests, or b the
// answers.
func runsOf(a, b *host, qa *QP, op ib.Opcode, size uint32, n int) (packets, runs int) {
	from := a
	if op == ib.OpRead {
		from = b
	}
	from.held = true
	for range n {
		a.post(qa, op, b, size)
	}
	a.w.sleep(a.w.delay + 1)
	out := transport.NewTxBatch(8 << 20)
	from.e.Fill(a.w.now, out, AllClasses)
	for i := 0; i < out.Len(); {
		r := out.Run(i, true)
		i = r.Last
		runs++
	}
	return out.Len(), runs
}

// WRITEs of a few packets between native peers fill runs, once the peer has
// accepted one to the same place: the packets of all sizes are of one length.
func TestWritesOfFewPacketsFillRuns(t *testing.T) {
	t.Parallel()
	for _, mtu := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
		for _, packets := range []int{1, 2, 3, 4, 8, 16, 32} {
			a, b := newWorld(t, 1).newPair(Config{Window: boundless})
			a.mtu, b.mtu = mtu, mtu
			qa, _ := connectPair(a, b, true)
			size := uint32(packets * mtu.Bytes())
			a.write(qa, b, size)
			a.waitOK(1)
			writes := min(16, 128/packets) // less than the window
			n, runs := runsOf(a, b, qa, ib.OpWrite, size, writes)
			full := transport.MaxRunBytes / (mtu.Bytes() + rocev2.BTHLen + rocev2.RETHLen + rocev2.ICRCLen)
			if want := (n + full - 1) / full; n != writes*packets || runs != want {
				t.Errorf("MTU %v: WRITEs of %d packets leave as %d packets in %d runs, want %d", mtu, packets, n, runs, want)
			}
		}
	}
}

// READs of a few packets between native peers are answered in packets of one
// length, once it is known that the way is short.
func TestReadsOfFewPacketsFillRuns(t *testing.T) {
	t.Parallel()
	for _, packets := range []int{1, 2, 3, 4, 7, 8} {
		a, b := newWorld(t, 1).newPair(Config{Window: boundless, ReadChunk: 64 << 10})
		a.mtu, b.mtu = rocev2.MTU4096, rocev2.MTU4096
		a.w.delay = time.Microsecond
		qa, _ := connectPair(a, b, true)
		size := uint32(packets * a.mtu.Bytes())
		a.write(qa, b, 1)
		a.waitOK(1)
		reads := 32 / (packets + packets%2) // MaxRdAtomic pairs
		n, runs := runsOf(a, b, qa, ib.OpRead, size, reads)
		full := transport.MaxRunBytes / (a.mtu.Bytes() + rocev2.BTHLen + rocev2.AETHLen + rocev2.ICRCLen)
		if want := (n + full - 1) / full; n != reads*packets || runs != want {
			t.Errorf("the answers to READs of %d packets leave as %d packets in %d runs, want %d", packets, n, runs, want)
		}
	}
}
