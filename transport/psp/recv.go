package psp

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// opening is the state of Recv.
type opening struct {
	all   map[uint32]*receiver
	count Counters // of one call
	keep  func(*transport.RxPacket) bool
}

// Recv opens the packets that have come sealed, in their places. Without an
// association they stay as they are, and the device drops them.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	if err != nil || l.receivers.changes.Load() == 0 || !anySealed(b.Packets()) {
		return n, err
	}
	o := &l.rx
	if o.keep == nil {
		o.keep = o.open
	}
	l.receivers.mu.RLock()
	o.all, o.count = l.receivers.of, Counters{}
	b.Filter(o.keep)
	o.all = nil
	l.receivers.mu.RUnlock()
	l.counters.received(&o.count)
	return b.Len(), nil
}

func anySealed(packets []transport.RxPacket) bool {
	for i := range packets {
		if packets[i].ICRC == transport.ICRCSealed {
			return true
		}
	}
	return false
}

// open opens a packet, and reports whether it is to be kept. What costs little
// is looked at first: the packet may be any stranger's.
func (o *opening) open(p *transport.RxPacket) bool {
	if p.ICRC != transport.ICRCSealed {
		return true
	}
	h, n, err := psp.Parse(p.Data)
	if err != nil {
		o.count.Format++
		return false
	}
	r := o.all[numberOf(h.SPI)]
	switch {
	case r == nil:
		o.count.Unknown++
		return false
	case r.peer != p.Src:
		o.count.Peer++
		return false
	}
	by, ended := r.find(h.SPI)
	if by == nil {
		if ended {
			o.count.Ended++
		} else {
			o.count.Unknown++
		}
		return false
	}
	if !o.fresh(by.look(h.IV)) {
		return false
	}
	plain, err := by.key.OpenInPlace(p.Data, &h, n)
	if err != nil {
		if err == psp.ErrICV {
			o.count.Forged++
		} else {
			o.count.Format++
		}
		return false
	}
	r.opened(by, h.IV)
	const shortest = udpLen + rocev2.BTHLen + rocev2.ICRCLen
	if h.Next != psp.UDP || len(plain) < shortest || len(plain) > udpLen+rocev2.MaxPacketLen {
		o.count.Format++
		return false
	}
	o.count.Opened++
	p.SrcPort = binary.BigEndian.Uint16(plain)
	p.Data, p.SPI, p.IPID, p.ICRC = plain[udpLen:], r.spi, 0, transport.ICRCAbsent
	return true
}

// fresh counts what a window says of an IV.
func (o *opening) fresh(v psp.Verdict) bool {
	switch v {
	case psp.Replay:
		o.count.Replays++
	case psp.Stale:
		o.count.Stale++
	}
	return v == psp.Fresh
}
