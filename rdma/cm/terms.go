package cm

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// What REQ and REP say, and what each side makes of it. Both faces use it.

const (
	maxRdAtomic        = 128 // what a device can do
	defaultRdAtomic    = 16
	defaultAckTimeout  = 14
	defaultMinRNRTimer = 12
	defaultHopLimit    = 64

	// maxAckTimeout bounds what a client asks of this side: 8.6 s. Else it
	// could have this side wait for hours for an acknowledgement, and
	// nothing would show that it is gone.
	maxAckTimeout = 21

	// ackDelay is the code of the time that an acknowledgement takes here
	// at most, on a busy machine: 17 ms.
	ackDelay = 12
)

// randomPSN returns the PSN that the peer of a device is to begin with.
func randomPSN(dev *verbs.Device) verbs.PSN { return verbs.HCA(dev).RandomPSN() }

func ipHeader(local, peer netip.AddrPort) mad.IPHeader {
	return mad.IPHeader{SourcePort: local.Port(), Source: local.Addr().WithZone(""), Destination: peer.Addr().WithZone("")}
}

// request makes the REQ for a queue pair of a type, but for what is the queue
// pair's own, and the path MTU if it is not given.
func (cfg *DialConfig) request(typ verbs.QPType, local, peer netip.AddrPort, psn verbs.PSN) mad.REQ {
	flow := cfg.FlowLabel
	if flow == 0 { // so Linux spreads its connections over the peer's queues
		flow = (uint32(local.Port())*31 + uint32(peer.Port())) & 0xfffff
	}
	ip := ipHeader(local, peer)
	req := mad.REQ{
		ServiceID: cfg.Space.Service(peer.Port()), StartingPSN: psn,
		ResponderResources: min(cfg.ResponderResources.Or(defaultRdAtomic), maxRdAtomic),
		InitiatorDepth:     min(cfg.InitiatorDepth.Or(defaultRdAtomic), maxRdAtomic),
		FlowControl:        cfg.FlowControl,
		RetryCount:         min(cfg.RetryCount.Or(7), 7),
		RNRRetryCount:      min(cfg.RNRRetry.Or(7), 7),
		PathMTU:            uint8(cfg.PathMTU), MaxRetries: min(cfg.Retries, 15),
		Primary: mad.Path{FlowLabel: flow, TrafficClass: cfg.TrafficClass, AckTimeout: cfg.AckTimeout},
		Private: append(ip.AppendTo(nil), cfg.PrivateData...),
	}
	if cfg.AckTimeout == 0 {
		req.Primary.AckTimeout = defaultAckTimeout
	}
	switch typ {
	case verbs.UC:
		req.Transport = mad.TransportUC
	case verbs.XRCInitiator:
		req.Transport, req.ExtendedTransport = mad.TransportExtended, mad.ExtendedXRC
	}
	switch {
	case cfg.NoECE:
	case cfg.ECE != ECE{}:
		req.ECE = mad.ECE(cfg.ECE)
	default:
		req.ECE = mad.ECE(own)
		if cfg.PathMTU != 0 {
			req.ECE.Options &^= optionLessMTU
		}
	}
	return req
}

// wiring returns what the side that has sent req makes of the REP.
func (cfg *DialConfig) wiring(typ verbs.QPType, peer netip.Addr, req *mad.REQ, rep *mad.REP) *wiring {
	return &wiring{
		peer: peer, rqPSN: req.StartingPSN,
		minRNRTimer: cfg.MinRNRTimer.Or(defaultMinRNRTimer), access: cfg.Access,
		native: !cfg.NoECE && ECE(rep.ECE).native(), slots: ECE(rep.ECE).slots(), sourcePort: cfg.SourcePort,
		params: Params{
			Type: typ, QPN: rep.LocalQPN, PSN: rep.StartingPSN, PathMTU: agreedMTU(req, rep),
			ResponderResources: min(rep.InitiatorDepth, maxRdAtomic),
			InitiatorDepth:     min(rep.ResponderResources, req.InitiatorDepth),
			AckTimeout:         ackTimeout(req.Primary.AckTimeout, rep.TargetAckDelay),
			RetryCount:         req.RetryCount, RNRRetry: rep.RNRRetryCount,
			FlowControl: rep.FlowControl, SRQ: rep.SRQ,
			TrafficClass: req.Primary.TrafficClass, FlowLabel: req.Primary.FlowLabel, HopLimit: defaultHopLimit,
		},
	}
}

// ackTimeout returns the code of the local ACK timeout of a side whose peer
// takes a time to acknowledge: about the sum of the two (IBTA 12.7.34).
func ackTimeout(timeout, delay uint8) uint8 {
	switch {
	case delay > timeout:
		timeout = delay + 1
	case delay > 0 && delay+1 >= timeout:
		timeout++
	}
	return min(timeout, 31)
}

// mostRdAtomic returns how many READs and atomics a queue pair of a device has
// outstanding at most, either way.
func mostRdAtomic(dev *verbs.Device) uint8 {
	return uint8(min(verbs.HCA(dev).Limits().RdAtomic, maxRdAtomic))
}

// acceptance returns what the side that accepts a request makes of it, and the
// REP, but for what is the queue pair's own. most is mostRdAtomic of its
// device.
func acceptance(peer netip.Addr, p Params, ece ECE, psn verbs.PSN, cfg *AcceptConfig, most uint8) (*wiring, *mad.REP) {
	p.ResponderResources = min(p.ResponderResources, cfg.ResponderResources.Or(most), most)
	p.InitiatorDepth = min(p.InitiatorDepth, cfg.InitiatorDepth.Or(most), most)
	p.AckTimeout = min(p.AckTimeout, maxAckTimeout)
	w := &wiring{peer: peer, params: p, rqPSN: psn,
		minRNRTimer: cfg.MinRNRTimer.Or(defaultMinRNRTimer), access: cfg.Access,
		native: ece.native(), slots: ece.slots(), sourcePort: cfg.SourcePort, stayReceiver: cfg.ReceiveOnly}
	rep := &mad.REP{
		StartingPSN:        w.rqPSN,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		TargetAckDelay: ackDelay, FlowControl: cfg.FlowControl,
		RNRRetryCount: min(cfg.RNRRetry.Or(7), 7),
		Private:       cfg.PrivateData,
	}
	switch {
	case ece == ECE{}: // Linux takes no ECE that it has not asked for
	case p.lessMTU:
		rep.ECE = mad.ECE(own.withMTU(p.PathMTU))
	case cfg.ECE != ECE{}:
		rep.ECE = mad.ECE(cfg.ECE)
	default:
		rep.ECE = mad.ECE(own)
	}
	return w, rep
}
