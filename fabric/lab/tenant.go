package lab

import (
	"fmt"
	"math"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// tenant is how the queue pairs of a traffic are connected.
type tenant struct {
	traffic int // index in Scenario.Traffic
	like    int // the first traffic that is connected in the same way
	conn    adapter.Connection
	pairs   int // queue pairs of each flow
	choice  cc.Choice
	window  int // bytes, if the scenario says so; else 0
	lossy   bool
}

// mostPairs is the most queue pairs of a flow.
const mostPairs = 64

// tenantsOf returns how the queue pairs of each traffic are connected.
func (r *run) tenantsOf(p *topology.Profile) (all []*tenant, err error) {
	for i := range r.s.Traffic {
		t, e := r.tenant(&r.s.Traffic[i].Tenant, p)
		if e != nil {
			err = join(err, fmt.Errorf("traffic %d, %s: %w", i+1, r.s.Traffic[i].Kind, e))
			continue
		}
		t.traffic = i
		t.like = slices.IndexFunc(r.s.Traffic, func(o Traffic) bool { return o.Tenant == r.s.Traffic[i].Tenant })
		all = append(all, t)
	}
	return all, err
}

// tenant returns that of one, which has what the adapters have where it says
// nothing else.
func (r *run) tenant(own *Tenant, p *topology.Profile) (*tenant, error) {
	a := r.s.Adapter
	switch {
	case own.DSCP < 0 || own.DSCP > 63:
		return nil, fmt.Errorf("dscp is %d: there are 0 to 63", own.DSCP)
	case own.Window < 0 || own.Window > mostWindow:
		return nil, fmt.Errorf("window is %v: it is at most %v", own.Window, Bytes(mostWindow))
	case own.QueuePairs < 0 || own.QueuePairs > mostPairs:
		return nil, fmt.Errorf("queue_pairs is %d: it is 1 to %d", own.QueuePairs, mostPairs)
	case own.Rate != 0 && (own.Rate < Mbps || own.Rate/1000 > math.MaxUint32):
		return nil, fmt.Errorf("rate is %v: it is 1Mb/s to 4Tb/s", own.Rate)
	}
	if own.Control != "" {
		a.Control = own.Control
		if choice, err := cc.ParseChoice(own.Control); err == nil && choice.Bytes != 0 {
			a.Window = 0 // the control says it
		}
	}
	a.Window = orDefault(own.Window, a.Window)
	a.Recovery = orDefault(own.Recovery, a.Recovery)
	dscp := orDefault(own.DSCP, orDefault(a.DSCP, int(p.RoCE)))
	if own.Class != "" {
		var err error
		if dscp, err = r.s.Network.dscpOf(own.Class); err != nil {
			return nil, err
		}
	}
	t := &tenant{pairs: max(own.QueuePairs, 1)}
	t.lossy = (own.DSCP > 0 || own.Class != "") && !p.Classes[classOf(p, dscp)].Lossless
	var err error
	if t.choice, err = a.congestion(uint64(r.g.HostRate())); err != nil {
		return nil, err
	}
	t.window = max(int(a.Window), t.choice.Bytes)
	recovery, err := oneOf("recovery", a.Recovery, recoveries, 0)
	if err != nil {
		return nil, err
	}
	t.conn = adapter.Connection{Foreign: recovery == 1, MTU: r.mtu, TrafficClass: r.trafficClass(dscp), Timeout: uint8(a.Timeout)}
	if own.Rate > 0 {
		t.conn.Rate = uint32(max(int64(own.Rate)/1000/int64(t.pairs), 1))
	}
	t.conn.Congestion, err = a.maker(t.choice, r.mtu)
	return t, err
}

// classOf returns the class of switches that a profile has for a DSCP.
func classOf(p *topology.Profile, dscp int) uint8 {
	if p.DSCP == nil {
		return uint8(dscp / 8)
	}
	return p.DSCP[dscp]
}

// trafficClass returns the byte of packets with a DSCP.
func (r *run) trafficClass(dscp int) uint8 {
	tc := uint8(dscp) << 2
	if !r.s.Adapter.NoECN {
		tc |= network.ECT0
	}
	return tc
}

// windows says what engines may have in flight, so that each tenant has its
// own: the engine's bound is the largest one.
func (r *run) windows(cfg *adapter.Config) {
	most, psns := int(r.s.Adapter.Window), 0
	for _, t := range r.tenants {
		if t.window > most && (t.window > usualWindow || most > 0) {
			most = t.window
		}
		if n := packetsOf(t.window, r.mtu); n > usualPSNs && !t.conn.Foreign {
			psns = max(psns, n)
		}
	}
	cfg.Window.MaxBytes, cfg.Window.MaxPSNs = most, psns
	for _, t := range r.tenants {
		bound := orDefault(t.window, usualWindow)
		if t.choice.Law == cc.LawWindow && bound < orDefault(most, usualWindow) {
			t.conn.Congestion = func() cc.Controller { return newBounded(bound, r.mtu) }
		}
	}
}

// bounded is a window that an engine which allows more does not enlarge.
type bounded struct {
	*cc.Window
	most int
}

func newBounded(most int, mtu rocev2.MTU) *bounded {
	return &bounded{cc.NewWindow(cc.Config{MaxBytes: most, MaxPSNs: max(usualPSNs, packetsOf(most, mtu))}), most}
}

// SetConfig implements cc.Controller.
func (b *bounded) SetConfig(c cc.Config) {
	c.MaxBytes = min(c.MaxBytes, b.most)
	b.Window.SetConfig(c)
}
