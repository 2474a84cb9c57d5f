package keychannel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
	addrC = netip.MustParseAddr("10.0.0.3")
)

// network connects channels in virtual time.
type network struct {
	mu        sync.Mutex
	listeners map[netip.Addr]*listener
	dials     int
	to        map[netip.Addr]netip.Addr // where an attacker has connections go
	wrap      func(c net.Conn, far bool) net.Conn
}

func newNetwork() *network {
	return &network{listeners: map[netip.Addr]*listener{}, to: map[netip.Addr]netip.Addr{}}
}

type listener struct {
	n    *network
	addr netip.Addr
	c    chan net.Conn
	over chan struct{}
	once sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.c:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// conn is an end of a pipe with an address, and with room for what is written.
type conn struct {
	net.Conn
	from  netip.Addr
	queue chan []byte
	peer  *conn
	ended atomic.Bool // the peer writes no more

	mu   sync.Mutex
	shut bool
}

func newConn(c net.Conn, from netip.Addr) *conn {
	k := &conn{Conn: c, from: from, queue: make(chan []byte, 100)}
	go func() {
		defer c.Close()
		for b := range k.queue {
			if b == nil {
				k.peer.ended.Store(true)
				_ = k.peer.Conn.SetReadDeadline(time.Now()) // for a Read under way
			} else if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	return k
}

func (c *conn) Read(b []byte) (int, error) {
	if c.ended.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if err != nil && c.ended.Load() {
		err = io.EOF
	}
	return n, err
}

// CloseWrite has the peer read to the end of what was written.
func (c *conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shut {
		c.queue <- nil
	}
	return nil
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return 0, net.ErrClosed
	}
	c.queue <- bytes.Clone(b)
	return len(b), nil
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shut {
		c.shut = true
		close(c.queue)
	}
	return nil
}

func (c *conn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 1000))
}

// dial connects from an address to another one.
func (n *network) dial(from, to netip.Addr) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	if other, ok := n.to[to]; ok {
		to = other
	}
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	a, b := net.Pipe()
	one, two := newConn(a, to), newConn(b, from)
	one.peer, two.peer = two, one
	near, far := net.Conn(one), net.Conn(two)
	if n.wrap != nil {
		near, far = n.wrap(near, false), n.wrap(far, true)
	}
	select {
	case l.c <- far:
		return near, nil
	case <-l.over:
		near.Close()
		far.Close()
		return nil, errors.New("connection refused")
	}
}

func (n *network) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// side is a channel with its table.
type side struct {
	*keychannel.Channel
	table *guard.Table
}

func (n *network) open(t *testing.T, addr netip.Addr, config *tls.Config, change func(*keychannel.Config)) *side {
	t.Helper()
	s := &side{table: guard.NewTable()}
	cfg := keychannel.Config{Addr: addr, TLS: config, Table: s.table,
		Listen: func() (net.Listener, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.listeners[addr] = &listener{n: n, addr: addr, c: make(chan net.Conn), over: make(chan struct{})}
			return n.listeners[addr], nil
		},
		Dial: func(_ context.Context, peer netip.Addr) (net.Conn, error) { return n.dial(addr, peer) }}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.Channel, err = keychannel.Open(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func config(t *testing.T, ca *testcert.Authority, s testcert.Subject) *tls.Config {
	t.Helper()
	return &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.IssueFor(t, s)}, Time: certTime()}
}

// certTime is now, as certificates know it: not the time of a bubble.
func certTime() func() time.Time {
	now := realNow
	return func() time.Time { return now }
}

var realNow = time.Now()

// state returns what a side knows of a peer.
func (s *side) state(a netip.Addr) keychannel.State {
	for _, st := range s.States() {
		if st.Addr == a {
			return st
		}
	}
	return keychannel.State{}
}

