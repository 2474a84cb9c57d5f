package cm

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// PortError says that a port cannot be had. errors.Is finds
// syscall.EADDRINUSE.
type PortError struct {
	Space PortSpace
	Port  uint16 // 0: none of the ephemeral ports is free
	// Owner names the process that has the port, where several processes
	// share the device's address. It is nil where the device itself has the
	// port.
	Owner error
}

// Error says which port it is, and what to do.
func (e *PortError) Error() string {
	switch {
	case e.Owner != nil && e.Port == 0:
		return fmt.Sprintf("cm: no port of port space %v can be had: %v", e.Space, e.Owner)
	case e.Owner != nil:
		return fmt.Sprintf("cm: port %d of port space %v cannot be had: %v", e.Port, e.Space, e.Owner)
	case e.Port == 0:
		return fmt.Sprintf("cm: no port from %d on of port space %v is free; close connections or listeners", firstEphemeral, e.Space)
	}
	return fmt.Sprintf("cm: port %d of port space %v is in use on this device; close its listener, choose another port, or 0 for a free one", e.Port, e.Space)
}

// Unwrap returns syscall.EADDRINUSE, and Owner if there is one.
func (e *PortError) Unwrap() []error {
	if e.Owner != nil {
		return []error{syscall.EADDRINUSE, e.Owner}
	}
	return []error{syscall.EADDRINUSE}
}

// firstEphemeral is the first of the ports that are given to those who ask for
// any (RFC 6335: 49152 to 65535; Linux has more of them).
const firstEphemeral = 32768

// reserveTries is how many free ports are tried that another process may have.
const reserveTries = 64

// ports has the ports of a device that are in use. A port has one owner, or any
// number that agree to share it. Where several processes share the address,
// each of its ports is reserved, as a service ID, with the owner of the address
// (transport.Leased).
type ports struct {
	random func() uint32
	shared reserver
	part   part // where it is shared

	// reserving is held by a call that takes a port until that is reserved:
	// no other call may share it before.
	reserving sync.Mutex

	mu   sync.Mutex
	used map[portKey]portUse
}

// reserver keeps service IDs from other processes. ReleaseService does not
// wait.
type reserver interface {
	ReserveService(id, mask uint64) error
	ReleaseService(id, mask uint64)
}

type portKey struct {
	space PortSpace
	port  uint16
}

type portUse struct {
	owners int
	shared bool // all owners said so
	source bool // of takeSource: it is not reserved
}

// part says which of the equal parts of an address a device has.
type part struct{ slot, slots int }

// newPorts makes ports without users. shared reserves them; it is nil where the
// device has the address alone, and else has a part of it.
func newPorts(random func() uint32, shared reserver, of part) *ports {
	return &ports{random: random, shared: shared, part: of, used: map[portKey]portUse{}}
}

// take takes a port: 0 stands for any that is free. With share the port may be
// one that others have taken with share, and others may do so.
func (p *ports) take(space PortSpace, port uint16, share bool) (uint16, error) {
	if port != 0 {
		return port, p.takeThis(portKey{space, port}, share)
	}
	p.reserving.Lock()
	defer p.reserving.Unlock()
	for try := 1; ; try++ {
		k, err := p.takeAny(space, share)
		if err != nil {
			return 0, err
		}
		if err = p.reserve(k); err == nil {
			return k.port, nil
		}
		if try == reserveTries {
			return 0, &PortError{Space: space, Owner: err}
		}
	}
}

// takeSource takes a port without a listener: one to dial from. 0
// stands for any that is free. Of the ephemeral ports a device has those for
// itself whose low bits are its slot, as far as dials are concerned. None of
// those is reserved, which would take a question to the owner for each dial. It
// does no harm that another process listens on such a port.
func (p *ports) takeSource(space PortSpace, port uint16) (uint16, error) {
	if port == 0 && p.shared != nil {
		if k, ok := p.takeOwn(space); ok {
			return k.port, nil
		}
	}
	return p.take(space, port, false)
}

// takeOwn takes a free port of those that belong to the lease.
func (p *ports) takeOwn(space PortSpace) (portKey, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slots := uint32(p.part.slots)
	n := (1<<16 - firstEphemeral) / slots
	first := p.random() % n
	for i := range n {
		k := portKey{space, uint16(firstEphemeral + (first+i)%n*slots + uint32(p.part.slot))}
		if p.used[k].owners == 0 {
			p.used[k] = portUse{owners: 1, source: true}
			return k, true
		}
	}
	return portKey{}, false
}

func (p *ports) takeThis(k portKey, share bool) error {
	p.reserving.Lock()
	defer p.reserving.Unlock()
	p.mu.Lock()
	use := p.used[k]
	if use.owners > 0 && !(use.shared && share) {
		p.mu.Unlock()
		return &PortError{Space: k.space, Port: k.port}
	}
	p.add(k, share)
	p.mu.Unlock()
	if use.owners > 0 {
		return nil // it is reserved
	}
	if err := p.reserve(k); err != nil {
		return &PortError{Space: k.space, Port: k.port, Owner: err}
	}
	return nil
}

// reserve keeps a port that was taken from other processes, or gives it back.
func (p *ports) reserve(k portKey) error {
	if p.shared == nil {
		return nil
	}
	err := p.shared.ReserveService(k.service(), allBits)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(k)
	}
	return err
}

const allBits = ^uint64(0)

func (k portKey) service() uint64 { return uint64(k.space.Service(k.port)) }

// reserveControl keeps the service of control connections to a port that was
// taken from other processes, and releaseControl gives it back.
func (p *ports) reserveControl(service mad.ServiceID) error {
	if p.shared == nil {
		return nil
	}
	return p.shared.ReserveService(uint64(service), allBits)
}

func (p *ports) releaseControl(service mad.ServiceID) {
	if p.shared != nil {
		p.shared.ReleaseService(uint64(service), allBits)
	}
}

// takeAny takes a free port. It begins anywhere, so that a port is not used
// again soon and cannot be guessed.
func (p *ports) takeAny(space PortSpace, share bool) (portKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const n = 1<<16 - firstEphemeral
	first := p.random() % n
	for i := range uint32(n) {
		k := portKey{space, uint16(firstEphemeral + (first+i)%n)}
		if p.used[k].owners == 0 {
			p.add(k, share)
			return k, nil
		}
	}
	return portKey{}, &PortError{Space: space}
}

func (p *ports) add(k portKey, share bool) {
	use := p.used[k]
	use.owners++
	use.shared = share
	p.used[k] = use
}

// drop is the opposite of add. It reports whether the port is free again.
func (p *ports) drop(k portKey) (last bool) {
	use := p.used[k]
	if use.owners--; use.owners > 0 {
		p.used[k] = use
		return false
	}
	delete(p.used, k)
	return true
}

// give gives back a port.
func (p *ports) give(space PortSpace, port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := portKey{space, port}
	reserved := p.shared != nil && !p.used[k].source
	if p.drop(k) && reserved {
		// Locked: a call that takes the port next reserves it after
		// that.
		p.shared.ReleaseService(k.service(), allBits)
	}
}
