package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// Network is where the hosts of a lab stand.
type Network struct {
	attach  func() (transport.Link, error)
	close   func() error
	virtual bool // time is virtual
}

// Loopback is the loopback network: every host is a UDP socket on an address of
// its own below 127.0.0.0/8.
func Loopback() *Network {
	return &Network{attach: attachLoopback, close: func() error { return nil }}
}

// attachLoopback tries addresses until one is free: other processes use the
// same network.
func attachLoopback() (transport.Link, error) {
	for try := 0; ; try++ {
		n := rand.Uint32()
		addr := netip.AddrFrom4([4]byte{127, byte(160 + n>>16%64), byte(n >> 8), byte(n%254 + 1)})
		l, err := udp.Open(addr, udp.Config{})
		if err == nil || try == 20 || !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
}

// Fabric is a simulated network. Inside a testing/synctest bubble its time is
// virtual.
func Fabric(c fabric.Config) *Network {
	sw := fabric.NewSwitch(c)
	n := byte(0)
	return &Network{
		attach: func() (transport.Link, error) {
			n++
			return sw.Attach(netip.AddrFrom4([4]byte{192, 0, 2, n}))
		},
		close:   sw.Close,
		virtual: true,
	}
}

// lab is the hosts of one trial.
type lab struct {
	net    *Network
	wire   Wire
	inject *injector // nil: the wire is a raw socket

	victim, peer, other *host
	sentinel            *verbs.QP // of the victim: only fence sends to it
	ghost               netip.Addr
	closers             []func() error
}

// host is a device with a protection domain.
type host struct {
	dev  *verbs.Device
	pd   *verbs.PD
	addr netip.Addr
}

// end is one side of a connection.
type end struct {
	host     *host
	qp       *verbs.QP
	scq, rcq *verbs.CQ
	mr       *verbs.MR
	mtu      verbs.MTU
	received uint64 // receives completed
	posted   uint64 // receives posted
}

// conn is a connection of two devices.
type conn struct{ a, b *end }

// open makes the lab.
func (t *Trial) open(o Options) {
	l := &lab{net: o.Network}
	t.lab = l
	if o.Raw {
		raw, err := OpenRaw()
		t.check(err)
		l.wire = raw
		l.closers = append(l.closers, raw.Close)
	} else {
		l.inject = newInjector()
		l.wire = l.inject
	}
	l.victim, l.peer, l.other = t.host(), t.host(), t.host()
	l.ghost = l.freeAddr()
	l.sentinel = t.end(l.victim, endConfig{}).qp
}

// freeAddr is an address of the network that no device has.
func (l *lab) freeAddr() netip.Addr {
	b := l.victim.addr.As4()
	b[3] ^= 0xff
	return netip.AddrFrom4(b)
}

func (l *lab) close() error {
	var errs []error
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	return errors.Join(append(errs, l.net.close())...)
}

// attach opens a link; forged packets reach it.
func (t *Trial) attach() transport.Link {
	link, err := t.lab.net.attach()
	t.check(err)
	if t.lab.inject != nil {
		return t.lab.inject.wrap(link)
	}
	return link
}

// host opens a device.
func (t *Trial) host() *host {
	dev, err := verbs.OpenLink(t.attach(), verbs.Config{})
	t.check(err)
	t.lab.closers = append(t.lab.closers, dev.Close)
	pd, err := dev.AllocPD()
	t.check(err)
	return &host{dev: dev, pd: pd, addr: dev.Addr()}
}

// endConfig describes one side of a connection. Zero fields take defaults.
type endConfig struct {
	mtu     verbs.MTU // default 1024
	timeout uint8     // default defaultTimeout
	size    int       // of the region; default regionSize
	cqe     int       // of the receive completion queue; default 1024
	foreign bool      // the program does not say that the peer is of our kind
}

const (
	regionSize = 1 << 20
	receives   = 64 // that stream keeps posted
	slotSize   = 64 // bytes of its messages

	// defaultTimeout of 0.27 s lets a connection outlive a busy machine: it
	// ends after 2 s in which nothing gets through.
	defaultTimeout = 16
)

func (c *endConfig) fill() {
	set(&c.mtu, verbs.MTU1024)
	set(&c.timeout, defaultTimeout)
	set(&c.size, regionSize)
	set(&c.cqe, 1024)
}

func set[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// end makes a queue pair with its queues and memory.
func (t *Trial) end(h *host, c endConfig) *end {
	c.fill()
	e := &end{host: h, mtu: c.mtu}
	var err error
	e.scq, err = h.dev.CreateCQ(1024)
	t.check(err)
	e.rcq, err = h.dev.CreateCQ(c.cqe)
	t.check(err)
	e.mr, err = h.pd.AllocMemory(c.size, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	t.check(err)
	e.qp, err = h.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, MaxRecvWR: 2 * receives})
	t.check(err)
	return e
}

// close frees what belongs to the end.
func (e *end) close() error {
	return errors.Join(e.qp.Close(), e.mr.Close(), e.scq.Close(), e.rcq.Close())
}

// join connects one side to the other's endpoint.
func (t *Trial) join(e *end, to verbs.Endpoint, c endConfig) {
	c.fill()
	if c.foreign {
		to.Native = false
	}
	t.check(e.qp.Connect(t.ctx, to, verbs.WithConfig(verbs.ConnectConfig{PathMTU: c.mtu, Timeout: c.timeout})))
}

// connect makes a connection of two hosts.
func (t *Trial) connect(a, b *host, c endConfig) *conn {
	x := &conn{t.end(a, c), t.end(b, c)}
	t.join(x.a, x.b.qp.Endpoint(), c)
	t.join(x.b, x.a.qp.Endpoint(), c)
	return x
}

// close frees both ends.
func (c *conn) close() error { return errors.Join(c.a.close(), c.b.close()) }

// postReceives fills the receive queue for stream.
func (e *end) postReceives() error {
	for ; e.posted < e.received+receives; e.posted++ {
		slot := int(e.posted % receives)
		if err := e.qp.PostRecv(verbs.RecvWR{ID: e.posted, SGList: []verbs.SGE{e.mr.Slice(slot*slotSize, slotSize)}}); err != nil {
			return err
		}
	}
	return nil
}

// sendBase is where stream's senders have their messages, streamDepth of them.
const (
	sendBase    = receives * slotSize
	streamDepth = 8
)

// stream sends n numbered messages from a to b and returns what was not as it
// must be. Receives for the messages to come are posted.
func (t *Trial) stream(a, b *end, n int) error {
	for sent := 0; sent < n; {
		if err := b.postReceives(); err != nil {
			return fmt.Errorf("post a receive: %w", err)
		}
		k := min(streamDepth, n-sent)
		for i := range k {
			at := sendBase + i*slotSize
			binary.BigEndian.PutUint64(a.mr.Bytes()[at:], t.seq+uint64(i)+1)
			if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(at, slotSize)}}); err != nil {
				return fmt.Errorf("post message %d of %d: %w", sent+i+1, n, err)
			}
		}
		for i := range k {
			t.seq++
			if err := t.arrives(b); err != nil {
				return fmt.Errorf("receive message %d of %d: %w", sent+i+1, n, err)
			}
		}
		for i := range k {
			if wc, err := t.wait(a.scq); err != nil || wc.Status != verbs.StatusSuccess {
				return fmt.Errorf("send message %d of %d: %v %w", sent+i+1, n, wc.Status, orNil(err))
			}
		}
		sent += k
	}
	return nil
}

