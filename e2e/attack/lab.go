package attack

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// Network is where the hosts of a lab stand: sockets, or a simulated network,
// whose time is virtual.
type Network struct {
	attach  func() (transport.Link, error) // a host
	close   func() error
	virtual bool

	addr   func() netip.Addr // of the next host with sockets
	shards int               // sockets of a host
}

// Loopback is the loopback network: every host is a UDP socket on an address of
// its own below 127.0.0.0/8.
func Loopback() *Network {
	return sockets(1, func() netip.Addr {
		n := rand.Uint32()
		return netip.AddrFrom4([4]byte{127, byte(160 + n>>16%64), byte(n >> 8), byte(n%254 + 1)})
	})
}

// Sharded is a network of UDP sockets on addresses that the caller has set up,
// each of which a host takes, in their order. A host has that many sockets, as
// its device opens them.
func Sharded(shards int, addrs ...netip.Addr) *Network {
	n := 0
	return sockets(shards, func() netip.Addr {
		addr := addrs[n%len(addrs)]
		n++
		return addr
	})
}

func sockets(shards int, addr func() netip.Addr) *Network {
	n := &Network{addr: addr, shards: shards, close: func() error { return nil }}
	n.attach = func() (transport.Link, error) {
		return onFree(n, func(a netip.Addr) (transport.Link, error) { return udp.Open(a, udp.Config{}) })
	}
	return n
}

