package lab

import (
	"fmt"
	"math"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/tcp"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// tenant is how the queue pairs of a traffic are connected.
type tenant struct {
	traffic int // index in Scenario.Traffic
	like    int // the first traffic that is connected in the same way
	conn    adapter.Connection
	control func(there path) cc.Controller // of a connection, see maker; nil: that of conn, or the engine's own
	pairs   int                            // queue pairs of each flow
	choice  cc.Choice
	window  int         // bytes, if the scenario says so; else 0
	tcp     *tcp.Config // nil: it goes by queue pairs
	lossy   bool
}

// mostPairs is the most queue pairs of a flow.
const mostPairs = 64

// tenants are those of all traffic, by its index.
type tenants []*tenant

// connecting is what tenants depend on.
type connecting struct {
	r    *run
	s    *Scenario
	p    *topology.Profile
	mtu  rocev2.MTU
	rate uint64 // of hosts' cables
}

// tenants returns how the queue pairs of each traffic are connected.
func (c *connecting) tenants() (all tenants, err error) {
	for i := range c.s.Traffic {
		t, e := c.tenant(&c.s.Traffic[i].Tenant)
		if e != nil {
			err = join(err, fmt.Errorf("traffic %d, %s: %w", i+1, c.s.Traffic[i].Kind, e))
			continue
		}
		t.traffic = i
		t.like = slices.IndexFunc(c.s.Traffic, func(o Traffic) bool { return o.Tenant == c.s.Traffic[i].Tenant })
		all = append(all, t)
	}
	return all, err
}

// tenant returns that of one, which has what the adapters have where it says
// nothing else.
func (c *connecting) tenant(own *Tenant) (*tenant, error) {
	a := c.s.Adapter
	if err := own.check(); err != nil {
		return nil, err
	}
	t := &tenant{pairs: max(own.QueuePairs, 1)}
	if err := c.carried(own, t); err != nil || t.tcp != nil {
		return t, err
	}
	if own.Control != "" {
		a.Control, a.Controller = own.Control, nil
		if choice, err := cc.ParseChoice(own.Control); err == nil && choice.Bytes != 0 {
			a.Window = 0 // the control says it
		}
	}
	a.Window = orDefault(own.Window, a.Window)
	a.Recovery = orDefault(own.Recovery, a.Recovery)
	dscp := orDefault(own.DSCP, orDefault(a.DSCP, int(c.p.RoCE)))
	if own.Class != "" {
		var err error
		if dscp, err = c.s.Network.dscpOf(own.Class); err != nil {
			return nil, err
		}
	}
	t.lossy = (own.DSCP > 0 || own.Class != "") && !c.p.Classes[classOf(c.p, dscp)].Lossless
	var err error
	if t.choice, err = a.congestion(c.rate); err != nil {
		return nil, err
	}
	t.window = max(int(a.Window), t.choice.Bytes)
	recovery, err := oneOf("recovery", a.Recovery, recoveries, 0)
	if err != nil {
		return nil, err
	}
	t.conn = adapter.Connection{Foreign: recovery == 1, MTU: c.mtu, TrafficClass: a.trafficClass(dscp), Timeout: uint8(a.Timeout)}
	if own.Rate > 0 {
		t.conn.Rate = uint32(max(int64(own.Rate)/1000/int64(t.pairs), 1))
	}
	t.control, err = c.makers(&a, t.choice)
	return t, err
}

// check says what is wrong with numbers.
func (own *Tenant) check() error {
	switch {
	case own.DSCP < 0 || own.DSCP > 63:
		return fmt.Errorf("dscp is %d: there are 0 to 63", own.DSCP)
	case own.Window < 0 || own.Window > mostWindow:
		return fmt.Errorf("window is %v: it is at most %v", exact(own.Window), Bytes(mostWindow))
	case own.QueuePairs < 0 || own.QueuePairs > mostPairs:
		return fmt.Errorf("queue_pairs is %d: it is 1 to %d", own.QueuePairs, mostPairs)
	case own.Rate != 0 && (own.Rate < Mbps || own.Rate/1000 > math.MaxUint32):
		return fmt.Errorf("rate is %v: it is 1Mb/s to 4Tb/s", exact(own.Rate))
	}
	return nil
}

// classOf returns the class of switches that a profile has for a DSCP.
func classOf(p *topology.Profile, dscp int) uint8 {
	if p.DSCP == nil {
		return uint8(dscp / 8)
	}
	return p.DSCP[dscp]
}

// trafficClass returns the byte of packets with a DSCP.
func (a *Adapter) trafficClass(dscp int) uint8 {
	tc := uint8(dscp) << 2
	if !a.NoECN {
		tc |= network.ECT0
	}
	return tc
}

// windows says what engines may have in flight: the largest window, at least
// most, that of all. Where this changes what a tenant has, its queue pairs have
// their own bounds.
func (all tenants) windows(cfg *adapter.Config, most int, mtu rocev2.MTU) {
	psns := 0
	for _, t := range all {
		if t.window > most && (t.window > usualWindow || most > 0) {
			most = t.window
		}
		psns = max(psns, t.psns(mtu))
	}
	cfg.Window.MaxBytes, cfg.Window.MaxPSNs = most, psns
	for _, t := range all {
		if own := t.bounds(t.window, t.psns(mtu)); own != t.bounds(most, psns) {
			t.conn.Window = own
		}
	}
}

// psns returns how many packets the tenant's window is, if an engine must be
// told; else 0.
func (t *tenant) psns(mtu rocev2.MTU) int {
	if n := packetsOf(t.window, mtu); n > usualPSNs && !t.conn.Foreign {
		return n
	}
	return 0
}

// bounds returns what an engine that is told of such a window lets a queue pair
// of the tenant have in flight, as engine.Config.Window has it.
func (t *tenant) bounds(bytes, psns int) cc.Config {
	bytes = orDefault(bytes, usualWindow)
	if t.conn.Foreign {
		return cc.Config{MaxBytes: min(bytes, goBackBytes), MaxPSNs: orDefault(psns, goBackPackets)}
	}
	return cc.Config{MaxBytes: bytes, MaxPSNs: orDefault(psns, min(max(usualPSNs, bytes/(256+cc.PacketOverhead)), qp.MostReorder))}
}

// What engines have in flight towards a peer that goes back.
const (
	goBackPackets = 128
	goBackBytes   = goBackPackets * (4096 + cc.PacketOverhead)
)

// goBack says of which traffic the window that the scenario says is larger than
// that, "" of none.
func (all tenants) goBack(mtu rocev2.MTU) string {
	for _, t := range all {
		if t.conn.Foreign && t.window > goBackPackets*(mtu.Bytes()+cc.PacketOverhead) {
			return fmt.Sprintf("traffic %d has one of %v, of which go-back-n uses at most %d packets: with recovery = \"selective\" it has all", t.traffic+1, Bytes(t.window), goBackPackets)
		}
	}
	return ""
}

// stormed has a storm of pauses be about the class of a DSCP, too. Of TCP it is
// only where that class pauses.
func (t *tenant) stormed(r *run, dscp uint8) {
	if class := classOf(&r.profile, int(dscp)); t.tcp == nil || r.profile.Classes[class].Lossless {
		r.data |= 1 << r.net.ClassOf(dscp)
	}
}