var errStatus = errors.New("the connection has ended")

func orNil(err error) error {
	if err == nil {
		return errStatus
	}
	return err
}

// arrives takes the receive of the message under way.
func (t *Trial) arrives(b *end) error {
	wc, err := t.wait(b.rcq)
	switch {
	case err != nil:
		return err
	case wc.Status != verbs.StatusSuccess:
		return fmt.Errorf("%v", wc.Status)
	}
	slot := int(b.received % receives)
	b.received++
	got := b.mr.Bytes()[slot*slotSize : (slot+1)*slotSize]
	if n := binary.BigEndian.Uint64(got); wc.ByteLen != slotSize || n != t.seq {
		return fmt.Errorf("%d bytes, number %#x, want %d bytes, number %#x: not what the peer sent", wc.ByteLen, n, slotSize, t.seq)
	}
	return nil
}

// healthy notes a connection that does not work any more, in either direction.
func (t *Trial) healthy(c *conn, n int) bool {
	for _, d := range []struct {
		what     string
		from, to *end
	}{{"to the victim", c.a, c.b}, {"from the victim", c.b, c.a}} {
		if err := t.stream(d.from, d.to, n); err != nil {
			t.broken("the connection under attack, %s: %v", d.what, err)
			return false
		}
	}
	return true
}

// fence returns when the victim has handled all packets sent before, and has
// answered.
func (t *Trial) fence() {
	bth := rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: t.lab.sentinel.QPN()}
	for range 2 { // what was handled with the first is answered before the second is
		seen := t.lab.sentinel.Stats().RxPackets
		t.await("packet at the victim", func() bool {
			if t.lab.sentinel.Stats().RxPackets > seen {
				return true
			}
			t.forge(t.lab.ghost, rocev2.UDPPort, bth.AppendTo(nil)) // a full socket buffer may lose it
			return t.happens(10*pollTime, func() bool { return t.lab.sentinel.Stats().RxPackets > seen })
		})
	}
	const rounds = 5
	quiet, sent := 0, t.lab.victim.dev.Stats().Link.TxPackets
	t.happens(giveUpAfter, func() bool {
		if now := t.lab.victim.dev.Stats().Link.TxPackets; now != sent {
			quiet, sent = 0, now
		}
		quiet++
		return quiet > rounds
	})
}

// forge sends a packet to the victim that claims to come from src, with a right
// ICRC. It may be called
// from any goroutine.
func (t *Trial) forge(src netip.Addr, port uint16, packet []byte) {
	dst := t.lab.victim.addr
	flow := rocev2.NewFlow(src, dst, port, rocev2.UDPPort)
	sealed := append(make([]byte, 0, len(packet)+rocev2.ICRCLen), packet...) // the wire keeps it
	t.datagram(netip.AddrPortFrom(src, port), flow.Seal(0, sealed))
}

// datagram sends any bytes to the victim. It may be called from any goroutine.
func (t *Trial) datagram(src netip.AddrPort, b []byte) {
	if err := t.lab.wire.Send(src, netip.AddrPortFrom(t.lab.victim.addr, rocev2.UDPPort), b); err != nil {
		t.wireErr.CompareAndSwap(nil, &err) // happens aborts: floods have goroutines of their own
	}
}
