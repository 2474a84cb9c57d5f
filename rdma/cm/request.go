package cm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// Request is a peer's wish for a connection, or, of UD, for the number of a
// queue pair. Answer it by Accept or Reject, once. Its methods may be called
// from any goroutine.
type Request struct {
	l      *Listener
	m      *manager
	id     agent.ID
	remote Addr
	params Params
	ece    ECE
	data   private
	number verbs.QPN // that the peer was told, with psn; 0: none
	psn    verbs.PSN

	control *control   // that the request has come over; nil: in clear
	peerID  mad.CommID // of the peer

	// Guarded by the lock of m:
	answered bool                  // or the peer has given up
	queued   list.Element[Request] // at the listener, until the program takes it
}

// asked is what a REQ or a SIDR_REQ says.
type asked struct {
	remote netip.AddrPort
	params Params
	ece    ECE
	data   []byte // of the peer's program
}

// fit reads a request for a listener of a type on an address, locked, and makes
// its path MTU one that this side can send, by most. A reason says why the
// request is rejected, with what the REJ says of it.
func (a *asked) fit(e *agent.Event, typ verbs.QPType, local netip.Addr, most func(netip.Addr) verbs.MTU) (Reason, []byte) {
	if reason := a.read(e, typ, local); reason != 0 || typ == verbs.UD {
		return reason, nil
	}
	return a.limit(most(a.remote.Addr()))
}

// limit makes the path MTU at most what this side can send.
func (a *asked) limit(most verbs.MTU) (Reason, []byte) {
	if a.params.PathMTU <= most {
		return 0, nil
	}
	if !a.ece.lessMTU() {
		return ReasonMTU, mtuInfo(most)
	}
	a.params.PathMTU, a.params.lessMTU = most, true
	return 0, nil
}

// mtuInfo is the additional information of a REJ for the path MTU: what this
// side takes (IBTA 12.6.7.2).
func mtuInfo(most verbs.MTU) []byte { return []byte{byte(most)} }

// read reads a request for a listener of a type on an address. A reason says
// why it is rejected.
func (a *asked) read(e *agent.Event, typ verbs.QPType, local netip.Addr) (reason Reason) {
	var field []byte
	if m := e.Request; m != nil {
		field = m.Private
		a.ece, a.params = ECE(m.ECE), paramsOf(m)
	} else {
		field = e.SIDRRequest.Private
		a.params = Params{Type: verbs.UD, TrafficClass: e.Path.TrafficClass, FlowLabel: e.Path.FlowLabel, HopLimit: e.Path.HopLimit}
	}
	if a.params.Type != typ {
		return ReasonTransport
	}
	var ip mad.IPHeader
	data, err := ip.Parse(field)
	if err != nil || !plausible(&ip, e) {
		return ReasonConsumer // as Linux does
	}
	a.data, a.remote = data, netip.AddrPortFrom(withZoneOf(ip.Source, local), ip.SourcePort)
	return 0
}

// newRequest makes a request of an event.
func newRequest(l *Listener, e *agent.Event, a *asked) *Request {
	r := &Request{l: l, m: l.m, id: e.ID, ece: a.ece, params: a.params, data: privateOf(a.data), number: e.QPN, psn: e.PSN, remote: Addr{a.remote, l.cfg.Space}}
	r.queued.Value = r
	if r.control = r.m.controls.of[e.Path.Control]; r.control != nil {
		r.peerID = e.Request.LocalID
	}
	return r
}

// plausible reports whether the addresses that RDMA-CM has put into the private
// data are those of the two sides.
func plausible(ip *mad.IPHeader, e *agent.Event) bool {
	return ip.Source.Unmap() == e.Path.Remote.Unmap() && ip.Destination.Unmap() == e.Path.Local.Unmap()
}

// withZoneOf returns a link-local address of a peer with the zone of this
// side's.
func withZoneOf(peer, local netip.Addr) netip.Addr {
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		return peer.WithZone(local.Zone())
	}
	return peer.Unmap()
}

// paramsOf returns the terms of a REQ as the receiver sees them.
func paramsOf(m *mad.REQ) Params {
	p := Params{
		Type: verbs.RC, QPN: m.LocalQPN, PSN: m.StartingPSN, PathMTU: verbs.MTU(m.PathMTU),
		ResponderResources: m.InitiatorDepth, InitiatorDepth: m.ResponderResources,
		AckTimeout: m.Primary.AckTimeout, RetryCount: m.RetryCount, RNRRetry: m.RNRRetryCount,
		FlowControl: m.FlowControl, SRQ: m.SRQ,
		TrafficClass: m.Primary.TrafficClass, FlowLabel: m.Primary.FlowLabel, HopLimit: m.Primary.HopLimit,
		QKey: m.LocalQKey,
	}
	switch {
	case m.Transport == mad.TransportUC:
		p.Type = verbs.UC
	case m.Transport == mad.TransportExtended && m.ExtendedTransport == mad.ExtendedXRC:
		p.Type = verbs.XRCTarget
	case m.Transport != mad.TransportRC:
		p.Type = 0 // no listener takes it
	}
	return p
}

