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
	host := topology.Cable{Rate: int64(orDefault(n.Rate, 100*Gbps)), Delay: int64(orDefault(n.Delay, Time(topology.Microsecond)))}
	up := topology.Cable{Rate: orDefault(int64(n.UpRate), host.Rate), Delay: orDefault(int64(n.UpDelay), host.Delay)}
	var g *topology.Graph
	switch topologies[kind] {
	case "pair":
		g, err = topology.Pair(host)
	case "star":
		g, err = topology.Star(orDefault(n.Hosts, 2), host)
	case "leaf-spine":
		g, err = topology.LeafSpine{Leaves: n.Leaves, Spines: n.Spines, HostsPerLeaf: n.HostsPerLeaf, Host: host, Up: up}.Graph()
	case "fat-tree":
		g, err = topology.FatTree(n.K, host)
	case "hpcc":
		g, err = topology.HPCC()
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

// minProbe is the default of Adapter.MinProbe. Where something is lost it is
// IRN's: a quarter of the 320 µs of its high timeout. In a network whose
// classes pause, and whose cables neither lose nor fail, silence says that a
// queue is long: there it is that of devices over sockets.
func (r *run) minProbe() Time {
	s := r.s
	lossy := func(l topology.Link) bool { return l.Loss > 0 }
	if n := &s.Network; n.Lossy || n.Loss > 0 || slices.ContainsFunc(r.g.Links(), lossy) || n.Watchdog > 0 || s.Adapter.DSCP > 0 || len(s.Failures) > 0 {
		return 80 * us
	}
	return 1000 * us
}
