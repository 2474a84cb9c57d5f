package guard

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// arenaBytes is the room for packets that are sealed: those of some runs.
const arenaBytes = 256 << 10

const udpLen = 8

// sealing is the state of Send.
type sealing struct {
	version uint64 // of the table
	peers   map[netip.Addr]*sendPeer

	batch *transport.TxBatch // of sealed packets; nil: there was none
	view  transport.TxBatch
	fail  transport.SendError
	paths map[slotPath]*transport.Path
	udp   [udpLen]byte
}

// sendPeer has the keys for packets to a peer.
type sendPeer struct {
	*contact
	secret Secret
	master *psp.MasterKeys
	by     [256]*sender // by the slot of the receiver
}

// Format keeps the keys out of what is printed.
func (p sendPeer) Format(f fmt.State, c rune) { p.secret.Format(f, c) }

// sender is one key.
type sender struct {
	head   psp.Header
	sealer *psp.Key
	count  uint64 // of packets
	quiet  *quiet
}

// slotPath is a path to one slot of a peer, so that no run has packets for two.
type slotPath struct {
	*transport.Path
	slot uint8
}

// mostPaths is how many are kept.
const mostPaths = 4096

func (s *sealing) init() {
	s.peers, s.paths = map[netip.Addr]*sendPeer{}, map[slotPath]*transport.Path{}
}

// refresh takes what has changed in the table. A secret that stays has its
// keys, and their initialization vectors, as before.
func (l *Link) refresh() {
	s, t := &l.tx, l.cfg.Table
	if t.Version() == s.version {
		return
	}
	list, version, ok := t.read()
	if !ok {
		return
	}
	s.version = version
	of := l.contacts.refresh(list, version)
	peers := make(map[netip.Addr]*sendPeer, len(list))
	for i := range list {
		p := &list[i]
		switch old := s.peers[p.Addr]; {
		case p.Send.Number == 0:
		case old != nil && old.secret == p.Send:
			peers[p.Addr] = old
		default:
			peers[p.Addr] = &sendPeer{secret: p.Send, master: p.Send.keys()}
		}
		if p := peers[p.Addr]; p != nil {
			p.contact = of[list[i].Addr]
		}
	}
	s.peers = peers
}

// sender returns what seals packets to a slot of a peer.
func (l *Link) sender(p *sendPeer, slot uint8) *sender {
	if by := p.by[slot]; by != nil {
		return by
	}
	spi := spiOf(p.secret.Number, l.cfg.Slot, slot)
	key, ok := keyOf(&p.secret, p.master, l.cfg.Serial, spi)
	if !ok {
		return nil
	}
	by := &sender{sealer: key, head: psp.Header{Next: psp.UDP, SPI: spi, IV: uint64(l.cfg.Serial) << 32}, quiet: p.of(slot)}
	p.by[slot] = by
	return by
}

// spiOf returns the SPI of a key: see the documentation of the package.
func spiOf(number uint16, sender, receiver uint8) uint32 {
	return psp.SecondMaster | uint32(number)<<16 | uint32(sender)<<8 | uint32(receiver)
}

// keyOf returns the key of an SPI for the lease of a serial number: that of a
// master key of the lease, which is derived from the secret as keys are.
func keyOf(s *Secret, m *psp.MasterKeys, serial, spi uint32) (*psp.Key, bool) {
	bytes, ok := m.Derive(psp.GCM256, serial)
	if !ok {
		return nil, false
	}
	master := [psp.MasterKeyLen]byte(bytes)
	clear(bytes)
	bytes, ok = psp.OneMaster(&master).Derive(s.Version, spi)
	clear(master[:])
	if !ok {
		return nil, false
	}
	k, err := psp.NewKey(s.Version, bytes)
	clear(bytes)
	return k, err == nil
}

// Send seals packets, and passes them on to the link inside in their order.
func (l *Link) Send(b *transport.TxBatch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.NeedsNoICRC() { // queue pairs have sealed them
		return l.Link.Send(b)
	}
	s := &l.tx
	l.refresh()
	s.fail = transport.SendError{}
	for i := 0; i < b.Len(); {
		last, err := l.sendSome(b, i)
		if err != nil {
			return err
		}
		i = last
	}
	s.view = transport.TxBatch{} // it is the caller's
	return s.fail.Result()
}

