package ours

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	// targetBytes is how much memory the peer writes to and reads from at
	// least; larger messages get as much as they need.
	targetBytes = 1 << 20
	// recvAhead is how many receives a SEND finds posted, as a multiple of
	// the sender's depth: completions of the receiver may be late.
	recvAhead = 64
	maxRecvs  = 32 << 10
)

// side is a device with its queue pairs, connected to those of the peer.
type side struct {
	cfg    Config
	dev    *verbs.Device
	link   *fault.Link // nil without faults
	pd     *verbs.PD
	cq     *verbs.CQ
	ch     *verbs.CompChannel // nil unless events are asked for
	qps    []*verbs.QP
	ahs    []*verbs.AddressHandle // UD: of the peer, one for each queue pair
	peers  []verbs.QPN            // UD: its queue pairs
	source *verbs.MR
	target *verbs.MR
	extra  []*verbs.MR
	remote verbs.RemoteMemory

	before atomic.Pointer[pair.Costs] // at the beginning of what is measured
}

// hello is what the peer must know.
type hello struct {
	Endpoints []verbs.Endpoint   `json:"endpoints"`
	Target    verbs.RemoteMemory `json:"target"`
}

// depth returns the entries of a queue pair's send queue.
func (c *Config) depth() int {
	if c.Test == Memory {
		return c.Depth
	}
	return min(max(2*c.Depth/c.QPs, 4*c.Burst, 16), 8192)
}

// recvDepth returns the entries of a queue pair's receive queue.
func (c *Config) recvDepth() int {
	if c.Op != "send" {
		return c.depth()
	}
	return min(recvAhead*max(c.Depth/c.QPs, 32), maxRecvs)
}

func (s *side) openDevice() error {
	addr, err := netip.ParseAddr(s.cfg.Addr)
	if err != nil {
		return err
	}
	if !s.cfg.Fault {
		s.dev, err = verbs.OpenAddr(addr, verbs.Config{SharedMemory: s.cfg.Shm, Sealing: s.cfg.Seal != Clear})
		return err
	}
	link, err := udp.Open(addr, udp.Config{})
	if err != nil {
		return err
	}
	var rules []fault.Rule
	if s.cfg.Loss > 0 {
		rules = []fault.Rule{{Action: fault.Drop, Direction: fault.Tx, Rate: s.cfg.Loss}}
	}
	// A fixed seed: which packets are lost is the same from run to run, as
	// far as the sequence of packets is.
	s.link = fault.New(link, 20+uint64(addr.As16()[15]), rules...)
	s.dev, err = verbs.OpenLink(s.link, verbs.Config{})
	return err
}

// Hello opens the device, if it has none yet, and makes everything on it.
func (s *side) Hello() (any, error) {
	if s.dev == nil {
		if err := s.openDevice(); err != nil {
			return nil, err
		}
	}
	var err error
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return nil, err
	}
	var opts []verbs.CQOption
	if s.cfg.Events {
		if s.ch, err = s.dev.CreateCompChannel(); err != nil {
			return nil, err
		}
		opts = append(opts, verbs.WithChannel(s.ch))
	}
	entries := min(2*max(s.cfg.Depth, 64)+s.cfg.recvDepth()*s.cfg.QPs+1024, 1<<18)
	if s.cfg.Test == Memory {
		entries = 1024
	}
	if s.cq, err = s.dev.CreateCQ(entries, opts...); err != nil {
		return nil, err
	}
	n := max(targetBytes, s.cfg.grh()+s.cfg.Size)
	access := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	if s.source, err = s.pd.AllocMemory(n, access); err != nil {
		return nil, err
	}
	if s.target, err = s.pd.AllocMemory(n, access); err != nil {
		return nil, err
	}
	for _, mr := range []*verbs.MR{s.source, s.target} { // every page is there before the clock runs
		b := mr.Bytes()
		for i := 0; i < len(b); i += os.Getpagesize() / 2 {
			b[i] = byte(i) // the first stays 0: a WRITE latency test waits for it to change
		}
	}
	for len(s.extra) < s.cfg.Regions {
		mr, err := s.pd.RegisterMemory(s.target.Bytes()[:4096], access)
		if err != nil {
			return nil, fmt.Errorf("registering region %d: %w", len(s.extra), err)
		}
		s.extra = append(s.extra, mr)
	}
	if s.cfg.Test == Memory {
		return nil, nil // the queue pairs come later, between two measurements
	}
	return s.createQPs()
}

func (s *side) createQPs() (*hello, error) {
	h := &hello{Target: s.target.Remote(), Endpoints: make([]verbs.Endpoint, 0, s.cfg.QPs)}
	s.qps = make([]*verbs.QP, 0, s.cfg.QPs)
	for range s.cfg.QPs {
		q, err := s.pd.CreateQP(verbs.QPConfig{
			Type: s.cfg.qpType(), SendCQ: s.cq, RecvCQ: s.cq,
			MaxSendWR: s.cfg.depth(), MaxRecvWR: s.cfg.recvDepth(), MaxSendSGE: 1, MaxRecvSGE: 1,
		})
		if err != nil {
			return nil, fmt.Errorf("queue pair %d: %w", len(s.qps), err)
		}
		s.qps = append(s.qps, q)
		h.Endpoints = append(h.Endpoints, q.Endpoint())
	}
	return h, nil
}

// Connect connects every queue pair with the peer's of the same place.
func (s *side) Connect(raw json.RawMessage) error {
	var h hello
	if err := json.Unmarshal(raw, &h); err != nil {
		return err
	}
	if len(h.Endpoints) != len(s.qps) {
		return fmt.Errorf("the peer has %d queue pairs, not %d", len(h.Endpoints), len(s.qps))
	}
	mtu, err := verbs.MTUOf(s.cfg.MTU)
	if err != nil {
		return err
	}
	s.remote = h.Target
	for i, q := range s.qps {
		if err := q.Init(); err != nil {
			return err
		}
		if s.cfg.Op == "send" {
			if err := s.postRecvs(q, i, s.cfg.recvDepth()); err != nil {
				return err
			}
		}
		if err := s.connect(q, h.Endpoints[i], mtu); err != nil {
			return fmt.Errorf("connecting queue pair %d: %w", i, err)
		}
		if s.cfg.Seal != Clear {
			if err := s.secure(q, h.Endpoints[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// recvFlag marks the IDs of receives; the rest is the queue pair's index.
const recvFlag = 1 << 63

// postRecvs posts n receives. They share memory: what arrives is never read.
func (s *side) postRecvs(q *verbs.QP, index, n int) error {
	wr := verbs.RecvWR{ID: recvFlag | uint64(index), SGList: []verbs.SGE{s.target.Slice(0, s.cfg.grh()+max(s.cfg.Size, 8))}}
	for range n {
		if err := q.PostRecv(wr); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the device.
func (s *side) Close() error {
	if s.dev == nil {
		return nil
	}
	return s.dev.Close()
}

func opcode(op string) (verbs.Opcode, error) {
	switch op {
	case "write":
		return verbs.OpWrite, nil
	case "send":
		return verbs.OpSend, nil
	case "read":
		return verbs.OpRead, nil
	case "atomic":
		return verbs.OpFetchAdd, nil
	}
	return 0, fmt.Errorf("there is no operation %q", op)
}
