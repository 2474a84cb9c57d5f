//go:build !portable

package shm

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/transport"
)

// device is what the links of one address share: the sockets by which peers
// find it, and what is known of them.
type device struct {
	local     netip.AddrPort // without zone
	scope     uint32
	namespace uint64
	links     []*Link
	part      transport.Lease // of the port, whose queue pairs the links have
	leased    bool            // the others are of other processes
	dirs      []*directory
	listeners []*listener
	uid       int             // whose peers are accepted
	trace     func(why error) // of tests
	accepting chan struct{}   // a token for each connection that is being agreed upon
	wg        sync.WaitGroup

	// generation changes when peers are forgotten that links may know.
	generation atomic.Uint32

	mu      sync.Mutex // guards what follows; nothing waits while it is held
	peers   map[netip.Addr]*peer
	talks   map[*net.UnixConn]struct{} // agreements under way
	conns   int                        // connections whose memory is mapped
	closing bool
	open    int // links
}

// maxConns is how many connections a device has. Recv looks at each.
const maxConns = 64

// maxTalks is how many agreements may be under way.
const maxTalks = 16

// socketPrefix begins the name of every socket.
const socketPrefix = "link-"

// name is that of the socket of a device that has the whole port of addr.
func (d *device) name(addr netip.Addr) string {
	return fmt.Sprintf("%s%d-%s-%d-%d", socketPrefix, d.namespace, addr, d.scope, d.local.Port())
}

// nameFor is that of the socket of a device that has a part of the port of
// addr, with the queue pairs whose numbers are qpn modulo maxSlots. A peer that
// looks for it need not know how many slots the port has.
func (d *device) nameFor(addr netip.Addr, qpn int) string {
	return fmt.Sprintf("%s-q%d", d.name(addr), qpn%maxSlots)
}

// names are those of the socket of this device.
func (d *device) names() (list []string) {
	if !d.leased {
		return []string{d.name(d.local.Addr())}
	}
	for qpn := range maxSlots {
		if d.has(qpn) {
			list = append(list, d.nameFor(d.local.Addr(), qpn))
		}
	}
	return list
}

// has reports whether a queue pair number is of this device.
func (d *device) has(qpn int) bool {
	slot := qpn&(d.part.Slots-1) - d.part.Slot
	return slot >= 0 && slot < len(d.links)
}

// slot is that of one of the links.
func (d *device) slot(l *Link) int { return d.part.Slot + l.index }

// Wrap returns a link for each of those given, which are all links of a device:
// one that shares memory with peers of this host. Where that is not possible it
// returns them as they are. It takes them over.
func Wrap(links ...transport.Link) []transport.Link {
	d, err := newDevice(links, directories(), nil)
	if err != nil {
		return links
	}
	wrapped := make([]transport.Link, len(links))
	for i, l := range d.links {
		wrapped[i] = l
	}
	return wrapped
}

// newDevice makes a device, if one of the directories can be used. A test may
// change it before any peer finds it.
func newDevice(links []transport.Link, dirs []string, change func(*device)) (*device, error) {
	first, ok := links[0].(Inner)
	if !ok || first.Namespace() == 0 {
		return nil, fmt.Errorf("shared memory: the link of %v does not tell its network namespace", links[0].Addr())
	}
	d := &device{
		local: netip.AddrPortFrom(first.Addr().Unmap().WithZone(""), first.Capabilities().Port),
		scope: first.Scope(), namespace: first.Namespace(), uid: os.Geteuid(),
		accepting: make(chan struct{}, maxTalks),
		peers:     map[netip.Addr]*peer{}, talks: map[*net.UnixConn]struct{}{}, open: len(links),
		part: transport.Lease{Slots: len(links)},
	}
	if part, ok := transport.LeaseOf(first); ok {
		d.part, d.leased = part, true
	}
	if !validSlots(d.part.Slot, d.part.Slots) {
		return nil, fmt.Errorf("shared memory: slot %d of %d", d.part.Slot, d.part.Slots)
	}
	for i, l := range links {
		w := &Link{Wrapper: transport.Wrapper{Link: l}, dev: d, index: i}
		w.conns.Store(&[]*conn{})
		events, err := newEvents(w.bellShut)
		if err == nil {
			w.events = events
			d.links = append(d.links, w)
			err = l.(Inner).WaitAlso(events.f, events.drain)
		}
		if err != nil {
			d.release()
			return nil, err
		}
	}
	if change != nil {
		change(d)
	}
	if err := d.listen(dirs); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

// listen makes the sockets, one in each directory that can be used.
func (d *device) listen(dirs []string) (err error) {
	for _, path := range dirs {
		dir, e := openDirectory(path)
		if e != nil {
			err = e
			continue
		}
		l, e := dir.listen(d.names()...)
		if e != nil {
			dir.close()
			err = e
			continue
		}
		d.dirs, d.listeners = append(d.dirs, dir), append(d.listeners, l)
	}
	if len(d.listeners) == 0 {
		return err
	}
	for i, l := range d.listeners {
		d.wg.Go(d.dirs[i].sweep)
		d.wg.Go(func() { d.accept(l) })
	}
	return nil
}

// release closes what the device has, when its goroutines have ended.
func (d *device) release() {
	for _, dir := range d.dirs {
		dir.close()
	}
	for _, l := range d.links {
		l.events.f.Close()
	}
}

// beginClose ends what peers could find, before the UDP port is free for
// others.
func (d *device) beginClose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return
	}
	d.closing = true
	for _, l := range d.listeners {
		l.remove()
	}
	for c := range d.talks {
		c.Close()
	}
}

// lost ends all that peers have of this device, whose links have been closed
// below it: the owner of the port has ended, or has taken it back. What comes
// next for its queue pairs may be for another process.
func (d *device) lost() {
	d.beginClose()
	for _, l := range d.links {
		for _, c := range *l.conns.Load() {
			c.hangUp()
		}
	}
}

// endClose is called when a link is closed. The last one waits for the
// goroutines.
func (d *device) endClose() {
	d.mu.Lock()
	d.open--
	last := d.open == 0
	d.mu.Unlock()
	if last {
		d.wg.Wait()
		d.release()
	}
}

// note tells a test why something did not work.
func (d *device) note(err error) {
	if d.trace != nil {
		d.trace(err)
	}
}

// begin records an agreement that is under way. It reports false if the device
// is being closed.
func (d *device) begin(c *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		c.Close()
		return false
	}
	d.talks[c] = struct{}{}
	return true
}

func (d *device) end(c *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.talks, c)
}

// add makes a connection that was agreed upon work. It reports false if there
// may not be another one, or if there is a better one; then it takes nothing
// over.
func (d *device) add(c *conn, slots int) bool {
	p, l := c.peer, c.link
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing || d.conns >= maxConns || d.peers[p.addr] != p {
		return false
	}
	old := p.connOf(l.index, c.peerSlot, slots)
	live := old != nil && !old.dead.Load() && old.pid == c.pid // else another process has the slot now
	if live && c.dialed || (live || p.isAsking(l, c.peerSlot, slots)) && !c.dialed && p.prefersOwn(l, c.peerSlot) {
		return false
	}
	if l.events.add(c.bell) != nil {
		return false
	}
	p.set(l.index, c, slots)
	list := append(slices.Clone(*l.conns.Load()), c)
	l.conns.Store(&list)
	d.conns++
	if old != nil {
		old.hangUp()
	}
	d.wg.Go(c.watch)
	return true
}

// ended is called when the memory of a connection is not mapped any more.
func (d *device) ended() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns--
}
