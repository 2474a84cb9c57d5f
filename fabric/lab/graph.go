package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/topology/topofile"
)

// graph builds the topology.
func (n *Network) graph() (*topology.Graph, error) {
	if n.Graph != nil {
		if n.Topology != "" {
			return nil, fmt.Errorf("network.topology is %q, and a program has built the network: take one of them out", n.Topology)
		}
		return n.Graph, nil
	}
	if n.Topology == "" {
		return nil, fmt.Errorf("network.topology says which one: there are %s", strings.Join(topologies, ", "))
	}
	kind, err := oneOf("network.topology", n.Topology, topologies, 0)
	if err != nil {
		return nil, err
	}
	host := topology.Cable{Rate: int64(n.hostRate()), Delay: int64(orDefault(n.Delay, Time(topology.Microsecond)))}
	up := topology.Cable{Rate: orDefault(int64(n.UpRate), host.Rate), Delay: orDefault(int64(n.UpDelay), host.Delay)}
	if n.Oversubscription < 0 || n.CoreOversubscription < 0 || max(n.Oversubscription, n.CoreOversubscription) > mostOver {
		return nil, fmt.Errorf("network.oversubscription is %d and core_oversubscription %d: they are 1 to %d", n.Oversubscription, n.CoreOversubscription, mostOver)
	}
	over, core := orDefault(n.Oversubscription, 1), orDefault(n.CoreOversubscription, 1)
	var g *topology.Graph
	switch topologies[kind] {
	case "pair":
		g, err = topology.Pair(host)
	case "star":
		g, err = topology.Star(orDefault(n.Hosts, 2), host)
	case "leaf-spine":
		up.Rate = n.upRate(host.Rate, up.Rate, n.HostsPerLeaf)
		g, err = topology.LeafSpine{Leaves: n.Leaves, Spines: n.Spines, HostsPerLeaf: n.HostsPerLeaf, Host: host, Up: up}.Graph()
	case "fat-tree":
		g, err = topology.Oversubscribed(n.K, over, core, host)
	case "hpcc":
		g, err = topology.HPCC()
	case "rails":
		up.Rate = n.upRate(host.Rate, up.Rate, orDefault(n.MachinesPerLeaf, n.Machines))
		g, err = topology.Rails{Machines: n.Machines, GPUs: n.GPUs, PerLeaf: n.MachinesPerLeaf, Spines: n.Spines, Host: host, Up: up, ScaleUp: n.scaleUp(host)}.Graph()
	case "links":
		g, err = n.linked(host)
	case "file":
		g, err = n.read()
	default:
		g, err = topology.Ring(n.Switches, n.PerSwitch, host, up)
	}
	if err != nil {
		if strings.HasPrefix(err.Error(), "network.") {
			return nil, err
		}
		return nil, fmt.Errorf("network: %w", err)
	}
	return g, nil
}

const mostOver = 1000

// upRate returns the rate of the cables from leaves to spines, for the hosts
// of a leaf: what Oversubscription says, or else the usual one.
func (n *Network) upRate(host, usual int64, hosts int) int64 {
	if n.Oversubscription == 0 || min(hosts, n.Spines) < 1 || max(hosts, n.Spines) > topology.MaxNodes {
		return usual // numbers that are wrong are told of by the builder
	}
	return host * int64(hosts) / (int64(n.Spines) * int64(n.Oversubscription))
}

// noise says what is wrong with all cables.
func (n *Network) noise(p *topology.Plan) error {
	loss, err := share("network.loss", n.Loss, 1e9)
	if err != nil {
		return err
	}
	p.Loss = uint32(loss)
	p.Burst, p.BER, err = noise("network.", n.Burst, n.BER)
	return err
}

// noise checks the length of bursts and the bit error rate of cables.
func noise(of string, burst int, ber float64) (uint32, uint64, error) {
	if burst < 0 || burst > mostBurst {
		return 0, 0, fmt.Errorf("%sburst is %d: it is 1 to %d packets", of, burst, mostBurst)
	}
	bits, err := share(of+"ber", ber, 1e18)
	return uint32(burst), uint64(bits), err
}

const mostBurst = 1_000_000

// read reads a network from the text of a file.
func (n *Network) read() (*topology.Graph, error) {
	if n.Text == "" {
		return nil, errors.New("network.file says in which file the network is, or network.text has it")
	}
	if n.Format != "" && !slices.Contains(topofile.Formats, n.Format) {
		return nil, fmt.Errorf("network.format is %q: there are %s", n.Format, strings.Join(topofile.Formats, ", "))
	}
	g, err := topofile.Read(n.Text, n.Format)
	if err != nil {
		return nil, fmt.Errorf("network.file, %s: %w", orDefault(n.File, "text"), err)
	}
	return g, nil
}

// lossyProbe is the default of Adapter.MinProbe where something is lost.
const lossyProbe = 80 * us

// minProbe is the default of Adapter.MinProbe. Where something is lost it is
// IRN's: a quarter of the 320 µs of its high timeout. In a network whose
// classes pause, and whose cables neither lose nor fail, silence says that a
// queue is long: there it is that of devices over sockets. A traffic may have a
// class of its own that does not pause; a flow of a list or of a Source too,
// and then its connection has lossyProbe.
func (r *run) minProbe() Time {
	s := r.s
	lossy := func(l topology.Link) bool { return l.Loss > 0 || l.BER > 0 }
	drops := slices.ContainsFunc(r.tenants, func(t *tenant) bool { return t.lossy })
	if n := &s.Network; drops || n.Lossy || n.Loss > 0 || n.BER > 0 || slices.ContainsFunc(r.g.Links(), lossy) || n.Watchdog > 0 || s.Adapter.DSCP > 0 || len(s.Failures) > 0 || len(s.Losses) > 0 {
		return lossyProbe
	}
	return 1000 * us
}
