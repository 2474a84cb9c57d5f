//go:build !portable

package shm

import (
	"encoding/json"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
	"golang.org/x/sys/unix"
)

// leased is a link that has a part of a port.
type leased struct {
	*udp.Link
	transport.Leased
	part transport.Lease
}

func (l leased) Lease() (transport.Lease, bool) { return l.part, true }

// owned are the slots of a port, for devices that lease them.
type owned struct {
	*udp.Slots
	t   testing.TB
	dir string
}

func own(t testing.TB, dir string, n int) *owned {
	t.Helper()
	s, err := udp.OpenSlots(loopback(), udp.Config{}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &owned{s, t, dir}
}

// lease opens the links of a device on n slots.
func (o *owned) lease(first, n int, r *reasons) []*Link {
	o.t.Helper()
	var links []transport.Link
	for i := range n {
		u, err := o.Link(first + i)
		if err != nil {
			o.t.Fatal(err)
		}
		links = append(links, leased{Link: u, part: transport.Lease{Slot: first, Slots: o.Len()}})
	}
	d, err := newDevice(links, []string{o.dir}, func(d *device) {
		if r != nil {
			d.trace = r.note
		}
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		for _, l := range d.links {
			l.Close()
		}
	})
	return d.links
}

// shareWith is share for a queue pair of the peer's slot.
func (s *stream) shareWith(to *Link, qpn rocev2.QPN) {
	s.t.Helper()
	for was := to.Stats().RxShm; to.Stats().RxShm == was; {
		s.send(1, 64, qpn)
		receive(s.t, to, s.next-1, 1)
		runtime.Gosched()
	}
}

// Several devices share an address. Each pair of them, and each with a device
// of another address, exchanges packets through memory, and every packet comes
// to the queue pair's own process.
func TestLeases(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 8)
	a, b := o.lease(2, 1, nil)[0], o.lease(4, 2, nil)
	alone := open(t, dir, loopback(), 1, nil)[0]
	here := o.Local().Addr()
	ab, ba := newStream(t, a, here), newStream(t, b[1], here)
	ab.shareWith(b[0], 0x104)
	ab.shareWith(b[1], 0x10d)
	ba.shareWith(a, 0x102)
	out, in := newStream(t, a, alone.Addr()), newStream(t, alone, here)
	out.shareWith(alone, 5)
	in.shareWith(a, 0x102)
	in.shareWith(b[0], 0x104)
	in.shareWith(b[1], 0x105)
	for _, c := range []struct {
		l    *Link
		want []netip.Addr
	}{{a, []netip.Addr{here, alone.Addr()}}, {alone, []netip.Addr{here}}} {
		got := c.l.SharedPeers()
		for _, addr := range c.want {
			if !slices.Contains(got, addr) {
				t.Errorf("%v: it shares memory with %v, not with %v", c.l.Addr(), got, addr)
			}
		}
	}
	// A run for several slots is taken apart.
	in.b.Reset()
	for i, qpn := range []rocev2.QPN{0x102, 0x104, 0x105} {
		in.b.Commit(copy(in.b.Room(), packet(qpn, in.next+i, 64)), in.path)
	}
	if err := alone.Send(in.b); err != nil {
		t.Fatal(err)
	}
	for i, l := range []*Link{a, b[0], b[1]} {
		was := l.Stats()
		receive(t, l, in.next+i, 1)
		if now := l.Stats(); now.RxShm != was.RxShm+1 {
			t.Errorf("packet %d came by UDP", i)
		}
	}
	// What is for connection managers goes by the owner.
	was := a.Stats().TxShm
	out.send(1, 64, managementQPN)
	receive(t, alone, out.next-1, 1)
	if a.Stats().TxShm != was {
		t.Error("a management datagram has passed the owner over")
	}
}

// A device asks for no memory with itself, and none with one that does not
// share memory keeps it from doing so with the others.
func TestLeaseThatDoesNotShare(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 8)
	a, b := o.lease(2, 1, nil)[0], o.lease(4, 1, nil)[0]
	plain, err := o.Link(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	ab := newStream(t, a, o.Local().Addr())
	for range 200 {
		ab.send(1, 8, 0x103)
		ab.send(1, 8, 0x102)
		receive(t, a, ab.next-1, 1)
	}
	ab.shareWith(b, 0x104)
	if st := a.Stats(); st.RxShm != 0 {
		t.Errorf("it shares memory with itself: %+v", st)
	}
	if st := plain.Stats(); st.RxShm != 0 {
		t.Errorf("%+v", st)
	}
}

// When the slot of a device is given to another one, no packet goes into the
// memory of the old one any more.
func TestSlotIsGivenAway(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 8)
	alone := open(t, dir, loopback(), 1, nil)[0]
	in := newStream(t, alone, o.Local().Addr())
	for range 20 {
		a := o.lease(2, 1, nil)[0]
		in.shareWith(a, 0x102)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := o.Idle(2); err != nil {
			t.Fatal(err)
		}
		// The owner lets the slot rest, for longer than this takes.
		for alone.dev.peerAt(o.Local().Addr()).connected() {
			runtime.Gosched()
		}
	}
	last := o.lease(2, 1, nil)[0]
	in.shareWith(last, 0x102)
}

