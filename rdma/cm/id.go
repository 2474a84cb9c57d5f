package cm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// ID is a communication identifier: a listener, a connection, or one that is
// being made, as rdma_cm_id of librdmacm. EventChannel tells what happens to
// it. Its methods may be called from any goroutine.
type ID struct {
	space    PortSpace
	userData any

	out outbox

	mu        sync.Mutex // held by each call; guards what follows
	typ       verbs.QPType
	state     idState
	local     netip.AddrPort
	peer      netip.AddrPort
	held      []held // devices; one, but for a listener on all
	m         *manager
	port      bool       // local.Port is this ID's
	wild      bool       // it is bound to an unspecified address,
	family    netip.Addr // this one
	backlog   int        // of Listen
	listening []*idListener
	id        agent.ID
	qp        *verbs.QP // made by CreateQP
	patience  time.Duration
	cfg       DialConfig
	req       mad.REQ // that was sent
	params    Params  // that were asked for
	ece       ECE     // of the peer
	localECE  ECE
	wiring    *wiring
	groups    []netip.Addr
	reuse     bool
	afOnly    bool
	told      bool // of the peer's disconnect
	closed    bool
}

// idState is how far an ID has come.
type idState uint8

const (
	idIdle idState = iota
	idBound
	idAddrResolved
	idRouteResolved
	idListening
	idConnecting // a REQ or a SIDR_REQ was sent
	idReplied    // the peer has accepted: Establish
	idRequested  // made for a request: Accept
	idAccepted   // waits for the peer
	idConnected
	idDisconnecting
	idOver
)

var idStates = [...]string{"idle", "bound", "address resolved", "route resolved", "listening", "connecting",
	"reply received", "request received", "accepted", "connected", "disconnecting", "over"}

func (s idState) String() string { return idStates[s] }

// StateError says that a call does not fit what has happened to an ID.
type StateError struct {
	Op    string // the call
	State string // how far the ID has come
	Want  string // what must come first
}

// Error says what was called too early, or too late.
func (e *StateError) Error() string {
	return fmt.Sprintf("cm: %s: the ID is %s; it must be %s", e.Op, e.State, e.Want)
}

// want checks the state; the caller holds mu.
func (id *ID) want(op string, states ...idState) error {
	if id.closed {
		return fmt.Errorf("cm: %s: the ID is closed: %w", op, ErrClosed)
	}
	if slices.Contains(states, id.state) {
		return nil
	}
	e := &StateError{Op: op, State: id.state.String()}
	for i, s := range states {
		if i > 0 {
			e.Want += " or "
		}
		e.Want += s.String()
	}
	return e
}

// CreateID makes an ID: rdma_create_id. userData is the program's own. The
// error wraps ErrClosed, or says that there is no such port space.
func (ch *EventChannel) CreateID(space PortSpace, userData any) (*ID, error) {
	if !validSpace(space) {
		return nil, fmt.Errorf("cm: there is no port space 0x%x; use TCP, UDP, IPoIB or IB", uint16(space))
	}
	id := &ID{space: space, userData: userData, typ: verbs.RC}
	id.out.ch = ch
	if datagrams(space) {
		id.typ = verbs.UD
	}
	id.cfg = DialConfig{Space: space}
	return id, ch.enter(id)
}

// UserData returns what CreateID was given; nil for the ID of a request.
func (id *ID) UserData() any { return id.userData }

// Space returns the port space.
func (id *ID) Space() PortSpace { return id.space }

// RemoteECE returns what the peer says of itself (rdma_get_remote_ece).
func (id *ID) RemoteECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ece
}

// Device returns the device, nil before the ID has one.
func (id *ID) Device() *verbs.Device {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.m == nil {
		return nil
	}
	return id.m.dev
}

// LocalAddr returns the address of this side: rdma_get_local_addr.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

// PeerAddr returns the address of the peer: rdma_get_peer_addr.
func (id *ID) PeerAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.peer
}

// SrcPort returns the port of this side, 0 if there is none:
// rdma_get_src_port, in the host's byte order.
func (id *ID) SrcPort() uint16 { return id.LocalAddr().Port() }

// DstPort returns the port of the peer: rdma_get_dst_port.
func (id *ID) DstPort() uint16 { return id.PeerAddr().Port() }

