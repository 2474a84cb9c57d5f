package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

var allMTUs = []rocev2.MTU{rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024, rocev2.MTU2048, rocev2.MTU4096}

// boundless lets a queue pair send without an acknowledgement.
var boundless = qp.WindowConfig{InitialBytes: 1 << 30, MaxBytes: 1 << 30, MaxPSNs: 1 << 22}

// bulkSenders returns a host with so many queue pairs that have very much to
// send to the other: WRITEs, or the answers to sixteen READs each. It does not
// send by itself, and nothing arrives by itself.
func bulkSenders(t *testing.T, mtu rocev2.MTU, n int, reads bool) (a, b *host, peers []rocev2.QPN) {
	t.Helper()
	w := newWorld(t, 1)
	w.delay = time.Microsecond
	a, b = w.newPair(Config{Window: boundless, ReadChunk: -1})
	a.mtu, b.mtu = mtu, mtu
	a.held = true
	for range n {
		qa, qb := connectPair(a, b, false)
		peers = append(peers, qb.QPN())
		for range 16 {
			if reads {
				b.post(qb, ib.OpRead, a, 1<<20)
			} else {
				a.write(qa, b, 1<<20)
			}
		}
	}
	w.sleep(w.delay) // the READs arrive
	return a, b, peers
}

// Queue pairs that send bulk have the same share of the link, whatever the path
// MTU, and in runs of packets that fill a segmentation buffer (RFC 8290,
// section 4.2).
func TestBulkIsFairAtEveryMTU(t *testing.T) {
	t.Parallel()
	for _, mtu := range allMTUs {
		for _, reads := range []bool{false, true} {
			const senders, rounds = 3, 60
			a, _, peers := bulkSenders(t, mtu, senders, reads)
			total := map[rocev2.QPN]int{}
			for i := range rounds {
				for qpn, n := range a.nextTurns() {
					total[qpn] += n
				}
				if len(total) < min(i+1, senders) {
					t.Fatalf("MTU %v: after %d batches only %d queue pairs have had a turn", mtu, i+1, len(total))
				}
			}
			least, most := total[peers[0]], total[peers[0]]
			for _, qpn := range peers {
				least, most = min(least, total[qpn]), max(most, total[qpn])
			}
			if most-least > most/20 {
				t.Errorf("MTU %v, reads %v: one has sent %d bytes and another %d", mtu, reads, most, least)
			}
		}
	}
}

// An acknowledgement goes with the next batch, however many queue pairs send
// bulk, and queue pairs that have just a little to send do not shut the others
// out (RFC 8290, section 4.2).
func TestAcknowledgementsPassBulk(t *testing.T) {
	t.Parallel()
	for _, mtu := range allMTUs {
		for _, reads := range []bool{false, true} {
			a, b, peers := bulkSenders(t, mtu, 8, reads)
			_, qb := connectPair(a, b, false)
			for range peers {
				a.nextTurns() // they all have had their first turn
			}
			total := map[rocev2.QPN]int{}
			for range 12 {
				b.write(qb, a, 8)
				a.w.sleep(a.w.delay)
				got := a.nextTurns()
				if got[qb.QPN()] == 0 {
					t.Fatalf("MTU %v: the acknowledgement is not in the next batch", mtu)
				}
				for qpn, n := range got {
					total[qpn] += n
				}
			}
			for _, qpn := range peers {
				if total[qpn] == 0 {
					t.Errorf("MTU %v: a queue pair that sends bulk had no turn", mtu)
				}
			}
		}
	}
}

// Queue pairs send in turns of as many bytes as is said, at least a packet.
func TestTurns(t *testing.T) {
	t.Parallel()
	const mtu = 1024
	for turn, packets := range map[int]int{1: 1, 8 << 10: 7, 1 << 20: 63} {
		a, b := newWorld(t, 1).newPair(Config{Window: boundless, Turn: turn})
		a.mtu, b.mtu, a.held = rocev2.MTU1024, rocev2.MTU1024, true
		for range 2 {
			q, _ := connectPair(a, b, false)
			a.write(q, b, 1<<20)
		}
		for range 3 {
			a.nextTurns() // both have begun
		}
		a.nextTurns()
		run := 1
		for i := 1; i < a.w.tx.Len(); i++ {
			before, _ := a.w.tx.Packet(i - 1)
			data, _ := a.w.tx.Packet(i)
			switch {
			case string(before[5:8]) == string(data[5:8]): // the destination QPN
				if run++; run > packets {
					t.Errorf("turns of %d bytes: %d packets of %d bytes in one", turn, run, mtu)
				}
			case run < packets-1 && run < i:
				t.Errorf("turns of %d bytes: %d packets of %d bytes in one", turn, run, mtu)
				fallthrough
			default:
				run = 1
			}
		}
	}
}
