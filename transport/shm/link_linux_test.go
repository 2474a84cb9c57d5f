//go:build !portable

package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// loopback returns an address of 127.0.0.0/8 that no other test uses.
func loopback() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
}

// privateDir returns a directory that can be used.
func privateDir(t testing.TB) string {
	t.Helper()
	d := filepath.Join(t.TempDir(), "rocev2")
	if err := os.Mkdir(d, 0o700); err != nil {
		t.Fatal(err)
	}
	return d
}

// reasons are why something did not work.
type reasons struct {
	mu   sync.Mutex
	list []error
	more chan struct{}
}

func newReasons() *reasons { return &reasons{more: make(chan struct{}, 1000)} }

func (r *reasons) note(err error) {
	r.mu.Lock()
	r.list = append(r.list, err)
	r.mu.Unlock()
	r.more <- struct{}{}
}

func (r *reasons) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// await waits until something was refused for a reason that has the text.
func (r *reasons) await(t *testing.T, text string) {
	t.Helper()
	r.awaitFrom(t, 0, text)
}

// awaitFrom is await, without the first reasons.
func (r *reasons) awaitFrom(t *testing.T, first int, text string) {
	t.Helper()
	for {
		r.mu.Lock()
		found := slices.ContainsFunc(r.list[first:], func(err error) bool { return strings.Contains(err.Error(), text) })
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-r.more:
		case <-t.Context().Done():
			t.Fatal("it ended")
		}
	}
}

// open opens the links of a device with shared memory.
func open(t testing.TB, dir string, addr netip.Addr, n int, r *reasons) []*Link {
	t.Helper()
	return openChanged(t, dir, addr, n, func(d *device) {
		if r != nil {
			d.trace = r.note
		}
	})
}

func openChanged(t testing.TB, dir string, addr netip.Addr, n int, change func(*device)) []*Link {
	t.Helper()
	group, err := udp.OpenGroup(addr, udp.Config{}, n)
	if err != nil {
		t.Fatal(err)
	}
	links := make([]transport.Link, len(group))
	for i, l := range group {
		links[i] = l
	}
	d, err := newDevice(links, []string{dir}, change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, l := range d.links {
			l.Close()
		}
	})
	return d.links
}

// packet returns BTH to pad of a packet with a payload of n bytes.
func packet(qpn rocev2.QPN, psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: qpn, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

// sender sends numbered packets to a peer.
type stream struct {
	t    testing.TB
	from *Link
	path *transport.Path
	b    *transport.TxBatch
	next int
}

func newStream(t testing.TB, from *Link, to netip.Addr) *stream {
	return &stream{t: t, from: from, path: transport.NewPath(from.Addr(), transport.Path{Dst: to, TrafficClass: 8}), b: transport.NewTxBatch(200 << 10)}
}

// send sends n packets, each to qpn.
func (s *stream) send(n, size int, qpn rocev2.QPN) {
	s.t.Helper()
	if err := s.trySend(n, size, qpn); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) trySend(n, size int, qpn rocev2.QPN) error {
	s.b.Reset()
	for range n {
		s.b.Commit(copy(s.b.Room(), packet(qpn, s.next, size)), s.path)
		s.next++
	}
	return s.from.Send(s.b)
}

// receive waits for n packets of a stream that begins at first, which come in
// order.
func receive(t testing.TB, l *Link, first, n int) {
	t.Helper()
	b := transport.NewRxBatch(64)
	for got := 0; got < n; {
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := l.Recv(b); err != nil {
				t.Fatal(err)
			}
			if b.Len() == 0 {
				break
			}
			for _, p := range b.Packets() {
				var k rocev2.Packet
				if err := k.Parse(p.Data); err != nil || p.ICRC == transport.ICRCBad || p.TrafficClass != 8 {
					t.Fatal(err, p)
				}
				if int(k.BTH.PSN) != first+got || len(k.Payload) > 0 && k.Payload[len(k.Payload)-1] != byte(k.BTH.PSN) {
					t.Fatalf("PSN %d where %d was to come", k.BTH.PSN, first+got)
				}
				got++
			}
		}
	}
}

// share sends packets until they go through memory. It returns how many went
// before.
func (s *stream) share(to *Link) {
	s.t.Helper()
	for was := to.Stats().RxShm; to.Stats().RxShm == was; {
		s.send(1, 64, 5)
		receive(s.t, to, s.next-1, 1)
		runtime.Gosched()
	}
}

// Packets go through memory as soon as both sides have agreed, in order, in
// both directions, and wake a receiver that sleeps.
func TestLinks(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, nil)[0]
	ab, ba := newStream(t, a, b.Addr()), newStream(t, b, a.Addr())
	ab.share(b)
	ba.share(a)
	for i := range 300 {
		n, size := 1+i%30, (i*40)%4096
		ab.send(n, size, 5)
		receive(t, b, ab.next-n, n)
		ba.send(n, size, 5)
		receive(t, a, ba.next-n, n)
	}
	// The receiver sleeps: it is woken for each.
	first := ab.next
	var wg sync.WaitGroup
	wg.Go(func() {
		receive(t, b, first, 2000)
	})
	for range 2000 {
		ab.send(1, 8, 5)
	}
	wg.Wait()
	st := a.Stats()
	if st.TxShm == 0 || st.TxShm > st.TxPackets || st.TxPackets != uint64(ab.next) || b.Stats().RxShm != st.TxShm || b.Stats().RxPackets != uint64(ab.next) {
		t.Errorf("%+v\n%+v", st, b.Stats())
	}
}