// BindAddr binds the ID to an address of this host: rdma_bind_addr. Port 0
// stands for one that is free. On the unspecified address a listener takes
// requests of all devices of the channel (WithDevices), also where there is
// none yet (EventChannel.DevicesChanged). The error wraps a *PortError, a
// *verbs.OpenError or a *StateError.
func (id *ID) BindAddr(addr netip.AddrPort) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("BindAddr", idIdle); err != nil {
		return err
	}
	if err := id.bind(addr); err != nil {
		return fmt.Errorf("cm: bind to %v: %w", addr, err)
	}
	id.state = idBound
	return nil
}

// bind gets devices and the port.
func (id *ID) bind(addr netip.AddrPort) error {
	found, err := id.out.channel().local(addr.Addr(), id.afOnly)
	if err != nil {
		return err
	}
	if err := id.use(found, addr); err != nil {
		return err
	}
	id.family = addr.Addr()
	id.wild = !id.family.IsValid() || id.family.IsUnspecified()
	return nil
}

// use takes devices, and a port that is the same on all.
func (id *ID) use(found []held, addr netip.AddrPort) (err error) {
	defer func() {
		if err != nil {
			for _, h := range found {
				h.release()
			}
		}
	}()
	port, err := takePorts(id, found, addr.Port())
	for try := 1; err != nil && addr.Port() == 0 && try < portTries && errors.Is(err, syscall.EADDRINUSE); try++ {
		port, err = takePorts(id, found, 0) // the port that is free on one device is not on another
	}
	if err != nil {
		return err
	}
	if port == 0 { // on no device is any in use
		port = uint16(firstEphemeral + rand.Uint32N(1<<16-firstEphemeral))
	}
	id.held, id.port = found, true
	local := addr.Addr()
	if len(found) == 1 {
		if id.m, err = managerOf(found[0].dev); err != nil {
			return err
		}
		local = found[0].dev.Addr()
	}
	id.local = netip.AddrPortFrom(local, port)
	return nil
}

// takePorts takes a port on all of some devices, or on none.
func takePorts(id *ID, found []held, port uint16) (uint16, error) {
	for i, h := range found {
		m, err := managerOf(h.dev)
		if err == nil {
			var got uint16
			if got, err = m.ports.take(id.space, port, id.reuse); err == nil {
				port = got
			}
		}
		if err != nil {
			for _, h := range found[:i] {
				if m := existingManager(h.dev); m != nil {
					m.ports.give(id.space, port)
				}
			}
			return 0, err
		}
	}
	return port, nil
}

// unuse gives back what use has taken.
func (id *ID) unuse() {
	for _, h := range id.held {
		if m := existingManager(h.dev); id.port && m != nil {
			m.ports.give(id.space, id.local.Port())
		}
		h.release()
	}
	id.held, id.port = nil, false
}

