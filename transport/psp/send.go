package psp

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// ErrNoKey is why packets of a path do not leave whose security association has
// no key.
var ErrNoKey = errors.New("psp: the security association has no key, or has ended, or has sealed as many packets with its key as it may; packets do not leave in clear instead")

// arenaBytes is the room for packets that are sealed: those of some runs.
const arenaBytes = 256 << 10

const udpLen = 8

// sealing is the state of Send.
type sealing struct {
	port  uint16             // of the link
	batch *transport.TxBatch // of sealed packets; nil: there was none
	view  transport.TxBatch
	fail  transport.SendError

	// What the latest packets were sealed with.
	path  *transport.Path
	by    *sender
	key   *psp.Key      // that head is of
	after uint64        // changes of the senders
	head  [headLen]byte // of a packet: PSP and UDP, without IV and length
}

const headLen = psp.HeaderLen + udpLen

// Send seals packets whose paths have an SPI, and passes all to the link
// inside, in their order.
func (l *Link) Send(b *transport.TxBatch) error {
	s := &l.tx
	if sealedFrom(b, 0) == b.Len() {
		return l.Link.Send(b)
	}
	s.fail = transport.SendError{}
	for i := 0; i < b.Len(); {
		last := sealedFrom(b, i)
		if last > i {
			b.View(&s.view, i, last)
			if err := s.fail.Take(l.Link.Send(&s.view), i); err != nil {
				return err
			}
			i = last
			continue
		}
		last, err := l.sendSealed(b, i)
		if err != nil {
			return err
		}
		i = last
	}
	s.view = transport.TxBatch{} // it is the caller's
	return s.fail.Result()
}

// sealedFrom returns the first packet from i on whose path has an SPI, or how
// many packets there are.
func sealedFrom(b *transport.TxBatch, i int) int {
	for ; i < b.Len(); i++ {
		if _, path := b.Packet(i); path.SPI != 0 {
			break
		}
	}
	return i
}

// sendSealed seals and sends packets of b from first on that have an SPI. It
// returns the first one that it has not taken.
func (l *Link) sendSealed(b *transport.TxBatch, first int) (last int, err error) {
	s := &l.tx
	if s.batch == nil {
		s.batch = transport.NewSealedBatch(arenaBytes)
	}
	s.batch.Reset()
	limits, local := l.Limits.of(), netip.AddrPortFrom(l.Addr(), s.port)
	for last = first; last < b.Len(); last++ {
		_, path := b.Packet(last)
		if path.SPI == 0 {
			break
		}
		if now := l.senders.changes.Load(); path != s.path || now != s.after {
			s.after = now
			s.choose(path, l.senders.get(association{path.Dst, path.SPI}))
		}
		if s.by == nil || !s.by.ready(&limits) {
			break
		}
		room := s.batch.Room()
		if room == nil {
			break
		}
		r := b.Run(last, false)
		head := room[:headLen]
		copy(head, s.begin())
		s.by.iv++
		binary.BigEndian.PutUint64(head[8:], s.by.iv)
		binary.BigEndian.PutUint16(head[psp.HeaderLen+4:], uint16(udpLen+len(r.Data)))
		b.Seal(&r, local) // after the header: what was just written in parts is slow to read
		s.batch.Commit(len(s.by.key.SealAfter(head, 0, r.Data)), path)
	}
	if last == first { // the association of the first one has no key
		_, path := b.Packet(first)
		s.fail.Add(first, 1, fmt.Errorf("to %v with SPI 0x%08x: %w", path.Dst, path.SPI, ErrNoKey))
		l.counters.noKey.Add(1)
		return first + 1, nil
	}
	l.counters.sealed.Add(uint64(last - first))
	return last, s.fail.Take(l.Link.Send(s.batch), first)
}

// choose notes what packets of a path are sealed with.
func (s *sealing) choose(path *transport.Path, by *sender) {
	s.path, s.by, s.key = path, by, nil
}

// begin returns the head of packets to s.path with the present key.
func (s *sealing) begin() []byte {
	if s.key == s.by.key {
		return s.head[:]
	}
	s.key = s.by.key
	b := s.key.AppendHeader(s.head[:0], &psp.Header{Next: psp.UDP, SPI: s.by.spi}, udpLen)
	b = binary.BigEndian.AppendUint16(b, cmp.Or(s.path.SrcPort, s.port))
	b = binary.BigEndian.AppendUint16(b, s.path.Port(s.port))
	return append(b, 0, 0, 0, 0) // length, and no checksum
}
