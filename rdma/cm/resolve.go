package cm

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// QKey is the Q_Key that the programs of librdmacm use for datagrams
// (RDMA_UDP_QKEY).
const QKey uint32 = 0x01234567

// ResolveConfig says how a service of datagrams is looked for. The zero value
// works.
type ResolveConfig struct {
	Space        PortSpace // 0 means UDP
	LocalPort    uint16    // 0 means one that is free
	PrivateData  []byte    // for the peer's program, at most 180 bytes
	TrafficClass uint8     // of the datagrams, too
	Retries      uint8     // up to 15, see DialConfig; 0 means 15
}

// Datagram says where the datagrams for a service go.
type Datagram struct {
	QPN  verbs.QPN // for SendWR.RemoteQPN
	QKey uint32    // for SendWR.RemoteQKey

	// AV is the way there: AddressHandle makes a handle of it.
	AV verbs.AddressVector

	local, remote Addr
	data          private
}

// AddressHandle makes a handle for datagrams of queue pairs of a domain.
func (d *Datagram) AddressHandle(pd *verbs.PD) (*verbs.AddressHandle, error) {
	return pd.CreateAH(d.AV)
}

// LocalAddr returns the address of this side: an *Addr.
func (d *Datagram) LocalAddr() net.Addr { return &d.local }

// RemoteAddr returns the address of the peer: an *Addr.
func (d *Datagram) RemoteAddr() net.Addr { return &d.remote }

// PrivateData returns what the peer's program has sent with its answer: the
// whole field of 136 bytes, with zeros after the data.
func (d *Datagram) PrivateData() []byte { return d.data.bytes() }

// Resolve asks a peer which UD queue pair serves a port. That makes no
// connection: either side may be gone at any time.
//
// The error wraps a *StatusError, ErrNoDevice, ErrUnreachable, ErrClosed, a
// *PortError, or that of ctx. See Dial.
func Resolve(ctx context.Context, dev *verbs.Device, addr netip.AddrPort, cfg ResolveConfig) (*Datagram, error) {
	d, err := resolve(ctx, dev, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), &cfg)
	if err != nil {
		return nil, fmt.Errorf("cm: resolve %v: %w", addr, err)
	}
	return d, nil
}

func resolve(ctx context.Context, dev *verbs.Device, addr netip.AddrPort, cfg *ResolveConfig) (*Datagram, error) {
	if cfg.Space == 0 {
		cfg.Space = UDP
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case dev == nil:
		return nil, fmt.Errorf("no device")
	case cfg.Space == TCP || !validSpace(cfg.Space):
		return nil, fmt.Errorf("port space %v has no datagrams; use UDP, IPoIB or IB", cfg.Space)
	case addr.Port() == 0:
		return nil, fmt.Errorf("port 0: no program listens there")
	}
	if err := checkPeer(dev, addr.Addr()); err != nil {
		return nil, err
	}
	if err := tooLong("SIDR_REQ of RDMA-CM", len(cfg.PrivateData), MaxResolvePrivate); err != nil {
		return nil, err
	}
	m, err := managerOf(dev)
	if err != nil {
		return nil, err
	}
	port, err := m.ports.takeSource(cfg.Space, cfg.LocalPort)
	if err != nil {
		return nil, err
	}
	c := &Conn{m: m, ownPort: true, remote: Addr{addr, cfg.Space}, local: Addr{netip.AddrPortFrom(dev.Addr(), port), cfg.Space}}
	defer c.giveUp()
	return c.resolve(ctx, cfg)
}

// resolve sends the question and waits for the answer.
func (c *Conn) resolve(ctx context.Context, cfg *ResolveConfig) (*Datagram, error) {
	ip := ipHeader(c.local.AddrPort, c.remote.AddrPort)
	w := newWaiter()
	c.m.lock()
	c.waiter = w
	id, err := c.m.ask(c, &agent.SIDRRequest{
		Path:      agent.Path{Local: ip.Source, Remote: ip.Destination, TrafficClass: cfg.TrafficClass},
		ServiceID: cfg.Space.Service(c.remote.Port()),
		Private:   append(ip.AppendTo(nil), cfg.PrivateData...),
		Retries:   min(cfg.Retries, 15),
	})
	c.id = id
	c.m.unlock()
	if err != nil {
		return nil, err
	}
	if err := c.answer(ctx, w); err != nil {
		return nil, err
	}
	switch rep := w.event.SIDRReply; {
	case rep == nil:
		return nil, endOf(&w.event)
	case rep.Status != mad.SIDRSuccess:
		return nil, &StatusError{Status: rep.Status, PrivateData: rep.Private}
	default:
		return &Datagram{QPN: rep.QPN, QKey: rep.QKey, local: c.local, remote: c.remote, data: privateOf(rep.Private),
			AV: verbs.AddressVector{DGID: c.remote.Addr(), TrafficClass: cfg.TrafficClass}}, nil
	}
}

// ask sends a SIDR_REQ, locked. s gets what comes of it.
func (m *manager) ask(s sink, r *agent.SIDRRequest) (agent.ID, error) {
	if m.closed {
		return 0, m.errOver()
	}
	id, err := m.agent.Resolve(m.now(), r)
	if err == nil {
		m.ids[id] = s
	}
	return id, err
}