func agreed(t *testing.T, a, b *side, addrA, addrB netip.Addr) {
	t.Helper()
	if st := a.state(addrB); st.Since.IsZero() || st.Err != nil {
		t.Errorf("%v: %+v", addrA, st)
	}
	if st := b.state(addrA); st.Since.IsZero() {
		t.Errorf("%v: %+v", addrB, st)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestAgree: two hosts agree, whichever begins, or both do; the keys of a side
// are those of its peer.
func TestAgree(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{CN: "a", Addr: addrA.String()}), config(t, ca, testcert.Subject{CN: "b", Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := n.open(t, addrA, one, nil)
		b := n.open(t, addrB, two, func(c *keychannel.Config) {
			c.Slots = 256
			c.Allow = func(p netip.Addr, s *tls.ConnectionState) (string, error) {
				return s.PeerCertificates[0].Subject.CommonName, nil
			}
		})
		for range 100 {
			a.Want(addrB, guard.ToSend)
		}
		b.Want(addrA, guard.ToSend)
		synctest.Wait()
		agreed(t, a, b, addrA, addrB)
		if n := n.dialled(); n != 2 {
			t.Errorf("%d connections", n)
		}
		if st := b.state(addrA); st.Name != "a" {
			t.Errorf("%+v", st)
		}
		talk(t, a, b)
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		if n := n.dialled(); n != 2 {
			t.Errorf("%d connections: there are keys", n)
		}
		closeAll(t, a, b)
		if a.table.Version() == 0 {
			t.Error("nothing was entered")
		}
	})
}

// TestRenew: keys are followed by others once a day, and those before them
// still open packets for a while.
func TestRenew(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, nil)
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		was := b.state(addrA).Since
		time.Sleep(keychannel.RenewAfter + time.Minute)
		now := b.state(addrA).Since
		if now.Equal(was) || n.dialled() != 2 {
			t.Errorf("keys of %v after a day, %d connections", now.Sub(was), n.dialled())
		}
		a.Want(addrB, guard.Renew)
		synctest.Wait()
		if n.dialled() != 3 {
			t.Errorf("%d connections", n.dialled())
		}
		a.Want(addrB, guard.Renew)
		synctest.Wait()
		if n.dialled() != 3 {
			t.Error("keys that are new are followed at once")
		}
		talk(t, a, b)
		closeAll(t, a, b)
	})
}

// TestRestart: a side that was restarted gets packets with keys that it does
// not know, and agrees anew; both talk at once.
func TestRestart(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, nil)
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		b = n.open(t, addrB, two, nil)
		b.Want(addrA, guard.Unknown)
		synctest.Wait()
		agreed(t, b, a, addrB, addrA)
		talk(t, a, b)
		closeAll(t, a, b)
	})
}

// TestHints: forged packets change nothing, and have this side connect a
// bounded number of times.
func TestHints(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, nil)
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		for range 600 { // a minute
			a.Want(addrB, guard.Unknown)
			for i := range 20 {
				a.Want(netip.AddrFrom4([4]byte{10, 9, 9, byte(i)}), guard.Unknown)
			}
			time.Sleep(100 * time.Millisecond)
		}
		talk(t, a, b)
		if n := n.dialled(); n > 300 {
			t.Errorf("%d connections in a minute", n)
		}
		if len(a.States()) > 21 {
			t.Errorf("%d peers are remembered", len(a.States()))
		}
		closeAll(t, a, b)
	})
}

// TestReflected: an attacker that connects a side with itself, or with a third
// one, gets no keys agreed.
func TestReflected(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	any := config(t, ca, testcert.Subject{CN: "all"})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		anywhere := func(c *keychannel.Config) { c.AnyAddress = true }
		a, c := n.open(t, addrA, any, anywhere), n.open(t, addrC, any, anywhere)
		for _, to := range []netip.Addr{addrA, addrC} {
			n.to[addrB] = to
			a.Want(addrB, guard.ToSend)
			time.Sleep(10 * time.Second)
			if st := a.state(addrB); !st.Since.IsZero() {
				t.Errorf("keys by %v: %+v", to, st)
			}
		}
		delete(n.to, addrB)
		a.Want(addrC, guard.ToSend)
		synctest.Wait()
		agreed(t, a, c, addrA, addrC)
		closeAll(t, a, c)
	})
}

// TestSilent: connections that say nothing keep no peer out, and end.
func TestSilent(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, nil)
		for i := range 1000 {
			k, err := n.dial(netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)}), addrB)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
		}
		for range 1000 {
			k, err := n.dial(addrC, addrB)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
		}
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		agreed(t, a, b, addrA, addrB)
		if c := b.Counters(); c.Refused < 1900 {
			t.Errorf("%+v", c)
		}
		closeAll(t, a, b)
	})
}

// TestNobodyThere: a peer that is not there is asked again, less and less
// often.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := n.open(t, addrA, one, nil)
		for range 1000 { // 10 seconds
			a.Want(addrB, guard.ToSend)
			time.Sleep(10 * time.Millisecond)
		}
		if n := n.dialled(); n < 5 || n > 15 {
			t.Errorf("%d connections in 10 s", n)
		}
		if st := a.state(addrB); st.Err == nil {
			t.Errorf("%+v", st)
		}
		b := n.open(t, addrB, two, nil)
		for range 250 {
			a.Want(addrB, guard.ToSend)
			time.Sleep(10 * time.Millisecond)
		}
		agreed(t, a, b, addrA, addrB)
		closeAll(t, a, b)
	})
}

func closeAll(t *testing.T, all ...*side) {
	t.Helper()
	for _, s := range all {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
