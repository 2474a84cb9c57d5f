package tap_test

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/tap"
)

// switched returns two links of a network, of which the first can be recorded.
func switched(t *testing.T) (*tap.Switch, transport.Link) {
	t.Helper()
	a, b := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	s := tap.NewSwitch(a)
	t.Cleanup(func() { s.Close(); b.Close() })
	return s, b
}

func capture(t *testing.T, r *tap.Ring) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := r.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes of %d: %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// A switch records while it is told to, in both directions, and the frames are
// as good as those of a whole capture.
func TestSwitchRecordsOnDemand(t *testing.T) {
	t.Parallel()
	a, b := switched(t)
	to, from := transport.Path{Dst: b.Addr()}, transport.Path{Dst: a.Addr()}
	send(t, a, to, 10)
	receive(t, b, 1)
	r := tap.NewRing(0, tap.Filter{})
	a.Record(r)
	send(t, a, to, 100, 200, 300)
	receive(t, b, 3)
	send(t, b, from, 400)
	receive(t, a, 1)
	a.Record(nil)
	send(t, a, to, 10)
	receive(t, b, 1)
	all := frames(t, capture(t, r))
	check(t, all)
	if s := r.Stats(); len(all) != 4 || s.Seen != 4 || s.Matched != 4 || s.Kept != 4 || s.Size != tap.MinRing {
		t.Errorf("%d frames, %+v", len(all), s)
	}
	if src := all[3].NetworkLayer().NetworkFlow().Src().String(); src != b.Addr().String() {
		t.Errorf("the last frame is from %s", src)
	}
}

// The oldest packets make room, and the ring never has more than its bytes.
func TestRingKeepsTheLatest(t *testing.T) {
	t.Parallel()
	a, b := switched(t)
	r := tap.NewRing(tap.MinRing, tap.Filter{})
	a.Record(r)
	const total = 500
	for i := range total {
		send(t, a, transport.Path{Dst: b.Addr()}, 1000+i%7)
		receive(t, b, 1)
	}
	all := frames(t, capture(t, r))
	check(t, all)
	s := r.Stats()
	if s.Seen != total || s.Kept != len(all) || s.Bytes > s.Size || s.Bytes < s.Size-1200 || len(all) < 55 || len(all) > 65 {
		t.Errorf("%d frames, %+v", len(all), s)
	}
}

// A capture that is written while packets come has whole packets only.
func TestRingIsReadWhileItIsWritten(t *testing.T) {
	t.Parallel()
	a, b := switched(t)
	r := tap.NewRing(tap.MinRing, tap.Filter{})
	a.Record(r)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				check(t, frames(t, capture(t, r)))
			}
		}
	})
	for range 100 {
		send(t, a, transport.Path{Dst: b.Addr()}, 1, 900, 1024)
		receive(t, b, 3)
	}
	close(done)
	wg.Wait()
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 4, "peer=192.0.2.2": 4, "peer=192.0.2.0/24": 4, "peer=192.0.2.3": 0, "qpn=7": 4, "qpn=0x8": 0, "op=send": 4, "op=READ": 0,
		"dir=in": 1, "dir=out": 3, "dir=in dir=out": 4, "data=no": 1, "dir=out data=no qpn=7 op=SEND": 1,
	} {
		f, err := tap.ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		a, b := switched(t)
		r := tap.NewRing(0, f)
		a.Record(r)
		send(t, a, transport.Path{Dst: b.Addr()}, 0, 8, 16)
		receive(t, b, 3)
		send(t, b, transport.Path{Dst: a.Addr()}, 8)
		receive(t, a, 1)
		if s := r.Stats(); int(s.Matched) != want || s.Kept != want || s.Seen != 4 {
			t.Errorf("%q: %+v, want %d", text, s, want)
		}
	}
	for text, want := range map[string]string{
		"peer=x": "192.0.2.0/24", "qpn=0": "0xffffff", "qpn=x": "0xffffff", "op=JUMP": "RDMA_READ_REQUEST", "host=x": "no condition", "dir=up": "dir=in",
	} {
		if _, err := tap.ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// While nothing is recorded nothing allocates, and neither while it is.
func TestSwitchDoesNotAllocate(t *testing.T) {
	a, b := switched(t)
	path := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr()})
	batch := transport.NewTxBatch(1 << 12)
	r := tap.NewRing(0, tap.Filter{})
	rx := transport.NewRxBatch(8)
	bytes := packet(1, 100)
	for _, ring := range []*tap.Ring{nil, r} {
		a.Record(ring)
		if n := testing.AllocsPerRun(100, func() {
			batch.Reset()
			batch.Commit(copy(batch.Room(), bytes), path)
			if err := a.Send(batch); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Recv(rx); err != nil {
				t.Fatal(err)
			}
		}); n > 1 { // the network itself keeps a copy
			t.Errorf("%v allocations a packet, recording: %v", n, ring != nil)
		}
	}
	if _, err := r.WriteTo(failing{}); err == nil {
		t.Error("a writer that fails is not told of")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// What is sealed shows its queue pair, and no operation: its first byte is none
// of an acknowledgement.
func TestFilterSealed(t *testing.T) {
	t.Parallel()
	key, err := psp.NewKey(psp.GCM128, make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	sealed := key.Seal(nil, &psp.Header{Next: psp.UDP, SPI: 3<<24 | 7, IV: 1}, make([]byte, 8), packet(1, 4))
	for text, want := range map[string]uint64{
		"": 1, "qpn=7": 1, "qpn=8": 0, "op=ACK": 0, "op=SEND": 0, "op=sealed": 1, "qpn=7 op=SEALED dir=out": 1, "qpn=8 op=SEALED": 0, "data=no": 0,
	} {
		f, err := tap.ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		a, b := switched(t)
		r := tap.NewRing(0, f)
		a.Record(r)
		batch := transport.NewSealedBatch(1 << 12)
		batch.Commit(copy(batch.Room(), sealed), transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr()}))
		if err := a.Send(batch); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Matched != want || s.Seen != 1 {
			t.Errorf("%q: %+v, want %d", text, s, want)
		}
	}
}
