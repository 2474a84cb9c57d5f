package hca

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// What is posted to queue pairs with a peer completes, whatever others beside
// them do, lose or leave unfinished; and in the end nothing is in flight,
// nothing waits, and nothing is left.
func TestRandomTraffic(t *testing.T) {
	t.Parallel()
	for seed := range uint64(soakSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newSoak(t, seed).run() })
		})
	}
}

const (
	soakSeeds = 15
	soakLen   = 1 << 18 // bytes of the longest message
)

// soak is two devices with random traffic between them, and within the first.
type soak struct {
	t     *testing.T
	rng   *rand.Rand
	hosts [2]*host
	loop  bool // the first device loops back
	ends  map[endKey]*soakEnd
	order []*soakEnd
	about string
}

type endKey struct {
	h   *host
	qpn rocev2.QPN
}

// soakEnd is a queue pair.
type soakEnd struct {
	h      *host
	q      *QP
	mr     *MR      // its own: nothing orders what different shards do
	peer   *soakEnd // nil: it has none
	broken bool     // it, or its peer, was ended
	posted int
	done   int
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{t: t, rng: rand.New(rand.NewPCG(seed, 0)), ends: map[endKey]*soakEnd{}}
	pick := func(v ...int) int { return v[s.rng.IntN(len(v))] }
	cfg := Config{
		Window:    qp.WindowConfig{MaxBytes: pick(0, 4<<10, 8<<10, 32<<10, 256<<10), MaxPSNs: pick(0, 0, 4, 64)},
		ReadChunk: pick(0, 0, -1, 4096),
		MinProbe:  time.Duration(pick(0, 0, -1, int(100*time.Microsecond))),
		Loopback:  s.rng.IntN(3) == 0,
	}
	port := fabric.PortConfig{
		Delay: time.Duration(pick(0, 5, 100, 1000)) * time.Microsecond,
		Loss:  float64(pick(0, 0, 1, 3)) / 100, Duplicate: float64(pick(0, 0, 2)) / 100,
		Reorder: float64(pick(0, 0, 2)) / 100,
	}
	shards := pick(1, 1, 2)
	if shards == 1 && s.rng.IntN(2) == 0 {
		port.Rate, port.QueueBytes = 1e9, pick(0, 64<<10)
	}
	la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: port, Seed: seed})
	links := []transport.Link{la}
	if shards > 1 {
		var mu sync.Mutex
		links = []transport.Link{lockedLink{la, &mu}, mute{la, &mu, make(chan struct{})}}
	}
	s.loop = cfg.Loopback
	mtus := []rocev2.MTU{rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024, rocev2.MTU2048, rocev2.MTU4096}
	s.about = fmt.Sprintf("%+v, %+v, %d shards", cfg, port, shards)
	for i, d := range []*Device{New(cfg, links...), New(cfg, lb)} {
		s.hosts[i] = &host{t: t, dev: d, mtu: mtus[s.rng.IntN(len(mtus))]}
		s.hosts[i].equip()
	}
	s.hosts[1].mtu = s.hosts[0].mtu
	return s
}

func (s *soak) run() {
	for range 2 + s.rng.IntN(60) {
		s.open()
	}
	for range 300 {
		s.step()
		for _, h := range s.hosts {
			s.take(h)
		}
	}
	s.finish()
}

// step does something.
func (s *soak) step() {
	e := s.order[s.rng.IntN(len(s.order))]
	switch n := s.rng.IntN(100); {
	case n < 60:
		for range 1 + s.rng.IntN(8) {
			s.post(e)
		}
	case n < 63:
		s.open()
	case n < 66:
		s.end(e)
	case n < 90:
		time.Sleep(time.Duration(s.rng.IntN(300)) * time.Microsecond)
	case n < 92:
		time.Sleep(time.Duration(s.rng.IntN(100)) * time.Millisecond)
	default:
		s.hosts[s.rng.IntN(2)].dev.Progress()
	}
}

// open connects two queue pairs, or one to none.
func (s *soak) open() {
	addrs := [2]netip.Addr{testAddrA, testAddrB}
	i := s.rng.IntN(2)
	j := 1 - i
	if s.loop && s.rng.IntN(3) == 0 {
		i, j = 0, 0
	}
	a := &soakEnd{h: s.hosts[i]}
	a.q = a.h.newQP()
	av := ib.AddressVector{HopLimit: 64, Native: s.rng.IntN(2) == 0}
	s.add(a)
	if s.rng.IntN(8) == 0 {
		av.DGID, av.Native = addrs[j], true
		a.h.connectVia(a.q, av, 77)
		return
	}
	b := &soakEnd{h: s.hosts[j], peer: a}
	b.q = b.h.newQP()
	a.peer = b
	s.add(b)
	av.DGID = addrs[j]
	a.h.connectVia(a.q, av, b.q.QPN())
	av.DGID = addrs[i]
	b.h.connectVia(b.q, av, a.q.QPN())
}