// LocalAddr returns the address that the request is for: an *Addr.
func (r *Request) LocalAddr() net.Addr { return &r.l.addr }

// RemoteAddr returns the peer's address: an *Addr.
func (r *Request) RemoteAddr() net.Addr { return &r.remote }

// PrivateData returns what the peer's program has sent with the request: the
// whole field of 56 bytes, of UD 180, with zeros after the data.
func (r *Request) PrivateData() []byte { return r.data.bytes() }

// ECE returns what the peer says of itself.
func (r *Request) ECE() ECE { return r.ece }

// Native reports whether the peer is this software.
func (r *Request) Native() bool { return r.ece.native() }

// Params returns what the peer asks for.
func (r *Request) Params() Params { return r.params }

// Device returns the device that the request has come to.
func (r *Request) Device() *verbs.Device { return r.m.dev }

// AcceptConfig says how a request is accepted. The zero value works.
type AcceptConfig struct {
	PrivateData []byte // for the peer's program, at most 196 bytes; of UD 136

	// ResponderResources is how many READs and atomics the peer may have
	// outstanding here, InitiatorDepth how many this side at the peer. By
	// default they are what the peer asks for, at most 128. More than that
	// is never granted.
	ResponderResources, InitiatorDepth verbs.OptUint8

	RNRRetry    verbs.OptUint8 // how often the peer repeats when this side has no receive posted; 7, the default, is for ever
	MinRNRTimer verbs.OptUint8 // see verbs.ConnectConfig; 12, 0.64 ms, by default
	Access      verbs.Access   // what the peer may do; by default WRITE, and with ResponderResources also READ, atomics and FLUSH
	FlowControl bool
	SourcePort  uint16 // see verbs.ConnectConfig

	// ECE is what this side says of itself, if the peer's request did; the
	// zero value stands for what this software says.
	ECE ECE

	// ReceiveOnly leaves the queue pair in RTR: it answers the peer, and
	// sends no requests of its own.
	ReceiveOnly bool

	QKey uint32 // of UD: that of the queue pair, for the answer; 0 means the one that it has
}

// Accept takes the queue pair to RTS by the terms of the request and says so to
// the peer. The queue pair is of the listener's type, in RESET or INIT. To have
// receives posted before the first message of the peer, call Init, post, then
// Accept. Accept waits for nothing: the connection may be used at once. If the
// peer does not answer, the connection ends by itself.
//
// A request of UD is answered with the number and the Q_Key of the queue pair,
// which is active (see verbs.QP.Activate). The Conn then has addresses and
// nothing that could end.
//
// A request whose terms the queue pair does not take is rejected with the
// reason, and the error says why; ctx is looked at before anything else. The
// error wraps ErrGone, ErrClosed, or that of ctx, too.
func (r *Request) Accept(ctx context.Context, qp *verbs.QP, cfg AcceptConfig) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cm: accept %v: %w", &r.remote, err)
	}
	c, err := r.accept(qp, &cfg)
	if err != nil {
		return nil, fmt.Errorf("cm: accept %v: %w", &r.remote, err)
	}
	return c, nil
}

func (r *Request) accept(qp *verbs.QP, cfg *AcceptConfig) (*Conn, error) {
	switch {
	case qp == nil:
		return nil, errors.New("no queue pair")
	case qp.Device() != r.m.dev:
		return nil, fmt.Errorf("the queue pair: %w", verbs.ErrOtherDevice)
	case qp.Type() != r.params.Type:
		return nil, fmt.Errorf("a queue pair of type %v for a request of type %v", qp.Type(), r.params.Type)
	case cfg.RNRRetry.Or(0) > 7:
		return nil, &verbs.RangeError{What: "RNRRetry", Got: int(cfg.RNRRetry.Or(0)), Max: 7}
	}
	if r.params.Type == verbs.UD {
		return r.answer(qp, cfg)
	}
	if err := tooLong("REP", len(cfg.PrivateData), MaxAcceptPrivate); err != nil {
		return nil, err
	}
	if r.number != 0 {
		return r.adopt(qp, cfg)
	}
	if err := r.take(); err != nil {
		return nil, err
	}
	w, rep := acceptance(r.remote.Addr(), r.params, r.ece, randomPSN(r.m.dev), cfg, mostRdAtomic(r.m.dev))
	rep.LocalQPN, rep.SRQ = qp.QPN(), qp.Config().SRQ != nil
	rep.ECE = r.m.withSlots(rep.ECE)
	w.seal = r.control.seal(r.peerID, mad.CommID(r.id))
	if err := w.apply(qp); err != nil {
		reason := rejection(err)
		if reject := r.m.reject(r.id, reason, r.info(reason), nil); reject != nil {
			err = reject
		}
		return nil, err
	}
	c := &Conn{m: r.m, id: r.id, qp: qp, local: r.l.addr, remote: r.remote, data: r.data, ece: r.ece, params: w.params, control: r.control}
	if err := r.m.accept(c, c.id, rep); err != nil {
		fail(qp)
		return nil, err
	}
	return c, nil
}

