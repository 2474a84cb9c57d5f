//go:build !portable

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/internal/procfs"
	"golang.org/x/sys/unix"
)

// ask has an agreement with a peer begin, unless one was tried lately. It does
// not wait.
func (d *device) ask(p *peer, link, qpn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.closing || d.conns >= maxConns || p.asked != nil || d.peers[p.addr] != p || p.addr == d.local.Addr() && d.has(qpn) {
		return
	}
	a := p.attempt(qpn)
	if now.Before(a.next) {
		return
	}
	a.wait = min(max(2*a.wait, firstWait), lastWait)
	a.next = now.Add(a.wait)
	p.asked = &question{link, qpn}
	d.wg.Go(func() {
		if err := d.dial(p, d.links[link], qpn); err != nil {
			d.note(err)
		}
		d.mu.Lock()
		p.asked = nil
		d.mu.Unlock()
	})
}

// byteOrder is that of this machine: two processes of one host may differ.
var byteOrder = binary.NativeEndian.String()

// dial finds the socket of a peer and agrees with it upon memory.
func (d *device) dial(p *peer, l *Link, qpn int) error {
	var socket *net.UnixConn
	err := errors.New("no directory")
	for _, dir := range d.dirs {
		if socket, err = dir.dial(d.name(p.addr)); err != nil {
			socket, err = dir.dial(d.nameFor(p.addr, qpn))
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if !d.begin(socket) {
		return net.ErrClosed
	}
	defer d.end(socket)
	if err := d.propose(p, l, qpn, socket); err != nil {
		socket.Close()
		return err
	}
	return nil
}

// propose sends memory and takes the answer.
func (d *device) propose(p *peer, l *Link, qpn int, socket *net.UnixConn) error {
	if err := sameUser(socket, d.uid); err != nil {
		return err
	}
	at := netip.AddrPortFrom(p.addr, d.local.Port())
	if err := d.bound(at); err != nil {
		return err
	}
	memory, err := newMemory()
	if err != nil {
		return err
	}
	defer unix.Close(memory)
	bell, theirs, err := newBells()
	if err != nil {
		return err
	}
	h := hello{
		Version: version, Order: byteOrder, Namespace: d.namespace, Scope: d.scope,
		From: d.local, Slot: d.slot(l), Slots: d.part.Slots, To: at, ToQPN: qpn, Memory: memoryLen,
	}
	var a answer
	err = sendMessage(socket, &h, memory, theirs)
	unix.Close(theirs)
	if err == nil {
		_, err = receiveMessage(socket, &a, 0)
	}
	switch {
	case err != nil:
	case a.Refused != "":
		err = errors.New("the peer has refused: " + a.Refused)
	case !validSlots(a.Slot, a.Slots) || a.Slot != qpn&(a.Slots-1):
		err = errBroken("the peer's answer is of another queue pair")
	case p.addr == d.local.Addr() && !d.isNeighbour(a.Slot, a.Slots):
		err = fmt.Errorf("slot %d of %d is not that of another process", a.Slot, a.Slots)
	default:
		err = l.connect(p, a.Slot, a.Slots, socket, memory, true, bell)
	}
	if err != nil {
		unix.Close(bell)
	}
	return err
}

// validSlots reports whether a port may have that many slots, and slot is one
// of them.
func validSlots(slot, slots int) bool {
	return slots > 0 && slots <= maxSlots && slots&(slots-1) == 0 && slot >= 0 && slot < slots
}

// isNeighbour reports whether a slot of the own port is of another process.
func (d *device) isNeighbour(slot, slots int) bool {
	return d.leased && slots == d.part.Slots && !d.has(slot)
}

// connect maps the memory and makes the connection work. If it fails the
// descriptors stay the caller's.
func (l *Link) connect(p *peer, slot, slots int, socket *net.UnixConn, memory int, dialed bool, bell int) error {
	if err := socket.SetDeadline(time.Time{}); err != nil {
		return err
	}
	mem, err := mapMemory(memory)
	if err != nil {
		return err
	}
	c := newConn(l, p, slot, socket, mem, dialed, bell)
	if !l.dev.add(c, slots) {
		unmapMemory(mem)
		return errRefused
	}
	l.Link.Wake() // it has to wait for this one, too
	return nil
}

var errRefused = errors.New("there is another connection, or there are too many")

// accept answers peers until the listener is closed.
func (d *device) accept(l *listener) {
	for {
		socket, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(firstWait) // out of descriptors
			continue
		}
		d.accepting <- struct{}{}
		d.wg.Go(func() {
			defer func() { <-d.accepting }()
			if !d.begin(socket) {
				return
			}
			defer d.end(socket)
			if err := d.respond(socket); err != nil {
				d.note(err)
				socket.Close()
			}
		})
	}
}

// respond takes a hello and answers it.
func (d *device) respond(socket *net.UnixConn) error {
	if err := sameUser(socket, d.uid); err != nil {
		return err
	}
	var h hello
	fds, err := receiveMessage(socket, &h, 2)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	l := d.links[h.ToQPN&(len(d.links)-1)]
	if err = d.check(&h, fds[0], fds[1]); err == nil {
		err = l.connect(d.peerAt(h.From.Addr()), h.Slot, h.Slots, socket, fds[0], false, fds[1])
	}
	if err != nil {
		unix.Close(fds[1])
		_ = sendMessage(socket, &answer{Refused: err.Error()}) // it learns it from the end, else
		return err
	}
	return d.confirm(socket, &answer{Slot: d.slot(l), Slots: d.part.Slots})
}

// confirm answers that the connection works. If that fails the connection
// ends, because its socket does.
func (d *device) confirm(socket *net.UnixConn, a *answer) error {
	err := sendMessage(socket, a)
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	return err
}

// check says why a hello is not to be accepted.
func (d *device) check(h *hello, memory, bell int) error {
	from := h.From.Addr()
	switch {
	case h.Version != version || h.Order != byteOrder || h.Memory != memoryLen:
		return fmt.Errorf("version %d, byte order %s, %d bytes of memory; here it is %d, %s, %d",
			h.Version, h.Order, h.Memory, version, byteOrder, memoryLen)
	case h.Namespace != d.namespace:
		return errors.New("the peer is of another network namespace")
	case h.To != d.local || h.Scope != d.scope:
		return fmt.Errorf("this is %v, not %v", d.local, h.To)
	case !d.has(h.ToQPN):
		return fmt.Errorf("queue pair %#x is of another process", h.ToQPN)
	case !validSlots(h.Slot, h.Slots):
		return fmt.Errorf("slot %d of %d", h.Slot, h.Slots)
	case h.From.Port() != d.local.Port() || from.Is4() != d.local.Addr().Is4() || from != from.Unmap().WithZone("") ||
		from == d.local.Addr() && !d.isNeighbour(h.Slot, h.Slots):
		return fmt.Errorf("slot %d of %v is no peer of %v", h.Slot, h.From, d.local)
	}
	if err := d.bound(h.From); err != nil {
		return err
	}
	if err := checkMemory(memory); err != nil {
		return err
	}
	return checkBell(bell)
}

// bound reports whether a process of this user has the UDP port of an address:
// no process is to take the packets of another host, or of another user. The
// kernel lists its sockets in parts, and one may be missing while others come
// and go. So it is asked several times.
func (d *device) bound(at netip.AddrPort) error {
	if at == d.local {
		return nil // this device has it, too
	}
	const times = 5
	for range times {
		sockets, err := procfs.UDPSockets(procfs.Root())
		if err != nil {
			return err
		}
		if slices.ContainsFunc(sockets, func(s procfs.Socket) bool { return s.Local == at && s.UID == d.uid }) {
			return nil
		}
	}
	return fmt.Errorf("no process of this user has %v", at)
}
