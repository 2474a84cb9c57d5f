package doctor

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/observe/doctor/ping"
	"github.com/gosoftroce/rocev2/observe/doctor/probe"
)

// way is a network of routers, each with what it carries on to the next.
type way struct {
	routers []router
	peer    netip.Addr
	end     probe.Kind // what the peer makes of a probe
	sent    []int
}

type router struct {
	addr string // "" = silent
	mtu  int    // of the link after it
	mute bool   // it does not say that something is too big
	ends probe.Kind
}

func (w *way) Probe(_ context.Context, hops, size int, _ time.Duration) (probe.Answer, error) {
	w.sent = append(w.sent, size)
	if hops == 0 {
		hops = 64
	}
	for i, r := range w.routers {
		from, _ := netip.ParseAddr(r.addr)
		a := probe.Answer{From: from, RTT: time.Duration(i+1) * time.Millisecond, MTU: r.mtu}
		switch {
		case r.ends != 0:
			a.Kind = r.ends
		case hops == i+1:
			a.Kind = probe.TimeUp
		case size > r.mtu && r.mute:
			return probe.Answer{}, nil
		case size > r.mtu:
			a.Kind = probe.TooBig
		default:
			continue
		}
		if r.addr == "" {
			return probe.Answer{}, nil
		}
		return a, nil
	}
	if w.end == probe.Silent {
		return probe.Answer{}, nil
	}
	return probe.Answer{Kind: w.end, From: w.peer, RTT: time.Second}, nil
}

func (w *way) Once(_ context.Context, hops uint8, _ time.Duration) (ping.Reply, bool, error) {
	ok := hops == 0 || int(hops) > len(w.routers)
	return ping.Reply{RTT: 7 * time.Millisecond}, ok, nil
}