// take makes the caller the one that answers.
func (r *Request) take() error {
	r.m.lock()
	defer r.m.unlock()
	if r.m.closed {
		return r.m.errOver()
	}
	if r.answered {
		return ErrGone
	}
	r.answered = true
	r.unqueue()
	return nil
}

// unqueue takes r from those that wait for the program. The lock is held.
func (r *Request) unqueue() {
	if r.queued.In() {
		r.l.queue.Remove(&r.queued)
	}
}

// info returns the additional information of a REJ.
func (r *Request) info(reason Reason) []byte {
	switch {
	case reason == ReasonMTU:
		return mtuInfo(r.l.mostMTU(r.remote.Addr()))
	case r.ece.native():
		return marker
	}
	return nil
}

// answer answers a request of UD.
func (r *Request) answer(qp *verbs.QP, cfg *AcceptConfig) (*Conn, error) {
	if err := tooLong("SIDR_REP", len(cfg.PrivateData), MaxAnswerPrivate); err != nil {
		return nil, err
	}
	if s := qp.State(); s != verbs.StateRTR && s != verbs.StateRTS {
		return nil, fmt.Errorf("queue pair %v is in %v; call Activate first", qp.QPN(), s)
	}
	qkey := cfg.QKey
	if qkey == 0 {
		qkey = qp.Query().QKey
	}
	if err := r.take(); err != nil {
		return nil, err
	}
	err := r.m.answer(r.id, &mad.SIDRREP{Status: mad.SIDRSuccess, QPN: qp.QPN(), QKey: qkey, Private: cfg.PrivateData})
	if err != nil {
		return nil, err
	}
	return &Conn{m: r.m, qp: qp, local: r.l.addr, remote: r.remote, data: r.data, params: r.params}, nil
}

// Confirmed reports whether the peer has answered the acceptance, or has sent
// over the queue pair: then there is a peer at the address that the request
// came from. A request alone can be forged. With UD, where there is no such
// answer, it is true when the request is answered.
func (r *Request) Confirmed() bool {
	if r.number != 0 {
		return true
	}
	r.m.lock()
	defer r.m.unlock()
	if !r.answered || r.m.closed {
		return false
	}
	if r.params.Type == verbs.UD {
		return true
	}
	if c, ok := r.m.ids[r.id].(*Conn); ok {
		c.heard()
	}
	switch r.m.agent.State(r.id) {
	case agent.StateREQReceived, agent.StateREPSent, agent.StateIdle:
		return false
	}
	return true
}

// Reject refuses the request, with up to 148 bytes for the peer's program (of
// UD 136). The error wraps ErrGone or ErrClosed.
func (r *Request) Reject(data []byte) error { return r.RejectReason(ReasonConsumer, data) }

// RejectReason is Reject with a reason of its own. A SIDR_REP has no reasons:
// the peer learns that it was rejected. 0 is no reason: it stands for
// ReasonConsumer.
func (r *Request) RejectReason(reason Reason, data []byte) error {
	reason = cmp.Or(reason, ReasonConsumer)
	var err error
	if r.params.Type == verbs.UD {
		err = tooLong("SIDR_REP", len(data), MaxAnswerPrivate)
	} else {
		err = tooLong("REJ", len(data), MaxRejectPrivate)
	}
	if err == nil {
		err = r.take()
	}
	switch {
	case err != nil:
	case r.number != 0:
		r.m.lock()
		r.decline()
		r.m.unlock()
	case r.params.Type == verbs.UD:
		err = r.m.answer(r.id, &mad.SIDRREP{Status: mad.SIDRRejected, Private: data})
	default:
		err = r.m.reject(r.id, reason, r.info(reason), data)
	}
	if err != nil {
		return fmt.Errorf("cm: reject %v: %w", &r.remote, err)
	}
	return nil
}

// event implements sink: the peer has given up.
func (r *Request) event(e *agent.Event) {
	switch {
	case e.Kind.Final():
		delete(r.m.ids, r.id)
	case r.number != 0 && e.Kind != agent.EventEstablished: // the connection ends
		r.m.release(r.id)
	default:
		return
	}
	if r.number != 0 && r.queued.In() && !r.answered && r.l.ended < maxEnded {
		// The program sees that there was a connection.
		r.l.ended++
		r.answered = true
		verbs.HCA(r.m.dev).ReleaseQPN(r.number)
		return
	}
	r.over()
}

// maxEnded is how many connections that are over a listener keeps for Accept.
const maxEnded = 1024

// over implements sink.
func (r *Request) over() {
	if !r.answered && r.number != 0 {
		verbs.HCA(r.m.dev).ReleaseQPN(r.number)
	}
	r.answered = true
	r.unqueue()
}