// A peer that does not take packets any more holds up no sender: what its
// memory has no room for is lost. When it is back, it gets all others in order.
func TestStalledPeer(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, nil)[0]
	other := open(t, dir, loopback(), 1, nil)[0]
	ab, ao := newStream(t, a, b.Addr()), newStream(t, a, other.Addr())
	ab.share(b)
	ao.share(other)
	first, before := ab.next, a.Stats().TxPackets
	var err error
	for err == nil {
		err = ab.trySend(15, 4096, 5)
	}
	var failed *transport.SendError
	if !errors.As(err, &failed) || failed.Failed != 15 {
		t.Fatal(err)
	}
	kept := int(a.Stats().TxPackets - before)
	if kept < dataLen/4200 || ab.next-first-kept != failed.Failed || a.Stats().TxErrors != uint64(failed.Failed) {
		t.Errorf("%d of %d packets went out; %v", kept, ab.next-first, err)
	}
	ao.send(16, 4096, 5)
	receive(t, other, ao.next-16, 16)
	receive(t, b, first, kept)
	for range 100 {
		ab.send(3, 100, 5)
		receive(t, b, ab.next-3, 3)
	}
	if st := a.Stats(); st.TxShm != b.Stats().RxShm+other.Stats().RxShm {
		t.Errorf("%+v", st)
	}
}

// A device with several links shares memory between each of them and each of
// the peer's: a packet comes where its queue pair is.
func TestShards(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	as, bs := open(t, dir, loopback(), 2, nil), open(t, dir, loopback(), 4, nil)
	for i, a := range as {
		ab := newStream(t, a, bs[0].Addr())
		for shared := 0; shared < len(bs); {
			shared = 0
			for j, b := range bs {
				was := b.Stats().RxShm
				ab.send(1, 64, rocev2.QPN(0x100+j))
				receive(t, b, ab.next-1, 1)
				if b.Stats().RxShm > was {
					shared++
				}
			}
		}
		if i == 0 {
			continue
		}
		// A run to several queue pairs is taken apart.
		ab.b.Reset()
		for j := range bs {
			ab.b.Commit(copy(ab.b.Room(), packet(rocev2.QPN(0x100+j), ab.next+j, 64)), ab.path)
		}
		if err := a.Send(ab.b); err != nil {
			t.Fatal(err)
		}
		for j, b := range bs {
			receive(t, b, ab.next+j, 1)
		}
	}
}

// A packet that was damaged comes as one with a wrong ICRC.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, nil)[0]
	ab := newStream(t, a, b.Addr())
	ab.share(b)
	ab.b.Reset()
	for i := range 3 {
		ab.b.Commit(copy(ab.b.Room(), packet(5, i, 64)), ab.path)
	}
	ab.b.Damage(1, 0x10)
	if err := a.Send(ab.b); err != nil {
		t.Fatal(err)
	}
	rx := transport.NewRxBatch(4)
	var got []transport.ICRCState
	for len(got) < 3 {
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Recv(rx); err != nil {
			t.Fatal(err)
		}
		for _, p := range rx.Packets() {
			got = append(got, p.ICRC)
			if p.ICRC == transport.ICRCBad {
				flow := ab.path.Flow(netip.AddrPortFrom(a.Addr(), rocev2.UDPPort))
				if want := flow.ICRC(0, p.Data[:len(p.Data)-4]) ^ 0x10; binary.LittleEndian.Uint32(p.Data[len(p.Data)-4:]) != want {
					t.Error("its ICRC is not the damaged one")
				}
			}
		}
	}
	if want := []transport.ICRCState{transport.ICRCAbsent, transport.ICRCBad, transport.ICRCAbsent}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if s := b.Stats(); s.RxBadICRC != 1 {
		t.Errorf("%+v", s)
	}
}

// A peer that writes nonsense is not listened to any more, on either side. The
// packets go by UDP, and later another memory is agreed upon.
func TestBrokenPeer(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	r := newReasons()
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, r)[0]
	ab := newStream(t, a, b.Addr())
	ab.share(b)
	c := (*a.conns.Load())[0]
	c.mu.Lock()
	put(c.prod.ring.desc(c.prod.next), wordLength, 1<<30)
	put(c.prod.ring.desc(c.prod.next), wordSegment, 64)
	c.prod.ring.state(c.prod.next).Store(lap(c.prod.next))
	c.prod.next++
	c.mu.Unlock()
	rx := transport.NewRxBatch(4)
	if _, err := b.Recv(rx); err != nil {
		t.Fatal(err)
	}
	r.await(t, "does not lie in the ring")
	for len(*a.conns.Load()) > 0 && (*a.conns.Load())[0] == c {
		if _, err := a.Recv(rx); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	was := a.Stats().TxShm
	for a.Stats().TxShm == was {
		ab.send(1, 64, 5)
		receive(t, b, ab.next-1, 1)
	}
	c = (*a.conns.Load())[0]
	c.prod.ring.head().Store(1 << 30)
	ab.send(1, 64, 5)
	for range 2 * dataLen / 4096 {
		_ = ab.trySend(1, 4096, 5) // until it looks at what was given back
	}
	if !c.dead.Load() {
		t.Error("a peer that has given back what it never got is believed")
	}
}

// A connection that has ended is not looked at any more: its memory may be that
// of another one.
func TestEndedIsForgotten(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, nil)[0]
	newStream(t, a, b.Addr()).share(b)
	c := (*b.conns.Load())[0]
	c.hangUp()
	if slices.Contains(b.release(), c) {
		t.Error("it is one of those that Recv goes on with")
	}
}
