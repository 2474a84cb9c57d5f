package fault

import (
	"bytes"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Recv receives from the inner link, as the rules have it, and adds what was
// held back and is due.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	s := &l.rx
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inPlace && len(s.spill) == 0 && len(s.hold.items) == 0 {
		return l.recvInPlace(b)
	}
	b.Reset()
	if s.in == nil || s.in.Buffers() != b.Buffers() {
		s.in = transport.NewRxBatch(b.Buffers())
	}
	if _, err := l.Link.Recv(s.in); err != nil {
		return 0, err
	}
	spill := s.spill
	s.spill = nil
	emit := func(p transport.RxPacket) { s.emit(b, p) }
	for _, p := range spill {
		emit(p)
	}
	now := time.Now()
	for _, p := range s.in.Packets() {
		r := s.decide(p.Data, len(s.hold.items))
		if r != nil && (r.Action == Delay || r.Action == Reorder) {
			p.Data = bytes.Clone(p.Data)
			s.hold.add(p, r, now)
			continue
		}
		switch {
		case r == nil:
			emit(p)
		case r.Action == Duplicate:
			emit(p)
			emit(p)
		case r.Action == Corrupt:
			s.corrupt(&p)
			emit(p)
		}
		s.hold.passed(emit)
	}
	s.hold.expire(now, emit)
	s.hold.arm(now)
	return b.Len(), nil
}

// recvInPlace receives into the caller's batch. It is for rules that neither
// hold packets back nor double them.
func (l *Link) recvInPlace(b *transport.RxBatch) (int, error) {
	s := &l.rx
	if _, err := l.Link.Recv(b); err != nil {
		return 0, err
	}
	if len(s.rules) == 0 {
		s.counts.Packets += uint64(b.Len())
		return b.Len(), nil
	}
	b.Filter(func(p *transport.RxPacket) bool {
		r := s.decide(p.Data, 0)
		if r != nil && r.Action == Corrupt {
			s.corrupt(p)
			return true
		}
		return r == nil
	})
	return b.Len(), nil
}

// emit adds a copy of p to b, or keeps one for the next call when b is full.
func (s *rxSide) emit(b *transport.RxBatch, p transport.RxPacket) {
	if len(s.spill) > 0 || !b.AppendCopy(p) {
		p.Data = bytes.Clone(p.Data)
		s.spill = append(s.spill, p)
	}
}

// corrupt flips a bit that the ICRC covers, in the inner link's buffer. Of a
// sealed packet it is one that its integrity check value covers.
func (s *rxSide) corrupt(p *transport.RxPacket) {
	const uncovered = 4 // FECN, BECN and reserved bits
	i := s.rng.IntN(len(p.Data) - rocev2.ICRCLen)
	if i == uncovered {
		i++
	}
	p.Data[i] ^= 1 << s.rng.IntN(8)
	if p.IPID = 0; p.ICRC != transport.ICRCSealed {
		p.ICRC = transport.ICRCBad
	}
}

// signal wakes Wait for a packet that is due.
func (l *Link) signal() {
	select {
	case l.rx.due <- struct{}{}:
	default:
	}
}

// Wait blocks until the inner link has something or a held packet is due.
func (l *Link) Wait() error {
	s := &l.rx
	s.mu.Lock()
	spilled := len(s.spill) > 0
	direct := !s.holds && len(s.hold.items) == 0 && !s.pumping
	s.mu.Unlock()
	switch {
	case spilled:
		return nil
	case direct:
		return l.Link.Wait()
	}
	s.start.Do(func() { s.pump.Go(l.runPump) })
	if !s.pumping {
		s.pumping = true
		s.kick <- struct{}{}
	}
	select {
	case err := <-s.woke:
		s.pumping = false
		return err
	case <-s.due:
		return nil
	case <-l.done:
		return transport.ErrClosed
	}
}

// Wake makes a Wait return.
func (l *Link) Wake() {
	l.signal()
	l.Link.Wake()
}

// runPump waits on the inner link for Wait, which must not be stuck there when
// a held packet is due.
func (l *Link) runPump() {
	for {
		select {
		case <-l.rx.kick:
			l.rx.woke <- l.Link.Wait()
		case <-l.done:
			return
		}
	}
}
