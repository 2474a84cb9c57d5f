package cm

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/verbs"
)

// Params is what the two sides of a connection agree on, as one side sees it.
// Of a Request it is what the peer asks for.
type Params struct {
	Type verbs.QPType // RC, UC or UD
	QPN  verbs.QPN    // the peer's queue pair
	PSN  verbs.PSN    // the first that this side sends

	// PathMTU is the smaller one of what the two sides can send. A listener
	// that can send less than the peer asks for takes less where the peer
	// is this software, and else rejects with what it takes (ReasonMTU). A
	// dial that is rejected so, and has no DialConfig.PathMTU, is made once
	// more.
	PathMTU verbs.MTU
	lessMTU bool // than the peer has asked for, which the REP says

	// ResponderResources is how many READs and atomics the peer may have
	// outstanding at this side, and InitiatorDepth how many this side at
	// the peer. (Each side's number is the other one of the other side.)
	ResponderResources, InitiatorDepth uint8

	AckTimeout  uint8 // code of the local ACK timeout, see verbs.Attr.Timeout
	RetryCount  uint8 // 0 to 7
	RNRRetry    uint8 // 0 to 7; 7 is for ever
	FlowControl bool  // the peer offers end-to-end flow control, which is not used on RoCE
	SRQ         bool  // the peer's queue pair takes its receives from an SRQ

	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	HopLimit     uint8

	QKey uint32 // of the peer's UD queue pair
}

// wiring is what the manager makes of a queue pair, in INIT, RTR and RTS.
type wiring struct {
	peer         netip.Addr
	params       Params
	rqPSN        verbs.PSN // the first that the peer sends
	minRNRTimer  uint8
	access       verbs.Access // 0: by ResponderResources, as the kernel has it
	native       bool
	slots        uint16 // of a native peer
	sourcePort   uint16
	stayReceiver bool  // stop in RTR
	seal         *seal // the connection is secured
}

// rights are what the peer may do where the program does not say.
func (w *wiring) rights() verbs.Access {
	if w.access != 0 {
		return w.access
	}
	a := verbs.RemoteWrite
	if w.params.ResponderResources > 0 {
		a |= verbs.RemoteRead | verbs.RemoteAtomic | verbs.FlushGlobal | verbs.FlushPersistent
	}
	return a
}

// apply takes a queue pair from RESET or INIT to RTS.
func (w *wiring) apply(q *verbs.QP) error {
	if err := w.receive(q); err != nil || w.stayReceiver {
		return err
	}
	return w.send(q)
}

// toInit takes a queue pair to INIT, if it is in RESET. The rights come with
// RTR.
func toInit(q *verbs.QP) error {
	switch s := q.State(); s {
	case verbs.StateReset:
		return q.Init()
	case verbs.StateInit:
		return nil
	default:
		return fmt.Errorf("cm: queue pair %v is in %v: it must be in RESET or INIT; reset it by Modify to StateReset", q.QPN(), s)
	}
}

// receive takes a queue pair from INIT to RTR.
func (w *wiring) receive(q *verbs.QP) error {
	if err := toInit(q); err != nil {
		return err
	}
	a, mask := w.receiveAttr()
	if w.seal == nil {
		return q.Modify(a, mask)
	}
	return w.seal.receive(q, func() error { return q.Modify(a, mask) })
}

// send takes a queue pair from RTR to RTS.
func (w *wiring) send(q *verbs.QP) error {
	a, mask := w.sendAttr()
	return q.Modify(a, mask)
}

// initAttr is what INIT takes.
func (w *wiring) initAttr() (*verbs.Attr, verbs.AttrMask) {
	if w.params.Type == verbs.UD {
		return &verbs.Attr{State: verbs.StateInit, Port: 1, QKey: QKey}, verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey
	}
	return &verbs.Attr{State: verbs.StateInit, Port: 1, Access: w.rights()},
		verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess
}

// receiveAttr is what RTR takes.
func (w *wiring) receiveAttr() (*verbs.Attr, verbs.AttrMask) {
	p := &w.params
	mask := verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrAccess
	switch p.Type {
	case verbs.UD:
		return &verbs.Attr{State: verbs.StateRTR}, verbs.AttrState
	case verbs.RC, verbs.XRCTarget:
		mask |= verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	}
	return &verbs.Attr{
		State: verbs.StateRTR,
		AV: verbs.AddressVector{DGID: w.peer, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
			FlowLabel: p.FlowLabel, SrcPort: w.sourcePort, Native: w.native, Slots: w.slots},
		PathMTU:         p.PathMTU,
		DestQPN:         p.QPN,
		RQPSN:           w.rqPSN,
		Access:          w.rights(),
		MaxDestRdAtomic: p.ResponderResources,
		MinRNRTimer:     w.minRNRTimer,
	}, mask
}

// sendAttr is what RTS takes.
func (w *wiring) sendAttr() (*verbs.Attr, verbs.AttrMask) {
	p := &w.params
	mask := verbs.AttrState | verbs.AttrSQPSN
	switch p.Type {
	case verbs.RC, verbs.XRCInitiator:
		mask |= verbs.AttrTimeout | verbs.AttrRetryCount | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
	case verbs.XRCTarget:
		mask |= verbs.AttrTimeout
	}
	return &verbs.Attr{
		State:       verbs.StateRTS,
		SQPSN:       p.PSN,
		Timeout:     p.AckTimeout,
		RetryCount:  p.RetryCount,
		RNRRetry:    p.RNRRetry,
		MaxRdAtomic: p.InitiatorDepth,
	}, mask
}

// rejection returns the reason for which a request is rejected whose values the
// queue pair does not take.
func rejection(err error) Reason {
	var bad *verbs.ModifyError
	if !errors.As(err, &bad) {
		return ReasonConsumer
	}
	switch {
	case bad.Attr&verbs.AttrPathMTU != 0:
		return ReasonMTU
	case bad.Attr&verbs.AttrAV != 0:
		return ReasonGID
	case bad.Attr&verbs.AttrDestQPN != 0:
		return ReasonNoQP
	}
	return ReasonConsumer
}

// fail takes a queue pair to ERR, so that what is posted completes.
func fail(q *verbs.QP) {
	if q != nil && q.State() != verbs.StateReset {
		_ = q.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState) // it fails only if q is closed
	}
}
