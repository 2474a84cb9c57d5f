package cm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/verbs"
)

// ID is a communication identifier: a listener, a connection, or one that is
// being made, as rdma_cm_id of librdmacm. EventChannel tells what happens to
// it. Its methods may be called from any goroutine.
type ID struct {
	userData any
	out      outbox

	mu        sync.Mutex // held by each call; guards what follows
	state     idState
	at        binding // devices and port
	terms     terms   // of the connection
	groups    groups  // joined by JoinMulticast
	peer      netip.AddrPort
	backlog   int // of Listen
	listening []*idListener
	id        agent.ID
	qp        *verbs.QP // made by CreateQP
	patience  time.Duration
	told      bool               // of the peer's disconnect
	cancel    context.CancelFunc // of the handshake of a secured connection
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
	idClosed
)

var idStates = [...]string{"idle", "bound", "address resolved", "route resolved", "listening", "connecting",
	"reply received", "request received", "accepted", "connected", "disconnecting", "over", "closed"}

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

// want returns nil if s is one of those states, or else why the call op does
// not fit.
func (s idState) want(op string, states ...idState) error {
	if s == idClosed {
		return fmt.Errorf("cm: %s: the ID is closed: %w", op, ErrClosed)
	}
	if slices.Contains(states, s) {
		return nil
	}
	e := &StateError{Op: op, State: s.String()}
	for i, want := range states {
		if i > 0 {
			e.Want += " or "
		}
		e.Want += want.String()
	}
	return e
}

// CreateID makes an ID: rdma_create_id. userData is the program's own. The
// error wraps ErrClosed, or says that there is no such port space.
func (ch *EventChannel) CreateID(space PortSpace, userData any) (*ID, error) {
	if !validSpace(space) {
		return nil, fmt.Errorf("cm: there is no port space 0x%x; use TCP, UDP, IPoIB or IB", uint16(space))
	}
	id := &ID{userData: userData, at: binding{space: space}, terms: terms{typ: verbs.RC}}
	id.out.ch = ch
	if datagrams(space) {
		id.terms.typ = verbs.UD
	}
	id.terms.cfg = DialConfig{Space: space}
	return id, ch.enter(id)
}

// UserData returns what CreateID was given; nil for the ID of a request.
func (id *ID) UserData() any { return id.userData }

// Space returns the port space.
func (id *ID) Space() PortSpace { return id.at.space }

// RemoteECE returns what the peer says of itself (rdma_get_remote_ece).
func (id *ID) RemoteECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.terms.ece
}

// Device returns the device, nil before the ID has one.
func (id *ID) Device() *verbs.Device {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.at.m == nil {
		return nil
	}
	return id.at.m.dev
}

// LocalAddr returns the address of this side: rdma_get_local_addr.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.at.local
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
	if err := id.state.want("BindAddr", idIdle); err != nil {
		return err
	}
	if err := id.at.to(id.out.channel(), addr); err != nil {
		return fmt.Errorf("cm: bind to %v: %w", addr, err)
	}
	id.state = idBound
	return nil
}

// ResolveAddr finds the device that leads to a peer, and binds the ID to it:
// rdma_resolve_addr. src may be the zero value, or the address to send from.
// EventAddrResolved or EventAddrError follows. timeout is there for those who
// look for it: the routes answer at once, and neighbours are the system's.
func (id *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("ResolveAddr", idIdle, idBound); err != nil {
		return err
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if err := id.at.towards(id.out.channel(), src, dst); err != nil {
		id.tell(failure(EventAddrError, fmt.Errorf("cm: resolve %v: %w", dst, err)))
		return nil
	}
	id.peer, id.state = dst, idAddrResolved
	id.tell(Event{Type: EventAddrResolved})
	return nil
}

// ResolveRoute is the next step: rdma_resolve_route. EventRouteResolved
// follows. Routes are the system's, so there is nothing to be done.
func (id *ID) ResolveRoute(timeout time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.state.want("ResolveRoute", idAddrResolved); err != nil {
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
	case id.state == idClosed || id.at.m == nil:
		return nil, fmt.Errorf("cm: CreateQP: the ID has no device yet; bind it or resolve an address first")
	case pd.Device() != id.at.m.dev:
		return nil, fmt.Errorf("cm: CreateQP: the protection domain: %w", verbs.ErrOtherDevice)
	case id.qp != nil:
		return nil, fmt.Errorf("cm: CreateQP: the ID has queue pair %v already", id.qp.QPN())
	}
	c.Type = id.terms.typ
	q, err := pd.CreateQP(c)
	if err != nil {
		return nil, err
	}
	if err = q.Init(); err == nil && id.terms.typ == verbs.UD {
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
	if id.state == idClosed {
		return nil
	}
	id.state = idClosed
	id.out.channel().leave(id)
	fail(id.qp)
	id.groups.leaveAll(id.qp)
	for _, l := range id.listening {
		l.close()
	}
	if id.cancel != nil {
		id.cancel()
	}
	if id.at.m != nil {
		id.at.m.lock()
		id.at.m.release(id.id)
		id.at.m.unlock()
	}
	id.terms.letGo()
	if id.qp != nil {
		id.qp.Close()
	}
	id.at.release()
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
