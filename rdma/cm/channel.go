package cm

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/verbs"
)

// EventChannel tells of what happens to IDs, in the calls and events of
// librdmacm. Programs that need no more than connections are shorter with
// Listen, Accept and Dial.
//
//	ch := cm.NewEventChannel()
//	id, err := ch.CreateID(cm.TCP, nil)
//	err = id.ResolveAddr(netip.AddrPort{}, peer)
//	e, err := ch.Get(ctx) // EventAddrResolved
//
// Nothing happens to an ID beyond what its state machine does until its events
// are taken, as with librdmacm: so take them. Events need no acknowledgement.
// Its methods may be called from any goroutine.
type EventChannel struct {
	devices func() []*verbs.Device // nil: the process's own
	notify  func()                 // of WithNotify

	mu     sync.Mutex
	events list.List[pending]
	closed bool
	ready  chan struct{} // a token: there may be events
	ended  chan struct{} // closed by Close
	ids    map[*ID]struct{}
}

// ChannelOption adjusts an EventChannel.
type ChannelOption func(*EventChannel)

// WithDevices has the IDs use these devices and no others. Without it a device
// is opened on the address that an ID is bound to, or that leads to the peer;
// those of package rdma are shared. The program keeps the devices open.
func WithDevices(devs ...*verbs.Device) ChannelOption {
	if len(devs) == 0 {
		return func(*EventChannel) {}
	}
	return WithDevicesOf(func() []*verbs.Device { return devs })
}

// WithDevicesOf is WithDevices for a set that changes: f returns the devices of
// the moment whenever an ID looks for one.
func WithDevicesOf(f func() []*verbs.Device) ChannelOption {
	return func(ch *EventChannel) { ch.devices = f }
}

// WithNotify has f called when there may be a new event, for programs that take
// events by Poll. f is called with locks held: it must neither block nor call
// this package.
func WithNotify(f func()) ChannelOption {
	return func(ch *EventChannel) { ch.notify = f }
}

// NewEventChannel makes an event channel.
func NewEventChannel(opts ...ChannelOption) *EventChannel {
	ch := &EventChannel{ready: make(chan struct{}, 1), ended: make(chan struct{}), ids: map[*ID]struct{}{}}
	for _, f := range opts {
		f(ch)
	}
	return ch
}

// pending is an event that the program has not taken: one that is ready, or one
// of the agent, of which the ID makes one when it is taken.
type pending struct {
	id    *ID
	event Event
	raw   *agent.Event
	place list.Element[pending]
}

func (ch *EventChannel) push(p *pending) {
	ch.mu.Lock()
	if !ch.closed {
		p.place.Value = p
		ch.events.PushBack(&p.place)
	}
	ch.mu.Unlock()
	ch.signal()
}

func (ch *EventChannel) signal() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
	if ch.notify != nil {
		ch.notify()
	}
}

// take takes the next event, nil if there is none.
func (ch *EventChannel) take() (*pending, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil, fmt.Errorf("cm: event channel: %w", ErrClosed)
	}
	if ch.events.Len() == 0 {
		return nil, nil
	}
	p := ch.events.PopFront()
	if ch.events.Len() > 0 {
		ch.signal() // another Get may wait
	}
	return p, nil
}

// Get waits for the next event: rdma_get_cm_event. The error wraps ErrClosed,
// or that of ctx.
func (ch *EventChannel) Get(ctx context.Context) (*Event, error) {
	for {
		p, err := ch.take()
		if err != nil {
			return nil, err
		}
		if p != nil {
			if e := p.id.make(p); e != nil {
				if e.Type == EventConnectRequest {
					e.ID.Take()
				}
				return e, nil
			}
			continue
		}
		select {
		case <-ch.ready:
		case <-ch.ended:
		case <-ctx.Done():
			return nil, fmt.Errorf("cm: wait for an event: %w", context.Cause(ctx))
		}
	}
}

// Poll returns the next event, nil if there is none. It is for programs that
// pass events on: a request that it returns counts as not taken until ID.Take.
// The error wraps ErrClosed.
func (ch *EventChannel) Poll() (*Event, error) {
	for {
		p, err := ch.take()
		if p == nil || err != nil {
			return nil, err
		}
		if e := p.id.make(p); e != nil {
			return e, nil
		}
	}
}