// A process that has lost its lease, and does not know that it has, keeps the
// next one of its slot from nothing.
func TestOldHolderIsLive(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 8)
	alone := open(t, dir, loopback(), 1, nil)[0]
	old := o.lease(2, 1, nil)[0]
	in := newStream(t, alone, o.Local().Addr())
	in.shareWith(old, 0x102)
	alone.dev.mu.Lock()
	c := alone.dev.peers[o.Local().Addr()].routes[0].Load().conns[2]
	c.pid = -1 // of another process
	alone.dev.mu.Unlock()
	if err := o.Idle(2); err != nil {
		t.Fatal(err)
	}
	next := o.lease(2, 1, nil)[0]
	back := newStream(t, next, alone.Addr())
	for !c.dead.Load() {
		back.send(1, 8, 5)
		receive(t, alone, back.next-1, 1)
		runtime.Gosched()
	}
	sent := old.Stats().RxShm
	for range 100 {
		in.send(1, 8, 0x102)
	}
	if _, err := old.Recv(transport.NewRxBatch(64)); err != nil {
		t.Fatal(err)
	}
	if got := old.Stats().RxShm; got != sent {
		t.Errorf("%d packets came to the old one", got-sent)
	}
}

// A port that is owned again has other slots: connections from before end.
func TestOtherNumberOfSlots(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 8)
	alone := open(t, dir, loopback(), 1, nil)[0]
	a := o.lease(2, 1, nil)[0]
	newStream(t, alone, o.Local().Addr()).shareWith(a, 0x102)
	p := alone.dev.peerAt(o.Local().Addr())
	old := p.routes[0].Load().conns[2]
	for range cap(a.dev.accepting) { // until it has answered all
		a.dev.accepting <- struct{}{}
	}
	a.dev.part.Slots = 16 // as after another start of the owner
	for range cap(a.dev.accepting) {
		<-a.dev.accepting
	}
	conn, err := a.dev.dirs[0].dial(alone.dev.name(alone.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range *a.conns.Load() {
		c.hangUp()
	}
	for a.dev.peerAt(alone.Addr()).connected() {
		runtime.Gosched()
	}
	if err := a.dev.propose(a.dev.peerAt(alone.Addr()), a, 5, conn); err != nil {
		t.Fatal(err)
	}
	if r := p.routes[0].Load(); len(r.conns) != 16 || r.conns[2] == nil || r.conns[2] == old || !old.dead.Load() {
		t.Errorf("%+v", r)
	}
}

// When the links are closed below a device, as the end of the owner does it,
// peers do not find it any more, and use none of its memory.
func TestLostLease(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 8)
	alone := open(t, dir, loopback(), 1, nil)[0]
	a := o.lease(2, 1, nil)[0]
	in := newStream(t, alone, o.Local().Addr())
	in.shareWith(a, 0x102)
	if err := a.Link.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(); err == nil {
		t.Error("a closed link waits")
	}
	for alone.dev.peerAt(o.Local().Addr()).connected() {
		runtime.Gosched()
	}
	if got := names(t, dir); !slices.Equal(got, []string{alone.dev.listeners[0].names[0]}) {
		t.Errorf("there are %q", got)
	}
}

// A stranger of the same user that claims a slot which it cannot have is
// refused.
func TestHostileSlots(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	r := newReasons()
	o := own(t, dir, 8)
	a := o.lease(2, 2, r)[0]
	s := newStranger(t, dir, open(t, dir, loopback(), 1, nil)[0])
	s.to = a
	memory := memfd(t, memoryLen, memorySeals)
	bell, _ := bells(t)
	here := a.dev.local
	for _, c := range []struct {
		name   string
		change func(h *hello)
		why    string
	}{
		{"the device's own slot", func(h *hello) { h.From, h.Slot, h.Slots = here, 3, 8 }, "is no peer of"},
		{"other slots on one port", func(h *hello) { h.From, h.Slot, h.Slots = here, 4, 16 }, "is no peer of"},
		{"the whole of a shared port", func(h *hello) { h.From, h.Slot, h.Slots = here, 0, 1 }, "is no peer of"},
		{"a queue pair of another slot", func(h *hello) { h.ToQPN = 4 }, "is of another process"},
		{"three slots", func(h *hello) { h.Slots = 3 }, "slot 0 of 3"},
		{"too many slots", func(h *hello) { h.Slots = 512 }, "slot 0 of 512"},
	} {
		h := s.hello()
		h.ToQPN = 0x102
		c.change(h)
		data, _ := json.Marshal(h)
		conn, err := s.dir.dial(a.dev.names()[0])
		if err != nil {
			t.Fatal(err)
		}
		before := len(r.all())
		if _, _, err := conn.WriteMsgUnix(data, unix.UnixRights(memory, bell), nil); err != nil {
			t.Fatal(err)
		}
		r.awaitFrom(t, before, c.why)
		conn.Close()
	}
	if len(*a.conns.Load()) > 0 {
		t.Error("there is memory all the same")
	}
}

// A device has a name for each of the queue pair numbers modulo maxSlots that
// are its own, so that a peer that does not know the number of slots finds it.
func TestNamesOfSlots(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	o := own(t, dir, 64)
	a := o.lease(6, 2, nil)[0]
	var want []string
	for _, n := range []int{6, 7, 70, 71, 134, 135, 198, 199} {
		want = append(want, a.dev.nameFor(o.Local().Addr(), n))
	}
	slices.Sort(want)
	got := names(t, dir)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	a.Close()
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("%q is left", got)
	}
}
