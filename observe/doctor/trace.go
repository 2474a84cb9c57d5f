package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/observe/doctor/ping"
	"github.com/gosoftroce/rocev2/observe/doctor/probe"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Prober sends packets of some size with some hop limit, 0 the system's: a
// *probe.Prober.
type Prober interface {
	Probe(ctx context.Context, hops, size int, timeout time.Duration) (probe.Answer, error)
}

// Pinger asks the peer itself, with some hop limit: a *ping.Pinger.
type Pinger interface {
	Once(ctx context.Context, hops uint8, timeout time.Duration) (ping.Reply, bool, error)
}

// headroom is what a RoCEv2 packet commonly has besides its payload, at most:
// UDP, BTH, RETH, immediate data, ICRC.
const headroom = 8 + 12 + 16 + 4 + 4

// packetSize returns the bytes of an IP packet to a peer with a payload of m.
func packetSize(peer netip.Addr, m rocev2.MTU) int {
	if peer.Is4() {
		return 20 + headroom + m.Bytes()
	}
	return 40 + headroom + m.Bytes()
}

// pathMTU returns the largest path MTU, in bytes, whose packets to the peer fit
// into a number of bytes; 0 if none does.
func pathMTU(peer netip.Addr, bytes int) int {
	for m := rocev2.MTU4096; m.Valid(); m-- {
		if packetSize(peer, m) <= bytes {
			return m.Bytes()
		}
	}
	return 0
}

// Hop is a step on the way to a peer.
type Hop struct {
	Hops int             `json:"hop"` // from 1 on
	Addr netip.Addr      `json:"address,omitzero"`
	RTTs []time.Duration `json:"rtt_ns,omitempty"`
	Peer bool            `json:"peer"` // it is the peer itself
	MTU  int             `json:"mtu"`  // bytes of an IP packet that has come so far
	Note string          `json:"note,omitempty"`
}

// TraceConfig says how a way is traced. Zero values mean the defaults.
type TraceConfig struct {
	Peer    netip.Addr
	MTU     int           // bytes of an IP packet that the own interface carries
	MaxHops int           // 0 means 30
	Queries int           // of each hop; 0 means 3
	Timeout time.Duration // of each query; 0 means 1 s
	OnHop   func(Hop)     // if set, is called for each hop
}

// TraceResult is the way to a peer.
type TraceResult struct {
	Hops    []Hop `json:"hops"`
	Reached bool  `json:"reached"`
	MTU     int   `json:"mtu"`      // bytes of an IP packet that came as far as hops answer; 0 if none does
	PathMTU int   `json:"path_mtu"` // the largest that fits into it
}

// silentLimit is how many hops in a row may be silent where the peer does not
// answer either.
const silentLimit = 5

// Trace goes to a peer step by step: it sends packets of the largest size that
// has come through so far, with rising hop limit. A peer that has RoCEv2 is
// silent to them, so it is asked by ping, which may be nil.
func Trace(ctx context.Context, p Prober, ask Pinger, c TraceConfig) (TraceResult, error) {
	t := &tracer{Prober: p, ask: ask, c: c}
	t.c.MaxHops, t.c.Queries, t.c.Timeout = cmp.Or(c.MaxHops, 30), cmp.Or(c.Queries, 3), cmp.Or(c.Timeout, time.Second)
	t.size = min(cmp.Or(c.MTU, 1500), packetSize(c.Peer, rocev2.MTU4096))
	var r TraceResult
	silent := 0
	if ask != nil {
		_, ok, err := ask.Once(ctx, 0, t.c.Timeout)
		if err != nil {
			return r, err
		}
		if t.answers = ok; !ok {
			t.ask = nil
		}
	}
	for n := 1; n <= t.c.MaxHops; n++ {
		hop, last, err := t.hop(ctx, n)
		if err != nil {
			return r, err
		}
		if silent++; hop.Addr.IsValid() {
			silent = 0
		}
		r.Hops = append(r.Hops, hop)
		if r.Reached = hop.Peer; hop.MTU > 0 {
			r.MTU = hop.MTU
		}
		r.MTU = min(r.MTU, t.size)
		if c.OnHop != nil {
			c.OnHop(hop)
		}
		if last || silent >= silentLimit && !t.answers {
			break
		}
	}
	r.PathMTU = pathMTU(c.Peer, r.MTU)
	return r, nil
}

type tracer struct {
	Prober
	ask     Pinger
	answers bool // the peer does, to pings
	c       TraceConfig
	size    int
}

