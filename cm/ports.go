package cm

import (
	"fmt"
	"sync"
	"syscall"
)

// PortError says that a port cannot be had. errors.Is finds
// syscall.EADDRINUSE.
type PortError struct {
	Space PortSpace
	Port  uint16 // 0: none of the ephemeral ports is free
}

// Error says which port it is, and what to do.
func (e *PortError) Error() string {
	if e.Port == 0 {
		return fmt.Sprintf("cm: no port from %d on of port space %v is free; close connections or listeners", firstEphemeral, e.Space)
	}
	return fmt.Sprintf("cm: port %d of port space %v is in use on this device; close its listener, choose another port, or 0 for a free one", e.Port, e.Space)
}

// Unwrap returns syscall.EADDRINUSE.
func (e *PortError) Unwrap() error { return syscall.EADDRINUSE }

// firstEphemeral is the first of the ports that are given to those who ask for
// any (RFC 6335: 49152 to 65535; Linux has more of them).
const firstEphemeral = 32768

// ports has the ports of a device that are in use. A port has one owner, or any
// number that agree to share it.
type ports struct {
	random func() uint32

	mu   sync.Mutex
	used map[portKey]portUse
}

type portKey struct {
	space PortSpace
	port  uint16
}

type portUse struct {
	owners int
	shared bool // all owners said so
}

func newPorts(random func() uint32) *ports {
	return &ports{random: random, used: map[portKey]portUse{}}
}

// take takes a port: 0 stands for any that is free. With share the port may be
// one that others have taken with share, and others may do so.
func (p *ports) take(space PortSpace, port uint16, share bool) (uint16, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port == 0 {
		return p.takeAny(space, share)
	}
	k := portKey{space, port}
	if use := p.used[k]; use.owners > 0 && !(use.shared && share) {
		return 0, &PortError{Space: space, Port: port}
	}
	p.add(k, share)
	return port, nil
}

// takeAny takes a free port. It begins anywhere, so that a port is not used
// again soon and nobody can guess it.
func (p *ports) takeAny(space PortSpace, share bool) (uint16, error) {
	const n = 1<<16 - firstEphemeral
	first := p.random() % n
	for i := range uint32(n) {
		k := portKey{space, uint16(firstEphemeral + (first+i)%n)}
		if p.used[k].owners == 0 {
			p.add(k, share)
			return k.port, nil
		}
	}
	return 0, &PortError{Space: space}
}

func (p *ports) add(k portKey, share bool) {
	use := p.used[k]
	use.owners++
	use.shared = share
	p.used[k] = use
}

// give gives back a port.
func (p *ports) give(space PortSpace, port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := portKey{space, port}
	use := p.used[k]
	if use.owners--; use.owners > 0 {
		p.used[k] = use
		return
	}
	delete(p.used, k)
}