// ResolveAddr finds the device that leads to a peer, and binds the ID to it:
// rdma_resolve_addr. src may be the zero value, or the address to send from.
// EventAddrResolved or EventAddrError follows. timeout is there for those who
// look for it: the routes answer at once, and neighbours are the system's.
func (id *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("ResolveAddr", idIdle, idBound); err != nil {
		return err
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if err := id.resolve(src, dst); err != nil {
		id.tell(failure(EventAddrError, fmt.Errorf("cm: resolve %v: %w", dst, err)))
		return nil
	}
	id.peer, id.state = dst, idAddrResolved
	id.tell(Event{Type: EventAddrResolved})
	return nil
}

func (id *ID) resolve(src, dst netip.AddrPort) error {
	if a := dst.Addr(); !a.IsValid() || a.IsUnspecified() {
		return fmt.Errorf("%v is not the address of a host", a)
	}
	bound := src.Addr().IsValid() && !src.Addr().IsUnspecified()
	switch {
	case id.state == idBound && len(id.held) != 1:
		if err := choose(id, src.Addr(), dst.Addr()); err != nil {
			return err
		}
	case id.state == idBound:
	case bound:
		if err := id.bind(src); err != nil {
			return err
		}
	default:
		h, err := id.out.channel().towards(dst.Addr())
		if err != nil {
			return err
		}
		if err := id.use([]held{h}, netip.AddrPortFrom(h.dev.Addr(), src.Port())); err != nil {
			return err
		}
	}
	if dst.Addr().IsMulticast() {
		return nil // for JoinMulticast
	}
	err := checkPeer(id.m.dev, dst.Addr())
	if err != nil && id.state == idIdle {
		id.unuse()
		id.m, id.local = nil, netip.AddrPort{}
	}
	return err
}

// choose leaves an ID that is bound to several devices on one: that of src, or
// the first one of the peer's IP version.
func choose(id *ID, src, dst netip.Addr) error {
	i := slices.IndexFunc(id.held, func(h held) bool {
		own := h.dev.Addr().WithZone("").Unmap()
		if src.IsValid() && !src.IsUnspecified() {
			return own == src.WithZone("").Unmap()
		}
		return own.Is4() == dst.Is4()
	})
	if i < 0 {
		return errors.New("the ID is bound to several devices, and none of them leads there")
	}
	m, err := managerOf(id.held[i].dev)
	if err != nil {
		return err
	}
	kept := id.held[i]
	id.held = slices.Delete(id.held, i, i+1)
	id.unuse()
	id.m, id.held, id.port = m, []held{kept}, true
	id.local = netip.AddrPortFrom(kept.dev.Addr(), id.local.Port())
	return nil
}

// ResolveRoute is the next step: rdma_resolve_route. EventRouteResolved
// follows. Routes are the system's, so there is nothing to be done.
func (id *ID) ResolveRoute(timeout time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.want("ResolveRoute", idAddrResolved); err != nil {
		return err
	}
	id.state = idRouteResolved
	id.tell(Event{Type: EventRouteResolved})
	return nil
}

// CreateQP makes the queue pair of the ID: rdma_create_qp. It is of the ID's
// type, and in INIT, so that receives can be posted; of UD it is active, with
// the Q_Key QKey. The ID takes it through its states, and closes it.
func (id *ID) CreateQP(pd *verbs.PD, c verbs.QPConfig) (*verbs.QP, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.closed || id.m == nil:
		return nil, fmt.Errorf("cm: CreateQP: the ID has no device yet; bind it or resolve an address first")
	case pd.Device() != id.m.dev:
		return nil, fmt.Errorf("cm: CreateQP: the protection domain: %w", verbs.ErrOtherDevice)
	case id.qp != nil:
		return nil, fmt.Errorf("cm: CreateQP: the ID has queue pair %v already", id.qp.QPN())
	}
	c.Type = id.typ
	q, err := pd.CreateQP(c)
	if err != nil {
		return nil, err
	}
	if err = q.Init(); err == nil && id.typ == verbs.UD {
		err = q.Activate(QKey)
	}
	if err != nil {
		q.Close()
		return nil, err
	}
	id.qp = q
	return q, nil
}

// QP returns the queue pair that CreateQP made, nil if there is none.
func (id *ID) QP() *verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.qp
}

// DestroyQP closes the queue pair: rdma_destroy_qp. It is a member of no group
// any more.
func (id *ID) DestroyQP() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == nil {
		return nil
	}
	q := id.qp
	id.qp, id.groups = nil, nil
	return q.Close()
}

// Close ends the ID: rdma_destroy_id. It disconnects, rejects, or ends the
// listener, as the state demands, and closes the queue pair. Its events are
// dropped.
func (id *ID) Close() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return nil
	}
	id.closed = true
	id.out.channel().leave(id)
	fail(id.qp)
	for _, group := range id.groups {
		_ = id.qp.Detach(group) // DestroyQP has left them all
	}
	for _, l := range id.listening {
		l.close()
	}
	if id.m != nil {
		id.m.lock()
		id.m.release(id.id)
		id.m.unlock()
	}
	if id.qp != nil {
		id.qp.Close()
	}
	id.unuse()
	return nil
}

// MigrateID moves the events of the ID to another channel, also those that have
// come and are not taken: rdma_migrate_id.
func (id *ID) MigrateID(to *EventChannel) error { return id.out.migrate(id, to) }

// tell gives the program an event.
func (id *ID) tell(e Event) {
	e.ID = id
	id.out.deliver(&pending{id: id, event: e})
}
