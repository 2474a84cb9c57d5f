package qptest

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// defaultQKey is the Q_Key of both sides, unless a script says another one.
const defaultQKey = 0x11111111

var qpTypes = map[string]ib.QPType{"rc": ib.RC, "uc": ib.UC, "ud": ib.UD, "xrci": ib.XRCInitiator, "xrct": ib.XRCTarget}

// address says where a datagram goes: to the peer, unless qkey= and dqpn= say
// otherwise.
func (a *actor) address(w *args, wr *ib.SendWR) error {
	qkey, dqpn := uint64(defaultQKey), uint64(a.peer.qpn)
	err := w.nums(map[string]*uint64{"qkey": &qkey, "dqpn": &dqpn})
	wr.AH, wr.RemoteQKey, wr.RemoteQPN = a.to, uint32(qkey), rocev2.QPN(dqpn)
	return err
}

// cmdGRH: grh b 0x11000
func (s *scene) cmdGRH(words []string) error {
	_, b, err := s.span(append(words[:len(words):len(words)], "40"))
	if err != nil {
		return err
	}
	var h rocev2.GRH
	if err := h.Parse(b); err != nil {
		return err
	}
	s.printf("%v to %v class=%#x hops=%d protocol=%d length=%d", h.Src, h.Dst, h.TrafficClass, h.HopLimit, h.NextHeader, h.Length)
	return nil
}
