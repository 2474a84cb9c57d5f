// Package lanes has the queue pairs of a test, whatever their transport service
// is. A lane is a queue pair for both directions, or, with XRC, one for each.
package lanes

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config says which lanes a test needs.
type Config struct {
	Dev     *verbs.Device
	PD      *verbs.PD
	Service interop.Service
	Shared  bool      // one shared receive queue for all; XRC has it always
	Count   int       // lanes
	CQ      *verbs.CQ // takes all completions

	MaxSendWR int // of each lane
	MaxRecvWR int // of each lane, or of the shared receive queue
	MaxInline int

	// Sends and Receives say what this side does. With XRC it makes only
	// the queue pairs for that, and the others are of no account.
	Sends, Receives bool
}

// Set holds the lanes.
type Set struct {
	Lanes []Lane

	cfg    Config
	srq    *verbs.SRQ
	domain domain // XRC
}

// Lane is one of them.
type Lane struct {
	Send *verbs.QP // has the requests; nil with XRC where this side only receives
	Recv *verbs.QP // takes the peer's; the same as Send, except with XRC

	ah   *verbs.AddressHandle // UD: of the peer
	peer Peer
}

// Peer is the other end of a lane.
type Peer struct {
	Addr    netip.Addr
	SendQPN verbs.QPN // from which its requests come
	SendPSN verbs.PSN // of the first of them
	RecvQPN verbs.QPN // which takes requests; the same as SendQPN, except with XRC
	RecvPSN verbs.PSN
	SRQN    uint32 // XRC: of its shared receive queue
	Native  bool   // as in verbs.Endpoint
}

// New makes lanes whose queue pairs are in RESET. On an error it releases what
// it has made.
func New(c Config) (*Set, error) {
	s := &Set{cfg: c}
	if err := s.make(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Set) make() (err error) {
	c := &s.cfg
	q := verbs.SRQConfig{MaxWR: c.MaxRecvWR, MaxSGE: 1}
	switch {
	case c.Service == interop.XRC:
		err = s.openDomain(q)
	case c.Shared:
		s.srq, err = c.PD.CreateSRQ(q)
	}
	if err != nil {
		return err
	}
	for range c.Count {
		s.Lanes = append(s.Lanes, Lane{})
		if err := s.makeLane(&s.Lanes[len(s.Lanes)-1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) makeLane(l *Lane) (err error) {
	c := &s.cfg
	q := verbs.QPConfig{SendCQ: c.CQ, RecvCQ: c.CQ, MaxSendWR: c.MaxSendWR, MaxInline: c.MaxInline, SRQ: s.srq}
	if s.srq == nil {
		q.MaxRecvWR = c.MaxRecvWR
	}
	switch c.Service {
	case interop.UC:
		q.Type = verbs.UC
	case interop.UD:
		q.Type = verbs.UD
	case interop.XRC:
		return s.makeXRC(l, q)
	}
	if l.Send, err = s.cfg.PD.CreateQP(q); err != nil {
		return err
	}
	l.Recv = l.Send
	return nil
}

// Close frees everything.
func (s *Set) Close() {
	for i := range s.Lanes {
		l := &s.Lanes[i]
		if l.Send != nil {
			l.Send.Close()
		}
		if l.Recv != nil && l.Recv != l.Send {
			l.Recv.Close()
		}
		if l.ah != nil {
			l.ah.Close()
		}
	}
	if s.srq != nil {
		s.srq.Close()
	}
	s.closeDomain()
}

// Init takes the queue pairs to INIT, from where on receives can be posted.
func (s *Set) Init(c verbs.ConnectConfig) error {
	for i := range s.Lanes {
		l := &s.Lanes[i]
		for _, q := range l.Both() {
			if err := q.Init(verbs.WithConfig(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Both returns the queue pairs of the lane.
func (l *Lane) Both() []*verbs.QP {
	switch {
	case l.Send == nil:
		return []*verbs.QP{l.Recv}
	case l.Recv == nil || l.Recv == l.Send:
		return []*verbs.QP{l.Send}
	}
	return []*verbs.QP{l.Send, l.Recv}
}

// Connect makes lane i ready for both directions.
func (s *Set) Connect(ctx context.Context, i int, p Peer, c verbs.ConnectConfig) (err error) {
	l := &s.Lanes[i]
	l.peer = p
	opt := verbs.WithConfig(c)
	if s.cfg.Service == interop.UD {
		if err := l.Send.Activate(interop.QKey, opt); err != nil {
			return err
		}
		l.ah, err = s.cfg.PD.CreateAH(verbs.AddressVector{
			DGID: p.Addr, TrafficClass: c.TrafficClass, HopLimit: c.HopLimit, SrcPort: c.SourcePort, Native: p.Native,
		})
		return err
	}
	if l.Send != nil {
		to := verbs.Endpoint{Addr: p.Addr, QPN: p.RecvQPN, PSN: p.RecvPSN, Native: p.Native}
		if err := l.Send.Connect(ctx, to, opt); err != nil {
			return err
		}
	}
	if l.Recv != nil && l.Recv != l.Send {
		from := verbs.Endpoint{Addr: p.Addr, QPN: p.SendQPN, PSN: p.SendPSN, Native: p.Native}
		return l.Recv.Connect(ctx, from, opt)
	}
	return nil
}

// Address fills in where a request of lane i goes, as far as its service wants
// that of each request.
func (s *Set) Address(i int, wr *verbs.SendWR) {
	l := &s.Lanes[i]
	switch s.cfg.Service {
	case interop.UD:
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = l.ah, l.peer.RecvQPN, interop.QKey
	case interop.XRC:
		wr.RemoteSRQN = l.peer.SRQN
	}
}

// PostRecv posts receives for lane i, or for all lanes where they share them.
func (s *Set) PostRecv(i int, wrs ...verbs.RecvWR) error {
	if s.srq != nil {
		return s.srq.PostRecv(wrs...)
	}
	return s.Lanes[i].Recv.PostRecv(wrs...)
}

// Find returns the lane that a completion is of.
func (s *Set) Find(qpn verbs.QPN) (int, error) {
	if len(s.Lanes) == 1 {
		return 0, nil
	}
	for i := range s.Lanes {
		if l := &s.Lanes[i]; l.Send != nil && l.Send.QPN() == qpn || l.Recv != nil && l.Recv.QPN() == qpn {
			return i, nil
		}
	}
	return 0, fmt.Errorf("a completion of QP %v, which is not of this run", qpn)
}

// Received counts the peer's packets, without dropped ones, which may come from
// any host.
func (s *Set) Received() (n uint64) {
	for i := range s.Lanes {
		for _, q := range s.Lanes[i].Both() {
			st := q.Stats()
			n += st.RxPackets - st.Drops.Total()
		}
	}
	return n
}

// GRH returns how many bytes of a receive come before the message.
func GRH(s interop.Service) int {
	if s == interop.UD {
		return verbs.GRHLen
	}
	return 0
}