// Close ends the channel and its IDs: see ID.Close.
func (ch *EventChannel) Close() error {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return nil
	}
	ch.closed = true
	close(ch.ended)
	var ids []*ID
	for id := range ch.ids {
		ids = append(ids, id)
	}
	ch.mu.Unlock()
	for _, id := range ids {
		id.Close()
	}
	return nil
}

// enter adds an ID.
func (ch *EventChannel) enter(id *ID) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return fmt.Errorf("cm: event channel: %w", ErrClosed)
	}
	ch.ids[id] = struct{}{}
	return nil
}

// leave takes an ID out, and its events.
func (ch *EventChannel) leave(id *ID) { ch.extract(id) }

// extract is leave that returns the events.
func (ch *EventChannel) extract(id *ID) (taken []*pending) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.ids, id)
	for p := ch.events.Front(); p != nil; {
		next := p.place.Next()
		if p.id == id {
			ch.events.Remove(&p.place)
			taken = append(taken, p)
		}
		p = next
	}
	return taken
}

// held is a device that IDs use: a listener, and those that were made for its
// requests.
type held struct {
	dev   *verbs.Device
	users *atomic.Int32
	last  func() // called when it is no longer in use
}

func hold(dev *verbs.Device, last func()) held {
	h := held{dev: dev, users: new(atomic.Int32), last: last}
	h.users.Store(1)
	return h
}

// share returns h for one more user.
func (h held) share() held {
	h.users.Add(1)
	return h
}

func (h held) release() {
	if h.users.Add(-1) == 0 && h.last != nil {
		h.last()
	}
}

// local returns the device on an address; of the unspecified one, all that
// there are, if any (covers).
func (ch *EventChannel) local(addr netip.Addr, afOnly bool) ([]held, error) {
	any := !addr.IsValid() || addr.IsUnspecified()
	if ch.devices == nil {
		if any {
			return nil, fmt.Errorf("which device is meant? name an address of this host, or give the channel devices (WithDevices)")
		}
		ref, err := devices.Local(addr)
		if err != nil {
			return nil, err
		}
		return []held{hold(ref.Device(), ref.Release)}, nil
	}
	var found []held
	for _, d := range ch.devices() {
		if any && covers(addr, afOnly, d) || d.Addr().WithZone("") == addr.Unmap().WithZone("") {
			found = append(found, hold(d, nil))
		}
	}
	if found == nil && !any {
		return nil, fmt.Errorf("none of the channel's devices is on %v", addr)
	}
	return found, nil
}

// covers reports whether an unspecified address means a device: those of its IP
// version. That of IPv6 means IPv4, too, unless afOnly.
func covers(addr netip.Addr, afOnly bool, d *verbs.Device) bool {
	return !addr.IsValid() || d.Addr().Is4() == addr.Is4() || addr.Is6() && !afOnly
}

// DevicesChanged says that the set of WithDevicesOf has changed: IDs that are
// bound to the unspecified address use the devices that have come, and listen
// there. Where the port is in use they do not.
func (ch *EventChannel) DevicesChanged() {
	if ch.devices == nil {
		return
	}
	devs := ch.devices()
	ch.mu.Lock()
	ids := slices.Collect(maps.Keys(ch.ids))
	ch.mu.Unlock()
	for _, id := range ids {
		for _, d := range devs {
			ch.spread(id, d)
		}
	}
}

// spread has an ID that is bound to the unspecified address use one more
// device.
func (ch *EventChannel) spread(id *ID, d *verbs.Device) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != idBound && id.state != idListening {
		return
	}
	id.at.add(d, func(h held) error {
		if id.state == idBound {
			return nil
		}
		return h.listenFor(id, id.backlog)
	})
}

// towards returns a device that leads to a peer.
func (ch *EventChannel) towards(peer netip.Addr) (held, error) {
	if ch.devices == nil {
		ref, err := devices.Towards(peer)
		if err != nil {
			return held{}, err
		}
		return hold(ref.Device(), ref.Release), nil
	}
	for _, d := range ch.devices() {
		if d.Addr().Unmap().Is4() == peer.Unmap().Is4() {
			return hold(d, nil), nil
		}
	}
	return held{}, fmt.Errorf("none of the channel's devices has the IP version of %v", peer)
}