func (s *soak) add(e *soakEnd) {
	var err error
	e.mr, err = e.h.pd.Register(memreg.Local(make([]byte, soakLen)),
		memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead}, nil)
	e.h.must(err)
	s.ends[endKey{e.h, e.q.QPN()}] = e
	s.order = append(s.order, e)
}

func (s *soak) post(e *soakEnd) {
	if e.posted-e.done >= 16 || e.broken {
		return
	}
	n := uint32(s.rng.IntN(1 << s.rng.IntN(19)))
	to := e.mr.Region()
	if e.peer != nil {
		to = e.peer.mr.Region()
	}
	wr := ib.SendWR{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{e.mr.Region().SGE(0, n)},
		Remote: ib.RemoteAddr{Addr: to.Addr(), RKey: to.RKey()}, Fence: s.rng.IntN(4) == 0}
	switch s.rng.IntN(4) {
	case 0:
		wr.Opcode = ib.OpRead
	case 1:
		wr.Opcode = ib.OpSend
		if p := e.peer; p != nil {
			// A receive that does not fit any more is one that the
			// SEND waits for.
			if _, err := p.q.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{p.mr.Region().SGE(0, soakLen)}}}); err != nil {
				wr.Opcode = ib.OpWrite
			}
		}
	}
	if _, err := e.q.PostSend([]ib.SendWR{wr}); err != nil {
		s.t.Errorf("post: %v", err)
	}
	e.posted++
}

// end ends a queue pair in one of many ways.
func (s *soak) end(e *soakEnd) {
	if e.broken {
		return
	}
	e.broken = true
	if e.peer != nil {
		e.peer.broken = true
	}
	switch s.rng.IntN(4) {
	case 0:
		e.h.must(e.q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	case 1:
		e.h.must(e.q.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
	default:
		e.h.must(e.q.Close())
	}
}

// take takes the completions of a host.
func (s *soak) take(h *host) {
	var wc [64]ib.WC
	for n := h.cq.Poll(wc[:]); n > 0; n = h.cq.Poll(wc[:]) {
		s.took(h, wc[:n])
	}
}

func (s *soak) took(h *host, wcs []ib.WC) {
	for _, c := range wcs {
		e := s.ends[endKey{h, c.QPN}]
		if e.broken || e.peer == nil && c.Status != ib.StatusSuccess {
			continue
		}
		if c.Status != ib.StatusSuccess {
			s.t.Fatalf("%s: %v %v", s.about, c.Opcode, c.Status)
		}
		if c.Opcode != ib.WCRecv {
			e.done++
		}
	}
}

// finish waits for everything, and looks at what is left.
func (s *soak) finish() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	for _, e := range s.order {
		for !e.broken && e.peer != nil && e.done < e.posted {
			var wc [64]ib.WC
			n, err := e.h.cq.Wait(ctx, wc[:])
			if err != nil {
				s.t.Fatalf("%s: %d of %d requests: %v", s.about, e.done, e.posted, err)
			}
			s.took(e.h, wc[:n])
		}
	}
	time.Sleep(10 * time.Minute) // those without a peer give up
	synctest.Wait()
	for _, h := range s.hosts {
		for _, sh := range h.dev.shards {
			sh.lock()
			if u := sh.eng.Usage(); u.InFlight != 0 || u.Busy != 0 || u.Limited != 0 {
				s.t.Errorf("%s: %d bytes in flight of %d queue pairs, %d wait", s.about, u.InFlight, u.Busy, u.Limited)
			}
			if sh.eng.Pending() || sh.out.sent != nil || sh.eng.Usage().Delayed > 0 {
				s.t.Errorf("%s: something is left to send", s.about)
			}
			sh.unlock()
		}
	}
	for _, e := range s.order {
		if held := e.q.core.Core().Halves().Held(); held != 0 {
			s.t.Errorf("%s: %d packets are kept", s.about, held)
		}
		if e.peer == nil && e.posted > 0 && !e.broken && e.q.State() != ib.StateErr {
			s.t.Errorf("%s: a queue pair without a peer is in %v", s.about, e.q.State())
		}
		e.h.must(e.q.Close())
	}
	for _, h := range s.hosts {
		for _, sh := range h.dev.shards {
			sh.lock()
			if u := sh.eng.Usage(); u.Peers != 0 || u.QPs != 0 || u.Sending != 0 {
				s.t.Errorf("%s: left is %+v", s.about, u)
			}
			sh.unlock()
		}
	}
}