// sendSome sends packets from first on that go the same way. It returns the
// first one that it has not taken.
func (l *Link) sendSome(b *transport.TxBatch, first int) (last int, err error) {
	s := &l.tx
	for last = first; last < b.Len() && l.open(b, last); last++ {
	}
	if last > first {
		b.View(&s.view, first, last)
		return last, s.fail.Take(l.Link.Send(&s.view), first)
	}
	data, path := b.Packet(first)
	peer := s.peers[path.Dst]
	switch {
	case path.Dst.IsMulticast():
		l.counters.multicast.Add(1)
		s.fail.Add(first, 1, ErrMulticast)
		return first + 1, nil
	case peer == nil:
		l.keep(data, path)
		return first + 1, nil
	}
	if l.wait.of[path.Dst] != nil {
		l.release(path.Dst)
	}
	return l.sendSealed(b, first, peer)
}

// open reports whether a packet leaves the link as it is.
func (l *Link) open(b *transport.TxBatch, i int) bool {
	data, path := b.Packet(i)
	return path.Dst == l.local && l.inClear(data) || l.cfg.Through != nil && l.cfg.Through(data)
}

// sendSealed seals and sends packets from first on that go to a peer.
func (l *Link) sendSealed(b *transport.TxBatch, first int, peer *sendPeer) (last int, err error) {
	s := &l.tx
	l.emptyBatch()
	now := time.Now()
	_, to := b.Packet(first)
	for last = first; last < b.Len(); last++ {
		data, path := b.Packet(last)
		if path.Dst != to.Dst || last > first && l.open(b, last) || s.batch.Room() == nil {
			break
		}
		r := b.Run(last, false)
		b.Seal(&r, netip.AddrPortFrom(l.local, l.port))
		if !l.seal(peer, data, r.Data, path, now) {
			break
		}
	}
	if last == first {
		l.counters.noKeys.Add(1)
		return first + 1, nil
	}
	failed := s.fail.Failed
	err = s.fail.Take(l.Link.Send(s.batch), first)
	if err == nil {
		l.counters.sealed.Add(uint64(last - first - (s.fail.Failed - failed)))
	}
	return last, err
}

func (l *Link) emptyBatch() {
	if l.tx.batch == nil {
		l.tx.batch = transport.NewSealedBatch(arenaBytes)
	}
	l.tx.batch.Reset()
}

// seal adds a packet to the batch, which has room, given both BTH to pad and
// BTH to ICRC. It reports false if there is no key that may seal it.
func (l *Link) seal(peer *sendPeer, data, whole []byte, path *transport.Path, now time.Time) bool {
	s := &l.tx
	slot := uint8(binary.BigEndian.Uint32(data[4:])) & uint8(max(peer.secret.Slots, 1)-1)
	by := l.sender(peer, slot)
	if by == nil {
		return false
	}
	silent := by.quiet.leaves(peer.contact, slot, now)
	if (silent || by.count >= l.cfg.Limit/2) && (peer.asked.IsZero() || now.Sub(peer.asked) >= askPause) {
		peer.asked = now
		l.cfg.Want(path.Dst, Renew)
	}
	if by.count >= l.cfg.Limit { // the peer has not been there for long
		return false
	}
	by.count++
	by.head.IV++
	binary.BigEndian.PutUint16(s.udp[:], cmp.Or(path.SrcPort, l.port))
	binary.BigEndian.PutUint16(s.udp[2:], path.Port(l.port))
	binary.BigEndian.PutUint16(s.udp[4:], uint16(udpLen+len(whole)))
	n := len(by.sealer.Seal(s.batch.Room()[:0], &by.head, s.udp[:], whole))
	s.batch.Commit(n, l.to(path, slot, peer.secret.Slots))
	return true
}

// to returns the path to a slot of a peer. Where the peer has one socket it is
// that of all. Else each slot has a source port, as far as there are some: the
// peer's kernel may coalesce packets of one flow, and gives all of them to the
// slot of the first. The UDP header that is sealed tells the port of the queue
// pair.
func (l *Link) to(path *transport.Path, slot uint8, slots uint16) *transport.Path {
	if slots <= 1 {
		return path
	}
	s, k := &l.tx, slotPath{path, slot}
	if p := s.paths[k]; p != nil {
		return p
	}
	if len(s.paths) >= mostPaths {
		clear(s.paths)
	}
	p := *path
	if p.SrcPort == 0 && slot != managementSlot && l.ports {
		port := dynamicPorts | uint16(l.cfg.Slot)<<8&0x3f00 | uint16(slot)
		if port, err := transport.OpenSourcePort(l.Link, port, false); err == nil {
			p.SrcPort = port
		}
	}
	made := transport.NewPath(l.local, p)
	s.paths[k] = made
	return made
}

const (
	managementSlot = 1      // which has the link's own port
	dynamicPorts   = 0xc000 // from here on (RFC 6335 6)
)
