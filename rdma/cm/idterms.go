package cm

import (
	"crypto/tls"
	"errors"
	"net/netip"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// terms are what the two sides of an ID say of the connection. They send
// nothing, and know no state.
type terms struct {
	typ      verbs.QPType
	cfg      DialConfig
	req      mad.REQ // that was sent
	params   Params  // that the peer asked for
	ece      ECE     // of the peer
	localECE ECE
	wiring   *wiring // of the queue pair, since both sides have spoken

	tls     *tls.Config
	control *control      // of a secured connection
	ids     [2]mad.CommID // with it: of the side that has dialled, and of the other
}

// offer makes the REQ for a queue pair, or for the one that p names.
func (t *terms) offer(p *ConnParam, m *manager, q *verbs.QP, local, peer netip.AddrPort) error {
	if t.typ == verbs.UD {
		return t.ask(p, local, peer)
	}
	if err := tooLong("REQ of RDMA-CM", len(p.PrivateData), MaxDialPrivate); err != nil {
		return err
	}
	if err := t.checkSecured(m, q); err != nil {
		return err
	}
	c := &t.cfg
	c.ResponderResources, c.InitiatorDepth = verbs.Set(p.ResponderResources), verbs.Set(p.InitiatorDepth)
	c.RetryCount, c.RNRRetry, c.FlowControl, c.PrivateData = verbs.Set(p.RetryCount), verbs.Set(p.RNRRetryCount), p.FlowControl, p.PrivateData
	t.req = c.request(t.typ, local, peer, randomPSN(m.dev))
	c.PrivateData = nil
	t.req.ECE = m.withSlots(t.req.ECE)
	t.req.PathMTU = uint8(mostMTU(m.dev, peer.Addr(), t.tls != nil))
	if t.req.LocalQPN, t.req.SRQ = p.QPN, p.SRQ; q != nil {
		t.req.LocalQPN, t.req.SRQ = q.QPN(), q.Config().SRQ != nil
	}
	if t.req.LocalQPN == 0 {
		return errors.New("there is no queue pair: call CreateQP, or set QPN")
	}
	return nil
}

// ask makes the SIDR_REQ: what a REQ has, too.
func (t *terms) ask(p *ConnParam, local, peer netip.AddrPort) error {
	ip := ipHeader(local, peer)
	t.req = mad.REQ{ServiceID: t.cfg.Space.Service(peer.Port()), Private: append(ip.AppendTo(nil), p.PrivateData...)}
	return tooLong("SIDR_REQ of RDMA-CM", len(p.PrivateData), MaxResolvePrivate)
}

// lower has the REQ ask for the path MTU that the peer takes, where it has
// rejected for it, and reports whether it does.
func (t *terms) lower(err error) bool {
	var rejected *RejectedError
	if !errors.As(err, &rejected) {
		return false
	}
	most := rejected.lessThan(t.req.PathMTU)
	if most == 0 {
		return false
	}
	t.req.PathMTU = uint8(most)
	return true
}

// take takes the answer of the peer.
func (t *terms) take(peer netip.Addr, rep *mad.REP) {
	t.ece = ECE(rep.ECE)
	t.wiring = t.cfg.wiring(t.typ, peer, &t.req, rep)
}

// grant makes the REP, and takes a queue pair to RTS; without one p names one
// that the program connects.
func (t *terms) grant(p *ConnParam, m *manager, q *verbs.QP, peer netip.Addr) (*mad.REP, error) {
	if err := tooLong("REP", len(p.PrivateData), MaxAcceptPrivate); err != nil {
		return nil, err
	}
	if q == nil && p.QPN == 0 {
		return nil, errors.New("there is no queue pair: call CreateQP, or set QPN")
	}
	if err := t.checkSecured(m, q); err != nil {
		return nil, err
	}
	w, rep := t.acceptance(peer, m.dev, p)
	rep.ECE = m.withSlots(rep.ECE)
	if rep.LocalQPN, rep.SRQ = p.QPN, p.SRQ; q != nil {
		rep.LocalQPN, rep.SRQ = q.QPN(), q.Config().SRQ != nil
		w.seal = t.control.seal(t.ids[0], t.ids[1])
		if err := w.apply(q); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

// acceptance returns the wiring, and the REP that says so. InitQPAttr may have
// asked for it before: then the first PSN stays as it is.
func (t *terms) acceptance(peer netip.Addr, dev *verbs.Device, p *ConnParam) (*wiring, *mad.REP) {
	w, rep := acceptance(peer, t.params, t.ece, randomPSN(dev), &AcceptConfig{
		PrivateData: p.PrivateData, FlowControl: p.FlowControl, ECE: t.localECE, RNRRetry: verbs.Set(p.RNRRetryCount),
		ResponderResources: verbs.Set(p.ResponderResources), InitiatorDepth: verbs.Set(p.InitiatorDepth)}, mostRdAtomic(dev))
	if t.wiring != nil {
		w.rqPSN, rep.StartingPSN = t.wiring.rqPSN, t.wiring.rqPSN
	}
	t.wiring = w
	return w, rep
}

// path is that of this side's MADs.
func (t *terms) path(local, peer netip.AddrPort) agent.Path {
	return agent.Path{Local: local.Addr().WithZone(""), Remote: peer.Addr().WithZone(""), TrafficClass: t.cfg.TrafficClass,
		FlowLabel: t.req.Primary.FlowLabel}
}
