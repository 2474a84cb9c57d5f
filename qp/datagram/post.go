package datagram

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// stateErrors are made once: a caller may post again and again without success.
var stateErrors = func() (errs [ib.NumStates]error) {
	for s := range ib.NumStates {
		errs[s] = fmt.Errorf("%w: %v: sends are posted from RTS on", ib.ErrState, s)
	}
	return errs
}()

// Post queues a send request. States RTS and SQD take requests (SQD sends them
// once back in RTS); SQE and ERR complete them at once with WR_FLUSH_ERR; the
// others refuse (IBTA 10.3.1). On an error nothing was queued.
func (s *Sender) Post(wr *ib.SendWR) error {
	length, to, err := s.check(wr)
	if err != nil {
		return err
	}
	push(s, wr, uint32(length), to)
	return nil
}

// push queues a request that is as it must be, or completes it.
func push(s *Sender, wr *ib.SendWR, length uint32, to destination) {
	s.c.Stats.SendPosted++
	if s.flushes() {
		s.completeError(wr.ID, wr.Opcode, ib.StatusWRFlushErr, 0)
		return
	}
	if s.datagrams() {
		*s.to.of(s.queue.Tail) = to
	}
	s.queue.Push(wr, length, wr.Signaled || s.signalAll)
}

// flushes reports whether requests complete at once, with WR_FLUSH_ERR.
func (s *Sender) flushes() bool { return s.c.State == ib.StateSQE || s.c.State == ib.StateErr }

// PostAll queues all of the requests, or none if one of them is refused. Then
// it returns which one.
func (s *Sender) PostAll(wrs []ib.SendWR) (int, error) {
	for i := range wrs {
		if err := s.keep(&wrs[i], i); err != nil {
			return i, err
		}
	}
	if room := s.room(); len(wrs) > room {
		return room, ib.ErrQueueFull
	}
	for i := range wrs {
		s.postKept(&wrs[i])
	}
	return len(wrs), nil
}

// keep returns what Post would return of the request that is i places after the
// next one, and queues nothing. It keeps where the request goes, for postKept:
// the handle may be destroyed at any moment.
func (s *Sender) keep(wr *ib.SendWR, i int) error {
	_, to, err := s.check(wr)
	if err == nil && s.datagrams() && !s.flushes() && i < s.queue.Room() {
		*s.to.of(s.queue.Tail + uint32(i)) = to
	}
	return err
}

// postKept is Post of a request that keep has let pass, in order.
func (s *Sender) postKept(wr *ib.SendWR) {
	var length uint64
	if !wr.Opcode.Is(ib.OpLocal) {
		length, _ = s.length(wr)
	}
	var to destination
	if s.datagrams() && !s.flushes() {
		to = *s.to.of(s.queue.Tail)
	}
	push(s, wr, uint32(length), to)
}

// room returns how many requests can be posted now.
func (s *Sender) room() int {
	if s.flushes() {
		return math.MaxInt
	}
	return s.queue.Room()
}

// check returns the length of the message and where it goes, or what is wrong
// with the request.
func (s *Sender) check(wr *ib.SendWR) (length uint64, to destination, err error) {
	switch {
	case s.c.State < ib.StateRTS:
		return 0, to, stateErrors[s.c.State]
	case s.queue.Full() && !s.flushes():
		return 0, to, ib.ErrQueueFull
	}
	if err := s.checkOpcode(wr); err != nil {
		return 0, to, err
	}
	if wr.Opcode.Is(ib.OpLocal) {
		return 0, to, conn.CheckLocal(wr)
	}
	if length, err = s.length(wr); err == nil && s.datagrams() {
		to, err = destinationOf(wr, s.c.PD)
	}
	return length, to, err
}

// checkOpcode checks that the service has the operation (IBTA 10.7.2.2).
func (s *Sender) checkOpcode(wr *ib.SendWR) error {
	if wr.Opcode < ib.NumOpcodes && s.wireOpcodes()[wr.Opcode][placeOnly] != 0 {
		if wr.Opcode.Is(ib.OpRemote) && wr.Remote == ib.OutsideRemote {
			return ib.ErrRemote
		}
		return nil
	}
	switch {
	case wr.Opcode == 0:
		return ib.ErrNoOpcode
	case !wr.Opcode.Known():
		return fmt.Errorf("%w %d", ib.ErrOpcode, wr.Opcode)
	case !s.datagrams() && wr.Opcode.Is(ib.OpLocal):
		return nil
	case s.datagrams():
		return fmt.Errorf("%w for a %v queue pair: %v; it has SEND alone", ib.ErrOpcode, s.typ, wr.Opcode)
	}
	return fmt.Errorf("%w for a UC queue pair: %v; it has SEND and WRITE, with and without immediate data, and local operations", ib.ErrOpcode, wr.Opcode)
}

// length returns the length of the message.
func (s *Sender) length(wr *ib.SendWR) (length uint64, err error) {
	switch {
	case wr.Inline != nil:
		if len(wr.Inline) > s.queue.MaxInline() {
			return 0, fmt.Errorf("%w: %d bytes; the queue pair was made for %d (MaxInline)", ib.ErrInlineTooLong, len(wr.Inline), s.queue.MaxInline())
		}
		length = uint64(len(wr.Inline))
	case len(wr.SGList) > s.queue.MaxSGE():
		return 0, fmt.Errorf("%w: %d; the queue pair was made for %d (MaxSendSGE)", ib.ErrTooManySGE, len(wr.SGList), s.queue.MaxSGE())
	default:
		length = ib.TotalLength(wr.SGList)
	}
	switch {
	case length > ib.MaxMessage: // an entry that stands for no memory makes it so
		return 0, cmp.Or(ib.BadSGE(wr.SGList), ib.ErrTooLong)
	case s.datagrams() && length > uint64(s.portMTU.Bytes()):
		return 0, fmt.Errorf("%w: %d bytes; the port carries %d in one packet", ib.ErrDatagramTooLong, length, s.portMTU.Bytes())
	}
	return length, nil
}

// destination is where a datagram goes.
type destination struct {
	av   *ib.AddressVector
	qpn  rocev2.QPN
	qkey uint32
}

// destinations are those of the slots of a queue.
type destinations []destination

// of returns that of request i.
func (d destinations) of(i uint32) *destination { return &d[i&uint32(len(d)-1)] }

// destinationOf returns where a datagram of a queue pair of pd goes (IBTA
// 11.4.1.1).
func destinationOf(wr *ib.SendWR, pd *memreg.PD) (to destination, err error) {
	if wr.AH == nil {
		return to, ib.ErrNoAH
	}
	to = destination{av: wr.AH.Vector(), qpn: wr.RemoteQPN, qkey: wr.RemoteQKey}
	switch {
	case to.av == nil:
		return to, ib.ErrAHClosed
	case wr.AH.Domain != any(pd):
		return to, ib.ErrAHDomain
	case to.qpn == 0:
		return to, ib.ErrNoRemoteQPN
	case to.qpn > rocev2.QPNMask:
		return to, fmt.Errorf("%w: %#x has more than 24 bits", ib.ErrRemoteQPN, uint32(to.qpn))
	}
	return to, nil
}