// hop asks a hop, and says whether it is the last one.
func (t *tracer) hop(ctx context.Context, n int) (h Hop, last bool, err error) {
	h = Hop{Hops: n}
	for len(h.RTTs) < t.c.Queries {
		a, err := t.Probe(ctx, n, t.size, t.c.Timeout)
		if err != nil {
			return h, true, err
		}
		switch a.Kind {
		case probe.TooBig:
			t.shrink(&h, a)
			if t.size < probe.MinSize(t.c.Peer) {
				return h, true, nil
			}
			continue
		case probe.Silent:
			if len(h.RTTs) > 0 {
				return h, h.Peer, nil
			}
			return t.silent(ctx, h)
		}
		h.RTTs = append(h.RTTs, a.RTT)
		h.Addr, h.MTU = a.From, t.size
		if a.Kind != probe.TimeUp {
			h.Peer = a.Reached(t.c.Peer)
			h.Note = t.endNote(a)
			return h, true, nil
		}
	}
	return h, false, nil
}

func (t *tracer) endNote(a probe.Answer) string {
	switch {
	case a.Local:
		return "this host: " + a.Kind.String()
	case a.Kind == probe.Refused && a.Reached(t.c.Peer):
		return "the peer is there, and no process has UDP port 4791"
	}
	return a.Kind.String()
}

// shrink records what does not fit.
func (t *tracer) shrink(h *Hop, a probe.Answer) {
	old := t.size
	if t.size = a.MTU; a.MTU <= 0 || a.MTU >= old {
		t.size = packetSize(t.c.Peer, rocev2.MTU256)
		if m, err := rocev2.MTUOf(pathMTU(t.c.Peer, old-1)); err == nil {
			t.size = packetSize(t.c.Peer, m)
		}
		if t.size >= old {
			t.size = 0
		}
	}
	who := "the interface of this host"
	if !a.Local {
		who = fmt.Sprint(a.From)
	}
	h.Note = fmt.Sprintf("%s passes %d bytes on, not %d", who, t.size, old)
	if a.Local && a.MTU == 0 {
		h.Note = fmt.Sprintf("%s drops %d bytes: the other end of its cable takes less", who, old)
	}
}

// silent asks in other ways: the peer itself, and with a small packet.
func (t *tracer) silent(ctx context.Context, h Hop) (Hop, bool, error) {
	if t.ask != nil {
		for range t.c.Queries {
			r, ok, err := t.ask.Once(ctx, uint8(h.Hops), t.c.Timeout)
			if err != nil {
				return h, true, err
			}
			if !ok {
				break
			}
			h.RTTs, h.Addr, h.Peer = append(h.RTTs, r.RTT), t.c.Peer, true
		}
		if h.Peer {
			h.Note = "answers RoCEv2 pings"
			return h, true, nil
		}
	}
	a, err := t.Probe(ctx, h.Hops, probe.MinSize(t.c.Peer), t.c.Timeout)
	if err != nil || a.Kind == probe.Silent {
		return h, false, err
	}
	h.Addr, h.RTTs, h.MTU = a.From, append(h.RTTs, a.RTT), probe.MinSize(t.c.Peer)
	h.Note = fmt.Sprintf("answers to %d bytes, not to %d: large packets may vanish before it, in silence", h.MTU, t.size)
	if a.Kind != probe.TimeUp {
		h.Peer = a.Reached(t.c.Peer)
		return h, true, nil
	}
	return h, false, nil
}

// OpenPath makes what Trace and Sizes need to send to a peer from an address.
// The prober of ICMP is nil where the system does not allow it.
func OpenPath(local, peer netip.Addr) (*Path, error) {
	p := &Path{Peer: peer}
	var err error
	if p.Port, err = probe.Open(local, netip.AddrPortFrom(peer, rocev2.UDPPort)); err != nil {
		return nil, err
	}
	if p.Closed, err = probe.Open(local, netip.AddrPortFrom(peer, closedPort)); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if e, err := probe.OpenEcho(local, peer); err == nil {
		p.Echo = e
	}
	return p, nil
}

// closedPort is a UDP port that hardly any program has: the first of
// traceroute.
const closedPort = 33434

// Path are the ways to ask a peer by packets of any size.
type Path struct {
	Peer   netip.Addr
	Port   *probe.Prober // UDP to port 4791
	Closed *probe.Prober // UDP to a port that no program has
	Echo   *probe.Prober // ICMP, or nil
}

// Close gives the sockets back.
func (p *Path) Close() error {
	var errs []error
	for _, x := range []*probe.Prober{p.Port, p.Closed, p.Echo} {
		if x != nil {
			errs = append(errs, x.Close())
		}
	}
	return errors.Join(errs...)
}

// methods are the ways to see that a packet has arrived, the most telling one
// first.
func (p *Path) methods() []Method {
	list := []Method{{"UDP port 4791", p.Port}, {fmt.Sprintf("UDP port %d", closedPort), p.Closed}}
	if p.Echo != nil {
		list = append(list, Method{"ICMP echo", p.Echo})
	}
	return list
}
