package ours

import (
	"context"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/verbs"
)

// qkey is the Q_Key of all datagrams.
const qkey = 0x11111111

// reliable reports whether what is lost is sent again.
func (c *Config) reliable() bool { return c.Service == RC }

// qpType returns the type of the queue pairs.
func (c *Config) qpType() verbs.QPType {
	switch c.Service {
	case UC:
		return verbs.UC
	case UD:
		return verbs.UD
	}
	return verbs.RC
}

// grh returns how many bytes of a receive come before the message.
func (c *Config) grh() int {
	if c.Service == UD {
		return verbs.GRHLen
	}
	return 0
}

// connect makes a queue pair ready for both directions.
func (s *side) connect(q *verbs.QP, peer verbs.Endpoint, mtu verbs.MTU) error {
	if s.cfg.Service != UD {
		opts := []verbs.ConnectOption{verbs.WithMTU(mtu)}
		if s.cfg.Foreign { // from a port that shows nothing either
			peer.Native = false
			opts = append(opts, verbs.WithSourcePort(verbs.AutoSourcePort))
		}
		return q.Connect(context.Background(), peer, opts...)
	}
	ah, err := s.pd.CreateAH(verbs.AddressVector{DGID: peer.Addr})
	if err != nil {
		return err
	}
	s.ahs, s.peers = append(s.ahs, ah), append(s.peers, peer.QPN)
	return q.Activate(qkey)
}

// address says where a request of queue pair i goes.
func (s *side) address(wr *verbs.SendWR, i int) {
	if s.cfg.Service == UD {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ahs[i], s.peers[i], qkey
	}
}

// drainTime is for how long the receiver of an unreliable service takes what is
// still under way when the sender is done.
const drainTime = 100 * time.Millisecond

// delivered makes the sample of an unreliable service tell of what arrived, and
// of what did not.
func delivered(s *cell.Sample, passive, active pair.Result) {
	sent, got := active.Values["sent"], passive.Values["received"]
	if sent == 0 || got > sent {
		*s = cell.Failed(fmt.Errorf("rocev2: %.0f messages were sent and %.0f received", sent, got))
		return
	}
	part := got / sent
	s.Value *= part
	for _, rate := range []string{"gbps", "mmsg"} {
		if _, ok := s.Extra[rate]; ok {
			s.Extra[rate] *= part
		}
	}
	s.Extra[cell.LostPercent] = 100 * (1 - part)
	if s.Count == nil {
		s.Count = map[string]uint64{}
	}
	s.Count["messages lost"] = uint64(sent - got)
}
