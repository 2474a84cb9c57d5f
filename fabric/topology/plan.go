package topology

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// Plan says how a Graph becomes a simulated network.
type Plan struct {
	Profile  Profile                             // of all switches
	Tune     func(node int32, s *network.Switch) // changes single switches; nil: none
	Routing  network.Routing
	Gap      event.Time // of network.Flowlet
	Watchdog network.WatchdogConfig
	UpDown   bool // routes go up and then down; otherwise they are all shortest ways
	// Tables are those at the beginning. Nil: what UpDown says, without the
	// links in Failed. The cables of those are up all the same: have
	// network.SetCable take them down, or the next new tables use them.
	Tables   *Tables
	Failed   LinkSet
	Converge event.Time // how long after a change of links switches have new tables; 0: at once
	// Static leaves the tables as they are, whatever links fail.
	Static bool
	Loss   uint32 // of each link: packets of 10^9
	Burst  uint32 // how many are lost together, see network.Cable
	BER    uint64 // of each link: bits of 10^18
	MTU    int    // network.Config.MTU; 0: its default
	Seed   uint64
}

// Network returns the configuration of the network. Cable i of it is link i of
// the Graph, and nodes and ports have the same numbers. It is an error if there
// are more than 65535 hosts, or sets of ports in a table. What is wrong with
// numbers of the plan network.New says.
func (g *Graph) Network(p Plan) (network.Config, error) {
	if g.hosts > math.MaxUint16 {
		return network.Config{}, fmt.Errorf("topology: a network of %d hosts; at most %d can be simulated", g.hosts, math.MaxUint16)
	}
	mtu := p.MTU
	if mtu == 0 {
		mtu = network.DefaultMTU
	}
	c := network.Config{
		Hosts: int(g.hosts), MTU: mtu, HostDSCP: p.Profile.DSCP, Seed: p.Seed, Converge: p.Converge,
	}
	for s := g.hosts; s < g.Nodes(); s++ {
		sw := p.Profile.Switch(g, s, mtu)
		sw.Routing, sw.Gap, sw.Watchdog = p.Routing, p.Gap, p.Watchdog
		if p.Tune != nil {
			p.Tune(s, &sw)
		}
		if g.IsBond(s) {
			sw.CutThrough, sw.Routing = true, network.ECMP
		}
		c.Switches = append(c.Switches, sw)
	}
	for _, l := range g.links {
		c.Cables = append(c.Cables, network.Cable{
			A: int(l.A), B: int(l.B), Rate: l.Rate, Delay: event.Time(l.Delay), Loss: both(p.Loss, l.Loss),
			Burst: cmp.Or(l.Burst, p.Burst), BER: min(p.BER+l.BER, 1e18),
		})
	}
	routes := g.Shortest
	if p.UpDown {
		routes = g.UpDown
	}
	tables := p.Tables
	if tables == nil {
		tables = routes(p.Failed)
	}
	var err error
	if c.Tables, err = tables.Network(); err != nil {
		return network.Config{}, err
	}
	if !p.Static {
		c.Reroute = func(up []bool) []network.Table {
			t, err := routes(downOf(up)).Network()
			if err != nil {
				return nil // the tables stay as they are
			}
			return t
		}
	}
	return c, nil
}

// downOf returns the links that are not up.
func downOf(up []bool) LinkSet {
	var failed LinkSet
	for i, ok := range up {
		if !ok {
			failed.Add(int32(i))
		}
	}
	return failed
}

// Network returns the tables as a network has them, by switch. It is an error
// if a switch has more than 65535 sets of ports.
func (t *Tables) Network() ([]network.Table, error) {
	g := t.g
	tables := make([]network.Table, g.Switches())
	number := make([]uint16, len(t.start)+int(g.hosts)) // of a set, within the switch; 0: not yet
	var used []uint32
	for i := range tables {
		s := g.hosts + int32(i)
		table := &tables[i]
		table.Set = make([]uint16, g.hosts)
		table.Sets = [][]uint16{nil}
		for h := range g.hosts {
			set := nowhere
			if t.group[h] >= 0 {
				set = t.next[i*len(t.leaf)+int(t.group[h])]
			}
			if set == nowhere {
				continue
			}
			if set == here {
				set = uint32(len(t.start)) + uint32(h)
			}
			if number[set] == 0 {
				if len(table.Sets) > math.MaxUint16 {
					return nil, fmt.Errorf("topology: switch %d has more than %d sets of ports", s, math.MaxUint16)
				}
				number[set] = uint16(len(table.Sets))
				used = append(used, set)
				table.Sets = append(table.Sets, t.Next(s, h))
			}
			table.Set[h] = number[set]
		}
		for _, set := range used {
			number[set] = 0
		}
		used = used[:0]
	}
	return tables, nil
}

// both returns the share of packets of 10^9 that one or the other loses.
func both(a, b uint32) uint32 {
	return uint32(uint64(a) + uint64(b) - uint64(a)*uint64(b)/1e9)
}