func TestTrace(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddr("198.51.100.9")
	open := []router{{addr: "192.0.2.1", mtu: 9000}, {addr: "192.0.2.2", mtu: 1500}, {mtu: 1500}}
	for name, c := range map[string]struct {
		routers []router
		end     probe.Kind
		noPing  bool
		mtu     int
		reached bool
		pathMTU int
		hops    []string // address, or * ; the note must contain what follows a blank
	}{
		"a peer with RoCEv2": {routers: open, mtu: 9000, reached: true, pathMTU: 1024, hops: []string{
			"192.0.2.1", "192.0.2.2", "* 192.0.2.2 passes 1500 bytes on, not 4160", "198.51.100.9 answers RoCEv2 pings"}},
		"nobody has the port": {routers: open[:2], end: probe.Refused, noPing: true, mtu: 9000, reached: true, pathMTU: 1024, hops: []string{
			"192.0.2.1", "192.0.2.2", "198.51.100.9 no process has UDP port 4791"}},
		"nobody answers": {mtu: 1500, noPing: true, hops: []string{"*", "*", "*", "*", "*"}},
		"a firewall": {routers: []router{{addr: "192.0.2.1", mtu: 9000}, {addr: "192.0.2.2", ends: probe.Prohibited}}, noPing: true, mtu: 1500, pathMTU: 1024, hops: []string{
			"192.0.2.1", "192.0.2.2 prohibited"}},
		"large packets vanish": {routers: []router{{addr: "192.0.2.1", mtu: 600, mute: true}, {addr: "192.0.2.2", mtu: 1500}}, mtu: 1500, reached: true, pathMTU: 0, hops: []string{
			"192.0.2.1", "192.0.2.2 large packets may vanish", "198.51.100.9"}},
		"a narrow interface": {mtu: 300, reached: true, end: probe.Refused, pathMTU: 0, hops: []string{"198.51.100.9"}},
	} {
		w := &way{routers: c.routers, peer: peer, end: c.end}
		var ask Pinger
		if !c.noPing {
			ask = w
		}
		var seen int
		r, err := Trace(t.Context(), w, ask, TraceConfig{Peer: peer, MTU: c.mtu, OnHop: func(Hop) { seen++ }})
		if err != nil || r.Reached != c.reached || r.PathMTU != c.pathMTU || len(r.Hops) != len(c.hops) || seen != len(c.hops) {
			t.Errorf("%s: %+v, %v; want reached %v, path MTU %d, hops %v", name, r, err, c.reached, c.pathMTU, c.hops)
			continue
		}
		for i, h := range r.Hops {
			addr, note, _ := strings.Cut(c.hops[i], " ")
			if got := h.Addr.String(); addr != got && (addr != "*" || h.Addr.IsValid()) || !strings.Contains(h.Note, note) || h.Hops != i+1 {
				t.Errorf("%s: hop %+v, want %s", name, h, c.hops[i])
			}
		}
		if i := slices.IndexFunc(w.sent, func(n int) bool { return n > 4160 || n > c.mtu }); i >= 0 {
			t.Errorf("%s: sent %d bytes", name, w.sent[i])
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddr("198.51.100.9")
	for name, c := range map[string]struct {
		routers []router
		ends    []probe.Kind // of each method
		mtu     int
		want    SizeResult
	}{
		"all fits":               {ends: []probe.Kind{probe.Refused}, mtu: 9000, want: SizeResult{Method: "0", PathMTU: 4096}},
		"the interface":          {ends: []probe.Kind{probe.Refused}, mtu: 1500, want: SizeResult{Method: "0", PathMTU: 1024}},
		"a router":               {routers: []router{{addr: "192.0.2.1", mtu: 2200}}, ends: []probe.Kind{probe.Silent, probe.Refused}, mtu: 9000, want: SizeResult{Method: "1", PathMTU: 2048}},
		"a router without words": {routers: []router{{addr: "192.0.2.1", mtu: 1499, mute: true}}, ends: []probe.Kind{0, 0, probe.Echoed}, mtu: 9000, want: SizeResult{Method: "2", PathMTU: 1024, Lost: true}},
		"nobody answers":         {ends: []probe.Kind{0, 0}, mtu: 9000},
		"nothing fits":           {routers: []router{{addr: "192.0.2.1", mtu: 319}}, ends: []probe.Kind{probe.Refused}, mtu: 9000, want: SizeResult{Method: "0"}},
	} {
		var methods []Method
		for i, k := range c.ends {
			methods = append(methods, Method{string(rune('0' + i)), &way{routers: c.routers, peer: peer, end: k}})
		}
		r, err := Sizes(t.Context(), peer, c.mtu, methods, time.Second)
		if err != nil || r.Method != c.want.Method || r.PathMTU != c.want.PathMTU || r.Lost != c.want.Lost {
			t.Errorf("%s: %+v, %v; want %+v", name, r, err, c.want)
		}
		for i, s := range r.Sizes {
			if s.Fits == (s.Note != "") || s.Fits && i != len(r.Sizes)-1 || s.Bytes != s.PathMTU+64 {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddr("198.51.100.9")
	for _, c := range []struct {
		kinds []probe.Answer
		want  string
	}{
		{[]probe.Answer{{Kind: probe.Refused, From: peer}}, "no process has UDP port 4791"},
		{[]probe.Answer{{Kind: probe.Prohibited, From: netip.MustParseAddr("192.0.2.1")}}, "firewall at 192.0.2.1"},
		{[]probe.Answer{{Kind: probe.Prohibited, Local: true}}, "firewall of this host"},
		{[]probe.Answer{{Kind: probe.Unreachable, Local: true}}, "does not answer ARP"},
		{[]probe.Answer{{Kind: probe.Unreachable, From: netip.MustParseAddr("192.0.2.1")}}, "192.0.2.1 has no way"},
		{[]probe.Answer{{}, {Kind: probe.Refused, From: peer}}, "silent at UDP port 4791"},
		{[]probe.Answer{{}, {}, {Kind: probe.Echoed, From: peer}}, "silent at UDP port 4791"},
		{[]probe.Answer{{}, {}, {}}, "nothing comes back"},
	} {
		var methods []Method
		for _, a := range c.kinds {
			methods = append(methods, Method{"m", always(a)})
		}
		s, err := explain(t.Context(), methods, time.Second)
		if err != nil || !strings.Contains(s.String(), c.want) || s.Advice == "" {
			t.Errorf("%v: %v, %v; want %q", c.kinds, s, err, c.want)
		}
	}
}

type always probe.Answer

func (a always) Probe(context.Context, int, int, time.Duration) (probe.Answer, error) {
	return probe.Answer(a), nil
}
