package attack

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// relay is an attacker between hosts and the victim's TCP port: hosts that
// agree on keys at another port reach it in place of the victim.
type relay struct {
	lab *lab
	ln  net.Listener

	mu    sync.Mutex
	play  []byte    // what a host hears in place of the victim; nil: it is let through
	heard [2][]byte // of the latest handshake: what the host has said, and the victim
	count int       // of connections
	wg    sync.WaitGroup
}

// relay makes one.
func (l *lab) relay() *relay {
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.victim.addr, 0)))
	check(err)
	r := &relay{lab: l, ln: ln}
	l.closers = append(l.closers, func() error {
		err := ln.Close()
		r.wg.Wait()
		return err
	})
	r.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(c) })
		}
	})
	return r
}

// host opens a device whose handshakes pass the relay.
func (r *relay) host() *host {
	r.lab.keyPort = netip.MustParseAddrPort(r.ln.Addr().String()).Port()
	defer func() { r.lab.keyPort = 0 }()
	return r.lab.host()
}

// plays has hosts hear what was recorded; nil lets them through. It returns how
// many have connected.
func (r *relay) plays(b []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.play = b
	return r.count
}

func (r *relay) recorded() (host, victim []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.heard[0]), bytes.Clone(r.heard[1])
}

func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// handshakeTime is longer than a handshake takes.
const handshakeTime = 10 * time.Second

// serve passes a connection on, or plays what was recorded.
func (r *relay) serve(c net.Conn) {
	defer c.Close()
	end := time.Now().Add(handshakeTime)
	r.mu.Lock()
	play := r.play
	r.count++
	r.heard = [2][]byte{}
	r.mu.Unlock()
	if c.SetDeadline(end) != nil {
		return
	}
	if play != nil {
		if _, err := c.Read(make([]byte, 1<<14)); err == nil { // the host begins
			_, _ = c.Write(play)
			_, _ = io.Copy(io.Discard, c)
		}
		return
	}
	from := netip.MustParseAddrPort(c.RemoteAddr().String()).Addr()
	v, err := r.lab.dial(from)
	if err != nil || v.SetDeadline(end) != nil {
		return
	}
	defer v.Close()
	pass := func(k int, to, from net.Conn) {
		_, _ = io.Copy(io.MultiWriter(to, recorder{r, k}), from)
		_ = to.(*net.TCPConn).CloseWrite() // the other way goes on
	}
	r.wg.Go(func() { pass(1, c, v) })
	pass(0, v, c)
}

// recorder takes down what one side says.
type recorder struct {
	r *relay
	k int
}

func (w recorder) Write(b []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.heard[w.k] = append(w.r.heard[w.k], b...)
	return len(b), nil
}

// replayedKeys has a handshake recorded, and said again.
func replayedKeys(t *Trial) {
	l := t.lab
	r := l.relay()
	h, late := r.host(), r.host()
	c := l.connect(h, l.victim, endConfig{})
	if !t.healthy(c, 20) {
		return
	}
	fromHost, fromVictim := r.recorded()
	t.must(len(fromHost) > 200 && len(fromVictim) > 200, "the attacker has %d and %d bytes: the check shows nothing", len(fromHost), len(fromVictim))
	for range min(t.Conns, 50) {
		l.sayAgain(h.addr, fromHost)
		t.result.Sent++
		if !t.healthy(c, 4) {
			return
		}
	}
	t.must(refusedByHost(h) == 0, "the victim has sent %d packets that the host has no keys for", refusedByHost(h))

	r.plays(fromVictim)
	x := l.connect(late, l.victim, endConfig{timeout: patient})
	before := r.connections()
	check(x.a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{x.a.mr.Slice(0, slotSize)}, Remote: x.b.mr.RemoteAt(0)}))
	l.await("handshake", func() bool { return r.connections() >= before+3 })
	t.result.Sent += uint64(r.plays(nil) - before)
	t.must(len(late.dev.KeyHosts()) == 0, "a host has taken keys of a handshake that was played to it")
	wc, err := l.wait(x.a.scq)
	t.must(err == nil && wc.Status == verbs.StatusSuccess, "a host whose handshake is let through: %v %v", wc.Status, err)
	t.healthy(x, 20)
	t.healthy(c, 20)
	t.must(len(l.intruders()) == 0, "the victim has keys of %v", l.intruders())
}

// refusedByHost is how many packets a host has no key for.
func refusedByHost(h *host) uint64 {
	c, _ := h.dev.GuardCounters()
	return c.Unknown
}

// sayAgain says what was recorded to the victim, and hears it out.
func (l *lab) sayAgain(from netip.Addr, said []byte) {
	c, err := l.dial(from)
	if err != nil {
		return
	}
	defer c.Close()
	if c.SetDeadline(time.Now().Add(handshakeTime)) != nil {
		return
	}
	_, _ = c.Write(said)
	_ = c.(*net.TCPConn).CloseWrite() // else the victim waits for more, so that its alert is seen
	_, _ = io.Copy(io.Discard, c)
}
