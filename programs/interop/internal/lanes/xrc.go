package lanes

import (
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// domain is what holds the receives of XRC.
type domain struct{ xrcd *verbs.XRCD }

// openDomain makes the domain of XRC, and the receive queue in it.
func (s *Set) openDomain(q verbs.SRQConfig) (err error) {
	if s.domain.xrcd, err = s.cfg.Dev.OpenXRCD(); err != nil {
		return err
	}
	q.XRCD, q.CQ = s.domain.xrcd, s.cfg.CQ
	s.srq, err = s.cfg.PD.CreateSRQ(q)
	return err
}

func (s *Set) closeDomain() {
	if s.domain.xrcd != nil {
		s.domain.xrcd.Close()
	}
}

// makeXRC makes an initiator if this side sends, and a target if it receives.
func (s *Set) makeXRC(l *Lane, q verbs.QPConfig) (err error) {
	if s.cfg.Sends {
		q.Type, q.RecvCQ, q.SRQ = verbs.XRCInitiator, nil, nil
		if l.Send, err = s.cfg.PD.CreateQP(q); err != nil {
			return err
		}
	}
	if s.cfg.Receives {
		l.Recv, err = s.cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: s.domain.xrcd})
	}
	return err
}

// SRQN returns the number of the receive queue that a peer must name with XRC,
// else 0.
func (s *Set) SRQN() uint32 {
	if s.cfg.Service != interop.XRC {
		return 0
	}
	return s.srq.Number()
}