// onFree tries addresses until one is free: other processes use the same
// network.
func onFree[T any](n *Network, open func(netip.Addr) (T, error)) (t T, err error) {
	for range 20 {
		if t, err = open(n.addr()); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return t, err
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

// lab is the hosts of one trial, and what is done with them whatever the attack
// is: it connects them, sends messages, forges packets, and waits for what must
// happen. It judges nothing. It is for one goroutine, but for forge and
// datagram.
type lab struct {
	ctx    context.Context
	net    *Network
	wire   Wire
	inject *injector // nil: the wire is a raw socket

	secured bool        // connections are
	guarded *tls.Config // by which hosts agree on keys, if devices are secured
	keyPort uint16      // where the next host does; 0: at keyPort
	tapped  map[netip.Addr]*tapped

	victim, peer, other *host
	ghost               netip.Addr
	seq                 uint64 // of the messages that stream sends
	closers             []func() error

	wireErr atomic.Pointer[error] // the first error of the wire
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
func (l *lab) open(raw bool) {
	if raw {
		wire, err := OpenRaw()
		check(err)
		l.wire = wire
		l.closers = append(l.closers, wire.Close)
	} else {
		l.inject = newInjector()
		l.wire = l.inject
	}
	l.victim, l.peer, l.other = l.host(), l.host(), l.host()
	l.ghost = l.freeAddr()
	l.tapped[l.victim.addr].markersOf(l.ghost)
}

// freeAddr is an address of the network that no device has.
func (l *lab) freeAddr() netip.Addr {
	b := l.victim.addr.AsSlice()
	b[len(b)-1] ^= 0xff
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

func (l *lab) close() error {
	var errs []error
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	return errors.Join(append(errs, l.net.close())...)
}

// hold puts a link into the hands of the attacker: what it seals is above.
func (l *lab) hold(link transport.Link) transport.Link {
	if l.inject != nil {
		link = l.inject.wrap(link)
	}
	return l.tap(link)
}

// host opens a device.
func (l *lab) host() *host {
	dev, err := l.device()
	check(err)
	l.closers = append(l.closers, dev.Close)
	pd, err := dev.AllocPD()
	check(err)
	return &host{dev: dev, pd: pd, addr: dev.Addr()}
}

func (l *lab) device() (*verbs.Device, error) {
	cfg := verbs.Config{Sealing: l.secured, Shards: l.net.shards, Wrap: l.hold}
	if l.net.virtual {
		link, err := l.net.attach()
		check(err)
		return verbs.OpenLink(l.hold(link), cfg)
	}
	if l.guarded != nil {
		cfg.Secure = &verbs.Secure{TLS: l.guarded, Port: l.keyPort}
	}
	return onFree(l.net, func(a netip.Addr) (*verbs.Device, error) { return verbs.OpenAddr(a, cfg) })
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
func (l *lab) end(h *host, c endConfig) *end {
	c.fill()
	e := &end{host: h, mtu: c.mtu}
	var err error
	e.scq, err = h.dev.CreateCQ(1024)
	check(err)
	e.rcq, err = h.dev.CreateCQ(c.cqe)
	check(err)
	e.mr, err = h.pd.AllocMemory(c.size, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	check(err)
	e.qp, err = h.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, MaxRecvWR: 2 * receives})
	check(err)
	return e
}

// close frees what belongs to the end.
func (e *end) close() error {
	return errors.Join(e.qp.Close(), e.mr.Close(), e.scq.Close(), e.rcq.Close())
}

// join connects one side to the other's endpoint.
func (l *lab) join(e *end, to verbs.Endpoint, c endConfig) {
	c.fill()
	if c.foreign {
		to.Native = false
	}
	check(e.qp.Connect(l.ctx, to, verbs.WithConfig(verbs.ConnectConfig{PathMTU: c.mtu, Timeout: c.timeout})))
}

// connect makes a connection of two hosts.
func (l *lab) connect(a, b *host, c endConfig) *conn {
	x := &conn{l.end(a, c), l.end(b, c)}
	l.join(x.a, x.b.qp.Endpoint(), c)
	l.join(x.b, x.a.qp.Endpoint(), c)
	if l.secured {
		x.secure()
	}
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
func (l *lab) stream(a, b *end, n int) error {
	for sent := 0; sent < n; {
		if err := b.postReceives(); err != nil {
			return fmt.Errorf("post a receive: %w", err)
		}
		k := min(streamDepth, n-sent)
		for i := range k {
			at := sendBase + i*slotSize
			binary.BigEndian.PutUint64(a.mr.Bytes()[at:], l.seq+uint64(i)+1)
			if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(at, slotSize)}}); err != nil {
				return fmt.Errorf("post message %d of %d: %w", sent+i+1, n, err)
			}
		}
		for i := range k {
			l.seq++
			if err := l.arrives(b); err != nil {
				return fmt.Errorf("receive message %d of %d: %w", sent+i+1, n, err)
			}
		}
		for i := range k {
			if wc, err := l.wait(a.scq); err != nil || wc.Status != verbs.StatusSuccess {
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
func (l *lab) arrives(b *end) error {
	wc, err := l.wait(b.rcq)
	switch {
	case err != nil:
		return err
	case wc.Status != verbs.StatusSuccess:
		return fmt.Errorf("%v", wc.Status)
	}
	slot := int(b.received % receives)
	b.received++
	got := b.mr.Bytes()[slot*slotSize : (slot+1)*slotSize]
	if n := binary.BigEndian.Uint64(got); wc.ByteLen != slotSize || n != l.seq {
		return fmt.Errorf("%d bytes, number %#x, want %d bytes, number %#x: not what the peer sent", wc.ByteLen, n, slotSize, l.seq)
	}
	return nil
}

// forge sends a packet to the victim that claims to come from src, with a right
// ICRC. It may be called from any goroutine.
func (l *lab) forge(src netip.Addr, port uint16, packet []byte) {
	dst := l.victim.addr
	flow := rocev2.NewFlow(src, dst, port, rocev2.UDPPort)
	sealed := append(make([]byte, 0, len(packet)+rocev2.ICRCLen), packet...) // the wire keeps it
	l.datagram(netip.AddrPortFrom(src, port), flow.Seal(0, sealed))
}

// datagram sends any bytes to the victim. It may be called from any goroutine.
func (l *lab) datagram(src netip.AddrPort, b []byte) {
	if err := l.wire.Send(src, netip.AddrPortFrom(l.victim.addr, rocev2.UDPPort), b); err != nil {
		l.wireErr.CompareAndSwap(nil, &err) // happens aborts: floods have goroutines of their own
	}
}
