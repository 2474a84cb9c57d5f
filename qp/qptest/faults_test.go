package qptest

import "github.com/gosoftroce/rocev2/ib"

// faultKind is something that goes wrong once in a world, on purpose.
type faultKind uint8

const (
	faultNone         faultKind = iota
	faultUnknownKey             // a request with a key that does not exist
	faultRemoteBounds           // a request that ends after the peer's region
	faultNoRight                // a WRITE or atomic to a region that grants READ
	faultMisaligned             // an atomic on an odd address
	faultUnknownLKey            // a local buffer with a key that does not exist
	faultLocalBounds            // a local buffer that ends after its region
	faultRecvTooSmall           // a receive that is shorter than the message
	faultModifyErr              // the application moves the QP to ERR
	faultDestroy                // the application closes the QP
	faultBlackout               // the link loses everything from now on
	faultDeregister             // the target of the peer is deregistered
	numFaults
)

var faultNames = [numFaults]string{"none", "unknown rkey", "remote bounds", "no right", "misaligned atomic", "unknown lkey",
	"local bounds", "receive too small", "modify to ERR", "destroy", "blackout", "deregister"}

func (f faultKind) String() string { return faultNames[f] }

// status is what the request with the fault completes with, unless the network
// loses the news (IBTA 11.6.2).
func (f faultKind) status() ib.Status {
	switch f {
	case faultUnknownKey, faultRemoteBounds, faultNoRight:
		return ib.StatusRemAccessErr
	case faultMisaligned:
		return ib.StatusRemInvReqErr
	}
	return ib.StatusLocProtErr
}

// breaksResponder reports whether the fault of one side moves its peer to ERR.
func (f faultKind) breaksResponder() bool { return f >= faultUnknownKey && f <= faultMisaligned }

// breaksSelf reports whether the fault moves the side that has it to ERR
// without a completion of its own that says so.
func (f faultKind) breaksSelf() bool {
	return f == faultModifyErr || f == faultRecvTooSmall || f == faultDeregister
}

// faultHere reports whether the world's fault belongs to this side.
func (s *side) faultHere() bool {
	if s.xrc != nil {
		return s.faultHereXRC()
	}
	return s == s.w.pairs[0][s.w.seed%2]
}

// spoil makes the fault part of a request.
func (s *side) spoil(o *op, wr *ib.SendWR) {
	w := s.w
	if s.faulted || !s.faultHere() || len(s.ops) < 2 || w.rng.IntN(3) > 0 || o.n == 0 {
		return
	}
	remote := !o.kind.sends() && o.remote >= 0
	switch f := w.p.fault; {
	case f == faultUnknownKey && remote:
		wr.Remote.RKey ^= 0x00ff00ff
	case f == faultRemoteBounds && remote:
		wr.Remote.Addr = s.peer.targetReg.Addr() + uint64(s.peer.target.n-o.n+8)
	case f == faultNoRight && remote && o.kind != kindRead:
		wr.Remote.RKey, wr.Remote.Addr = s.peer.readonlyReg.RKey(), s.peer.readonlyReg.Addr()
	case f == faultMisaligned && (o.kind.atomic() || o.kind == kindAtomicWrite) && remote:
		wr.Remote.Addr += 4
	case (f == faultUnknownLKey || f == faultLocalBounds) && len(wr.SGList) > 0:
		i := 0
		for wr.SGList[i].Length == 0 {
			i++
		}
		if f == faultUnknownLKey {
			wr.SGList[i].LKey ^= 0x00ff00ff
		} else {
			wr.SGList[i].Addr = s.localReg.Addr() + uint64(s.local.n) - uint64(wr.SGList[i].Length) + 1
		}
	default:
		return
	}
	o.fault, s.faulted = w.p.fault, true
}

// faultNow brings about a fault that is no request.
func (s *side) faultNow() {
	w := s.w
	if s.faulted || !s.faultHere() || s.posted() < 5 || w.rng.IntN(6) > 0 {
		return
	}
	switch w.p.fault {
	case faultModifyErr:
		s.faulted, s.broken = true, "modified to ERR"
		if err := s.ep.Modify(&ib.Attr{State: ib.StateErr}, attrState); err != nil {
			w.fail("%s: modify to ERR: %v", s.name, err)
		}
	case faultDestroy:
		s.faulted, s.broken = true, "destroyed"
		s.touched()
		s.ep.Close()
		s.ep.closed = true
		s.budget = 0
	case faultBlackout:
		s.faulted = true
		w.nodes[0].dead, w.nodes[1].dead = true, true
	case faultDeregister:
		s.faulted = true
		s.ep.on.table.Deregister(s.targetReg)
	default:
		return
	}
	w.tracef("%s %v", s.name, w.p.fault)
}

// sqdStep walks a side through SQD and back once, where the world asks for it
// (IBTA 10.3.1.5).
func (s *side) sqdStep() {
	w := s.w
	if !w.p.sqd || s.broken != "" || s.ep.State() == ib.StateErr || s != w.pairs[0][0] {
		return
	}
	var err error
	switch {
	case s.sqd == sqdNever && len(s.ops) > 3:
		err = s.ep.Modify(&ib.Attr{State: ib.StateSQD, EnableSQDNotify: true}, attrState|attrSQDNotify)
		s.sqd = sqdDraining
	case s.sqd == sqdDrained:
		err = s.ep.Modify(&ib.Attr{State: ib.StateRTS}, attrState)
		s.sqd = sqdDone
	default:
		return
	}
	w.tracef("%s SQD phase %d", s.name, s.sqd)
	if err != nil {
		w.fail("%s: %v", s.name, err)
	}
}

// pollEvents takes the asynchronous events and checks that each has a cause
// (IBTA 11.6.3).
func (s *side) pollEvents() {
	for {
		e, ok := s.ep.PollEvent()
		if !ok {
			return
		}
		s.w.tracef("%s event %v", s.name, e)
		switch {
		case e == ib.EventSQDrained && s.sqd == sqdDraining:
			s.sqd = sqdDrained
		case s.w.p.forge || e == ib.EventCommEstablished:
		case e == ib.EventLastWQEReached && s.isTarget() && s.ep.State() == ib.StateErr:
		case (e == ib.EventQPAccessError || e == ib.EventQPRequestError) && s.broken != "":
		default:
			s.w.fail("%s: event %v without a cause", s.name, e)
		}
	}
}
