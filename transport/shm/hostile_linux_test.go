//go:build !portable

package shm

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// stranger is a process of this user that has a UDP port and talks to a device
// as it likes.
type stranger struct {
	t    *testing.T
	to   *Link
	dir  *directory
	addr netip.Addr
}

func newStranger(t *testing.T, dir string, to *Link) *stranger {
	t.Helper()
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	addr := loopback()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, to.dev.local.Port())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &stranger{t, to, d, addr}
}

func (s *stranger) connect() *net.UnixConn {
	s.t.Helper()
	c, err := s.dir.dial(s.to.dev.name(s.to.dev.local.Addr()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// hello returns what an honest peer says.
func (s *stranger) hello() *hello {
	d := s.to.dev
	return &hello{Version: version, Order: byteOrder, Namespace: d.namespace, Scope: d.scope,
		From: netip.AddrPortFrom(s.addr, d.local.Port()), Slots: 1, To: d.local, Memory: memoryLen}
}

// memfd returns memory of n bytes with seals.
func memfd(t *testing.T, n int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, n)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func bells(t *testing.T) (int, int) {
	t.Helper()
	a, b, err := newBells()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll([]int{a, b}) })
	return a, b
}

// An agreement with a stranger that brings what it should not comes to nothing:
// no descriptor stays open, no memory stays mapped. The next one, which is
// right, is agreed upon.
func TestHostileAgreement(t *testing.T) {
	dir := privateDir(t)
	r := newReasons()
	to := open(t, dir, loopback(), 1, r)[0]
	s := newStranger(t, dir, to)
	good := memfd(t, memoryLen, memorySeals)
	bell, _ := bells(t)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(event)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	other := func(change func(*hello)) []byte {
		h := s.hello()
		change(h)
		data, _ := json.Marshal(h)
		return data
	}
	honest := other(func(*hello) {})
	for _, c := range []struct {
		name  string
		hello []byte
		fds   []int
		why   string
	}{
		{"no descriptors", honest, nil, "descriptors"},
		{"one descriptor", honest, []int{good}, "descriptors"},
		{"too many", honest, []int{good, bell, bell, bell}, "descriptors"},
		{"far too many", honest, []int{good, bell, bell, bell, bell, bell, bell, bell}, "descriptors"},
		{"in the wrong order", honest, []int{bell, good}, "fcntl"},
		{"a file", honest, []int{int(file.Fd()), bell}, "fcntl"},
		{"memory that can shrink", honest, []int{memfd(t, memoryLen, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), bell}, "not sealed"},
		{"memory whose seals can change", honest, []int{memfd(t, memoryLen, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK), bell}, "not sealed"},
		{"memory that cannot be written", honest, []int{memfd(t, memoryLen, memorySeals|unix.F_SEAL_WRITE), bell}, "not sealed"},
		{"memory that nobody else may write", honest, []int{memfd(t, memoryLen, memorySeals|unix.F_SEAL_FUTURE_WRITE), bell}, "not sealed"},
		{"too little memory", honest, []int{memfd(t, 4096, memorySeals), bell}, "not sealed"},
		{"an eventfd", honest, []int{good, event}, "no datagram socket"},
		{"not JSON", []byte("\x00\xff{"), []int{good, bell}, "invalid character"},
		{"nothing", []byte{}, nil, ""},
		{"a long message", []byte(strings.Repeat(" ", 2*maxMessage)), []int{good, bell}, "too long"},
		{"another version", other(func(h *hello) { h.Version++ }), []int{good, bell}, "version"},
		{"another size", other(func(h *hello) { h.Memory-- }), []int{good, bell}, "bytes of memory"},
		{"a slot beyond", other(func(h *hello) { h.Slot, h.Slots = 4, 4 }), []int{good, bell}, "slot 4"},
		{"no slots", other(func(h *hello) { h.Slots = 0 }), []int{good, bell}, "slot"},
		{"a million slots", other(func(h *hello) { h.Slots = 1 << 20 }), []int{good, bell}, "slot"},
		{"negative numbers", other(func(h *hello) { h.Slot, h.ToQPN = -1, -1 }), []int{good, bell}, "slot"},
		{"the port of nobody", other(func(h *hello) { h.From = netip.AddrPortFrom(s.addr.Next(), h.From.Port()) }), []int{good, bell}, "no process"},
	} {
		conn := s.connect()
		before := len(r.all())
		_, _, err := conn.WriteMsgUnix(c.hello, unix.UnixRights(c.fds...), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.hello) == 0 {
			conn.Close()
		}
		r.awaitFrom(t, before, c.why)
		conn.Close()
	}
	to.dev.mu.Lock()
	conns := to.dev.conns
	to.dev.mu.Unlock()
	if conns != 0 || len(to.SharedPeers()) > 0 {
		t.Errorf("there are %d connections", conns)
	}
	conn := s.connect()
	var a answer
	if err := sendMessage(conn, s.hello(), good, bell); err != nil {
		t.Fatal(err)
	}
	if _, err := receiveMessage(conn, &a, 0); err != nil || a.Refused != "" || a.Slots != 1 {
		t.Fatal(err, a)
	}
	if got := to.SharedPeers(); !slices.Equal(got, []netip.Addr{s.addr}) {
		t.Errorf("it shares memory with %v", got)
	}
}

// A peer that shuts down the socket by which it wakes this side makes it ready
// for ever: the connection ends, and keeps no goroutine awake.
func TestBellIsShutDown(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	for _, how := range []int{unix.SHUT_RD, unix.SHUT_RDWR} {
		to := open(t, dir, loopback(), 1, nil)[0]
		s := newStranger(t, dir, to)
		bell, _ := bells(t)
		conn := s.connect()
		var a answer
		if err := sendMessage(conn, s.hello(), memfd(t, memoryLen, memorySeals), bell); err != nil {
			t.Fatal(err)
		}
		if _, err := receiveMessage(conn, &a, 0); err != nil || a.Refused != "" {
			t.Fatal(err, a)
		}
		if err := unix.Shutdown(bell, how); err != nil {
			t.Fatal(err)
		}
		b := transport.NewRxBatch(1)
		for waits := 0; len(*to.conns.Load()) > 0; waits++ {
			if waits == 1000 {
				t.Fatalf("%d times nobody could sleep", waits)
			}
			if err := to.Wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := to.Recv(b); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Strangers that connect and say nothing hold up neither the end of the device
// nor what they have not to do with.
func TestStalledAgreements(t *testing.T) {
	dir := privateDir(t)
	to := open(t, dir, loopback(), 1, nil)[0]
	other := open(t, dir, loopback(), 1, nil)[0]
	s := newStranger(t, dir, to)
	for range 4 * maxTalks {
		s.connect()
	}
	stream := newStream(t, other, to.Addr())
	for range 100 {
		stream.send(1, 64, 5) // by whatever way
		receive(t, to, stream.next-1, 1)
	}
	to.dev.mu.Lock()
	talks := len(to.dev.talks)
	to.dev.mu.Unlock()
	if talks > maxTalks+1 {
		t.Errorf("%d agreements at once", talks)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

// A peer that asks to be woken again and again, and does not take the wake-ups,
// does not hold up this side, whatever it has done to the descriptor.
func TestWakeDoesNotBlock(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, nil)[0]
	ab := newStream(t, a, b.Addr())
	ab.share(b)
	c := (*a.conns.Load())[0]
	if err := unix.SetNonblock(c.bell, false); err != nil {
		t.Fatal(err)
	}
	first := ab.next
	for range 1000 {
		c.prod.ring.armed().Store(1)
		ab.send(1, 8, 5)
	}
	receive(t, b, first, 1000)
	// It is woken all the same when it sleeps at last.
	done := make(chan struct{})
	go func() {
		receive(t, b, first+1000, 100)
		close(done)
	}()
	for range 100 {
		ab.send(1, 8, 5)
		runtime.Gosched()
	}
	<-done
}

// The ring takes as many packets as queue pairs of a reliable service have in
// flight to one peer, even the smallest: 2.25 MiB, of which each counts 384
// bytes beyond its own.
func TestRingHoldsWindow(t *testing.T) {
	t.Parallel()
	for _, size := range []int{16, 20, 40, 60, 1024, 4096 + 32} {
		p, _ := newRing()
		n := 9 << 18 / (size + 384)
		for i := range n {
			if !p.put(make([]byte, size), meta{segment: size}) {
				t.Errorf("packets of %d bytes: %d of %d fit", size, i, n)
				break
			}
		}
	}
}

// The address at which memory could not be mapped may hold another mapping by
// then.
func TestFailedMapping(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	places.mu.Lock()
	before := len(places.free)
	places.mu.Unlock()
	if _, err := mapMemory(int(file.Fd())); err == nil {
		t.Fatal("it is mapped")
	}
	places.mu.Lock()
	defer places.mu.Unlock()
	if len(places.free) > before {
		t.Error("the place is used again")
	}
}

// A consumer that scribbles over all words of its own while the producer sends
// takes down nothing, and neither does a producer.
func TestScribbles(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	a, b := open(t, dir, loopback(), 1, nil)[0], open(t, dir, loopback(), 1, nil)[0]
	ab := newStream(t, a, b.Addr())
	for round := range 20 {
		ab.share(b)
		list := *b.conns.Load()
		c := list[len(list)-1]
		// What the peer could do with its mapping.
		n := uint32(round) * 2654435761
		words := c.mem[:len(c.mem)-len(c.mem)%4]
		for i := 0; i < len(words); i += 4 * (1 + round) {
			n = n*1664525 + 1013904223
			half{c.mem}.word(i).Store(n)
		}
		rx := transport.NewRxBatch(64)
		for range 100 {
			if err := ab.trySend(3, 500, 5); err != nil {
				var failed *transport.SendError
				if !errors.As(err, &failed) {
					t.Fatal(err)
				}
			}
			if _, err := b.Recv(rx); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range append(*a.conns.Load(), *b.conns.Load()...) {
			c.hangUp()
		}
		drained(t, a)
		drained(t, b)
		ab.next = 0
	}
}

// drained receives until no connection is left, and nothing more comes.
func drained(t *testing.T, l *Link) {
	t.Helper()
	rx := transport.NewRxBatch(64)
	for vain := 0; len(*l.conns.Load()) > 0 || vain < 100; vain++ {
		if _, err := l.Recv(rx); err != nil {
			t.Fatal(err)
		}
		if rx.Len() > 0 {
			vain = 0
		}
		runtime.Gosched()
	}
}
