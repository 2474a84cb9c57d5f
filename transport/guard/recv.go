package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// opening is the state of Recv.
type opening struct {
	link    *Link
	keep    func(*transport.RxPacket) bool
	version uint64 // of the table
	of      map[uint16]*receiver
	peers   map[netip.Addr]*contact
	asks    strangers
}

func (o *opening) init(l *Link) { o.link, o.keep, o.of = l, o.open, map[uint16]*receiver{} }

// receiver has the keys of one secret.
type receiver struct {
	peer netip.Addr
	*contact
	secret Secret
	master *psp.MasterKeys
	by     map[uint16]*opener // by the slots of sender and receiver
	tried  *opener            // the latest one derived, which has opened nothing; nil: there is none
	spi    uint32             // of tried
}

// Format keeps the keys out of what is printed.
func (r receiver) Format(f fmt.State, c rune) { r.secret.Format(f, c) }

// opener is one key that has opened a packet: that of the latest lease of the
// sender's slot; or that is to show whether it does.
type opener struct {
	serial uint32
	opens  *psp.Key
	window psp.Window
}

// Recv opens the packets that have come sealed, in their places, and drops
// those in clear.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	if err != nil || n == 0 {
		return n, err
	}
	l.rx.refresh(l.cfg.Table)
	b.Filter(l.rx.keep)
	return b.Len(), nil
}

// refresh takes what has changed in the table. A secret that stays has its
// keys, and what they have opened, as before.
func (o *opening) refresh(t *Table) {
	if t.Version() == o.version {
		return
	}
	list, version, ok := t.read()
	if !ok {
		return
	}
	o.version, o.peers = version, o.link.contacts.refresh(list, version)
	all := make(map[uint16]*receiver, len(o.of))
	for i := range list {
		for _, s := range list[i].Receives {
			r := o.of[s.Number]
			if r == nil || r.secret != s || r.peer != list[i].Addr {
				r = &receiver{peer: list[i].Addr, secret: s, master: s.keys(), by: map[uint16]*opener{}}
			}
			r.contact = o.peers[r.peer]
			all[s.Number] = r
		}
	}
	o.of = all
}

// open opens a packet, and reports whether it is to be kept. What costs little
// is looked at first: the packet may be any stranger's.
func (o *opening) open(p *transport.RxPacket) bool {
	l := o.link
	switch p.ICRC {
	case transport.ICRCSealed:
	case transport.ICRCAbsent:
		return true // from the owner of the port, which has opened it
	default:
		if p.Src == l.local && l.inClear(p.Data) {
			return true
		}
		l.counters.clear.Add(1)
		return false
	}
	h, n, err := psp.Parse(p.Data)
	if err != nil {
		l.counters.format.Add(1)
		return false
	}
	if h.SPI&psp.SecondMaster == 0 {
		return true // it is of a queue pair, which has the key
	}
	r := o.of[uint16(h.SPI>>16)&MaxNumber]
	switch {
	case r == nil:
		l.counters.unknown.Add(1)
		o.hint(p.Src)
		return false
	case r.peer != p.Src:
		l.counters.peer.Add(1)
		return false
	case uint8(h.SPI) != l.cfg.Slot:
		l.counters.astray.Add(1)
		return false
	}
	return o.unseal(p, r, &h, n)
}

// hint asks for keys of a peer that has sealed a packet with an unknown one.
// Those that there are keys of come first: they need not share how often
// strangers are asked of.
func (o *opening) hint(peer netip.Addr) {
	if peer == o.link.local {
		return
	}
	if c := o.peers[peer]; c != nil && pass(&c.hinted, hintPause) || c == nil && o.asks.may() {
		o.link.cfg.Want(peer, Unknown)
	}
}

// opener returns the key for a packet of a lease; nil if there is none, and
// older if a later lease is heard. A key that has opened nothing yet is kept
// until another one is derived: so what is forged takes no memory.
func (r *receiver) opener(spi, serial uint32) (by *opener, older bool) {
	by = r.by[uint16(spi)]
	switch {
	case by != nil && serial < by.serial:
		return nil, true
	case by != nil && serial == by.serial:
		return by, false
	case r.tried != nil && r.spi == spi && r.tried.serial == serial:
		return r.tried, false
	}
	key, ok := keyOf(&r.secret, r.master, serial, spi)
	if !ok {
		return nil, false
	}
	if r.tried == nil {
		r.tried = new(opener)
	}
	r.tried.serial, r.tried.opens, r.spi = serial, key, spi
	return r.tried, false
}

// unseal opens a packet that is of a secret.
func (o *opening) unseal(p *transport.RxPacket, r *receiver, h *psp.Header, n int) bool {
	c := &o.link.counters
	by, older := r.opener(h.SPI, uint32(h.IV>>32))
	switch {
	case older:
		c.stale.Add(1)
		return false
	case by == nil:
		c.format.Add(1)
		return false
	}
	switch by.window.Look(h.IV) {
	case psp.Replay:
		c.replays.Add(1)
		return false
	case psp.Stale:
		c.stale.Add(1)
		return false
	}
	inner, err := by.opens.OpenInPlace(p.Data, h, n)
	if err != nil {
		if errors.Is(err, psp.ErrICV) {
			c.forged.Add(1)
		} else {
			c.format.Add(1)
		}
		return false
	}
	by.window.Take(h.IV)
	if by == r.tried {
		r.by[uint16(h.SPI)], r.tried = by, nil
	}
	const shortest = udpLen + rocev2.BTHLen + rocev2.ICRCLen
	if h.Next != psp.UDP || len(inner) < shortest || len(inner) > udpLen+rocev2.MaxPacketLen || transport.IsSealed(inner[udpLen:]) {
		c.format.Add(1)
		return false
	}
	c.opened.Add(1)
	r.hear(uint8(h.SPI >> 8))
	p.SrcPort = binary.BigEndian.Uint16(inner)
	p.Data, p.SPI, p.IPID, p.ICRC = inner[udpLen:], 0, 0, transport.ICRCAbsent
	return true
}
