//go:build !portable

package lease

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// managementQPN is the queue pair of connection managers (IBTA 3.9.4), and the
// slot of the owner.
const managementQPN = 1

// Link is a transport.Link over a leased socket.
type Link struct {
	*udp.Link
	lease *Lease
	local netip.Addr // without zone
	owner *transport.Path
	shut  atomic.Bool

	tx   *transport.TxBatch // envelopes; made with the first one
	view transport.TxBatch
	fail transport.SendError
}

var (
	_ transport.Link        = (*Link)(nil)
	_ transport.PlacingLink = (*Link)(nil)
	_ transport.Leased      = (*Link)(nil)
)

func newLink(u *udp.Link, l *Lease, local netip.Addr) *Link {
	return &Link{Link: u, lease: l, local: local, owner: transport.NewPath(local, transport.Path{Dst: local})}
}

// Lease returns the part of the port that the link's device has.
func (l *Link) Lease() (transport.Lease, bool) {
	g := &l.lease.grant
	return transport.Lease{Slot: g.Slot, Slots: g.Slots, MaxQPs: g.MaxQPs}, true
}

// TellUse has the owner learn what the device has been used for.
func (l *Link) TellUse(use func() transport.Use) {
	l.lease.mu.Lock()
	l.lease.use = use
	l.lease.mu.Unlock()
}

// ReserveService asks the owner for a service. The error is a *Refusal if
// another lease has it.
func (l *Link) ReserveService(id, mask uint64) error {
	return l.lease.request(&Message{Reserve: &Service{ID: id, Mask: mask}})
}

// ReleaseService gives a service back.
func (l *Link) ReleaseService(id, mask uint64) {
	_ = l.lease.write(&Message{Release: &Service{ID: id, Mask: mask}}) // or it goes with the lease
}

// Close closes the link. With the last one of the device the lease ends. The
// socket may be closed already, because the owner has ended.
func (l *Link) Close() error {
	if l.shut.Swap(true) {
		return transport.ErrClosed
	}
	err := l.Link.Close()
	l.lease.closed()
	if errors.Is(err, transport.ErrClosed) {
		return nil
	}
	return err
}

// Files returns the descriptors of the link, and those that the lease has for
// all links of a device, which the first one tells of.
func (l *Link) Files() []int {
	fds := l.Link.Files()
	if l.Link != l.lease.raw[0] {
		return fds
	}
	if raw, err := l.lease.conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
	}
	return append(fds, l.lease.stray.files()...)
}

// Recv is that of the socket. What the owner has relayed it unwraps.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	packets := b.Packets()
	for i := range packets {
		if IsEnvelope(packets[i].Data) {
			if unwrap(&packets[i], l.local, &l.lease.grant.Token) && destQPN(packets[i].Data) != managementQPN {
				l.lease.stray.in.Add(1)
			}
		}
	}
	return n, err
}

// destQPN reads the destination of a packet.
func destQPN(data []byte) uint32 { return binary.BigEndian.Uint32(data[4:]) & uint32(rocev2.QPNMask) }

// isManagement reports whether a packet is from a queue pair 1 to another one:
// those pass the owner.
func isManagement(data []byte) bool {
	return destQPN(data) == managementQPN &&
		len(data) >= rocev2.BTHLen+rocev2.DETHLen && rocev2.Opcode(data[0]).Service() == rocev2.ServiceUD &&
		binary.BigEndian.Uint32(data[16:])&uint32(rocev2.QPNMask) == managementQPN
}

// Send passes on the packets of b, those of connection managers to the owner.
func (l *Link) Send(b *transport.TxBatch) error {
	n := b.Len()
	for i := range n {
		if data, _ := b.Packet(i); isManagement(data) {
			return l.sendParts(b, i)
		}
	}
	return l.Link.Send(b)
}

// sendParts is Send where packet first is the first one for the owner.
func (l *Link) sendParts(b *transport.TxBatch, first int) error {
	if l.tx == nil {
		l.tx = transport.NewTxBatch(64 << 10)
	}
	l.fail = transport.SendError{}
	done, n := 0, b.Len()
	for i := first; i < n; {
		data, _ := b.Packet(i)
		if !isManagement(data) {
			i++
			continue
		}
		if err := l.sendView(b, done, i); err != nil {
			return err
		}
		start := i
		l.tx.Reset()
		for ; i < n; i++ {
			if data, path := b.Packet(i); !isManagement(data) || !l.wrap(b, i, data, path) {
				break
			}
		}
		if err := l.fail.Take(l.Link.Send(l.tx), start); err != nil {
			return err
		}
		done = i
	}
	if err := l.sendView(b, done, n); err != nil {
		return err
	}
	return l.fail.Result()
}

// wrap adds packet i of b for the owner. It reports false if there is no room.
func (l *Link) wrap(b *transport.TxBatch, i int, data []byte, path *transport.Path) bool {
	if r := b.Run(i, false); b.Damaged(&r) || len(data) > MaxInner {
		return true // nothing would take it
	}
	room := l.tx.Room()
	if room == nil {
		return false
	}
	e := Envelope{To: managementQPN, Token: l.lease.grant.Token, Addr: path.Dst,
		TrafficClass: path.TrafficClass, HopLimit: path.HopLimit, FlowLabel: path.FlowLabel}
	l.tx.Commit(e.Put(room, data), l.owner)
	return true
}

// sendView sends the packets from first to last-1 of b.
func (l *Link) sendView(b *transport.TxBatch, first, last int) error {
	if first >= last {
		return nil
	}
	b.View(&l.view, first, last)
	err := l.fail.Take(l.Link.Send(&l.view), first)
	l.view = transport.TxBatch{}
	return err
}
