package udp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/transport"
)

// sourcePorts are the sockets beside their own from which a link, or all links
// of a group, send. No peer answers to these ports, so they do not receive.
type sourcePorts struct {
	at    netip.AddrPort // address with zone, and the links' own port
	scope uint32
	iface int // by which datagrams to groups leave; 0 = the routes decide
	cfg   Config

	// Under mu it is replaced, never changed. So Send reads it without the
	// lock.
	byPort atomic.Pointer[map[uint16]*sourceSocket]

	mu    sync.Mutex
	ports []uint16 // in the order in which they were opened
	links int      // that use them; with the last one they close
}

func newSourcePorts(at netip.AddrPort, scope uint32, iface int, c Config) *sourcePorts {
	c.ReusePort = false // never to take the packets of another program's port
	p := &sourcePorts{at: at, scope: scope, iface: iface, cfg: c, links: 1}
	p.byPort.Store(&map[uint16]*sourceSocket{})
	return p
}

// join adds a link.
func (p *sourcePorts) join() *sourcePorts {
	p.mu.Lock()
	p.links++
	p.mu.Unlock()
	return p
}

// leave takes a link away.
func (p *sourcePorts) leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links--; p.links > 0 {
		return nil
	}
	var errs []error
	for _, s := range *p.byPort.Load() {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// socket returns the socket that sends from port, which is opened if need be.
func (p *sourcePorts) socket(port uint16) (*sourceSocket, error) {
	if s := (*p.byPort.Load())[port]; s != nil {
		return s, nil
	}
	if _, err := p.open(port, true); err != nil {
		return nil, err
	}
	return (*p.byPort.Load())[port], nil
}

// Where a taken port is replaced, other ports of the dynamic range (RFC 6335)
// are tried at these distances.
const (
	dynamicPorts = 0xc000
	portStride   = 257
	portTries    = 64
)

func (p *sourcePorts) open(port uint16, exact bool) (uint16, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == 0 {
		return 0, transport.ErrClosed
	}
	if (*p.byPort.Load())[port] != nil {
		return port, nil
	}
	if len(p.ports) == MaxSourcePorts {
		if !exact {
			return p.shared(port), nil
		}
		return 0, &OpenError{Addr: netip.AddrPortFrom(p.at.Addr(), port), Op: "open source port", Err: errManyPorts,
			Hint: fmt.Sprintf("these stay open until the link is closed; use one of them, for example %d", p.shared(port))}
	}
	op, err := p.bind(port)
	for k := 1; k < portTries && !exact && errors.Is(err, addrInUse); k++ {
		next := dynamicPorts | (port + uint16(k*portStride))
		if (*p.byPort.Load())[next] != nil {
			return next, nil
		}
		if op, err = p.bind(next); err == nil {
			return next, nil
		}
	}
	switch {
	case err == nil:
		return port, nil
	case !exact && len(p.ports) > 0:
		return p.shared(port), nil
	}
	return 0, &OpenError{Addr: netip.AddrPortFrom(p.at.Addr(), port), Op: "source port: " + op, Err: err}
}

var errManyPorts = fmt.Errorf("%d source ports are open, the most there can be", MaxSourcePorts)

// shared chooses one of the open ports for port.
func (p *sourcePorts) shared(port uint16) uint16 { return p.ports[int(port)%len(p.ports)] }

// bind opens the socket for port.
func (p *sourcePorts) bind(port uint16) (op string, err error) {
	at := netip.AddrPortFrom(p.at.Addr(), port)
	s, op, err := openSource(at, p.scope, p.iface, &p.cfg)
	if err != nil {
		return op, err
	}
	m := maps.Clone(*p.byPort.Load())
	m[port] = s
	p.byPort.Store(&m)
	p.ports = append(p.ports, port)
	return "", nil
}
