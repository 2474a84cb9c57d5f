package lab

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

// Link is cables of a network of one's own: one from each of the nodes From to
// each of the nodes To, or Count of them. Nodes are "h" for a host or "s" for a
// switch with a number from 0 on, or a range of these, as "h0-15".
type Link struct {
	From, To string
	Rate     Rate    // 0: Network.Rate
	Delay    Time    // 0: Network.Delay
	Loss     float64 // share of packets that it loses at random, beside Network.Loss
	Burst    int     // how many of these together; 0: as Network.Burst says
	BER      float64 // bit error rate, beside Network.BER
	Count    int     // 0: 1
}

// nodes are hosts or switches with numbers that follow each other.
type nodes struct {
	switches    bool
	first, last int
}

// linked builds a network from its links.
func (n *Network) linked(usual topology.Cable) (*topology.Graph, error) {
	if n.Hosts < 2 || n.Switches < 1 {
		return nil, errors.New("network.hosts and network.switches say how many there are: at least 2 and 1")
	}
	if n.Switches > topology.MaxSwitches {
		return nil, fmt.Errorf("network.switches is %d: it is at most %d", n.Switches, topology.MaxSwitches)
	}
	var cables []topology.Link
	for i := range n.Links {
		var err error
		if cables, err = n.cables(cables, &n.Links[i], usual); err != nil {
			return nil, fmt.Errorf("network.link %d: %w", i+1, err)
		}
	}
	return topology.Join(n.Hosts, n.Switches, cables, nil)
}

// cables appends those of a link.
func (n *Network) cables(list []topology.Link, l *Link, usual topology.Cable) ([]topology.Link, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	from, err := n.nodesOf("from", l.From)
	if err != nil {
		return nil, err
	}
	to, err := n.nodesOf("to", l.To)
	if err != nil {
		return nil, err
	}
	loss, err := share("loss", l.Loss, 1e9)
	if err != nil {
		return nil, err
	}
	burst, ber, err := noise("", l.Burst, l.BER)
	if err != nil {
		return nil, err
	}
	count := orDefault(l.Count, 1)
	if len(list)+from.len()*to.len()*count > topology.MaxLinks {
		return nil, fmt.Errorf("there are more than %d cables", topology.MaxLinks)
	}
	cable := topology.Cable{Rate: orDefault(int64(l.Rate), usual.Rate), Delay: orDefault(int64(l.Delay), usual.Delay), Loss: uint32(loss), Burst: burst, BER: ber}
	for a := from.first; a <= from.last; a++ {
		for b := to.first; b <= to.last; b++ {
			for range count {
				list = append(list, topology.Link{A: n.node(from, a), B: n.node(to, b), Cable: cable})
			}
		}
	}
	return list, nil
}

// check says what is wrong with the numbers of a link.
func (l *Link) check() error {
	switch {
	case l.Rate != 0 && (l.Rate < 1e6 || l.Rate > 8e12):
		return fmt.Errorf("rate is %v: it is 1Mb/s to 8Tb/s", exact(l.Rate))
	case l.Delay < 0 || l.Delay > Time(event.Second):
		return errors.New("delay is at most 1s")
	case l.Count < 0 || l.Count > topology.MaxPorts:
		return fmt.Errorf("count is %d: it is 1 to %d", l.Count, topology.MaxPorts)
	}
	return nil
}

// node returns the number of a node in the graph.
func (n *Network) node(of nodes, i int) int32 {
	if of.switches {
		return int32(n.Hosts + i)
	}
	return int32(i)
}

func (n nodes) len() int { return n.last - n.first + 1 }

// nodesOf reads which nodes a setting names.
func (n *Network) nodesOf(setting, text string) (r nodes, err error) {
	wrong := fmt.Errorf("%s is %q: it is a host, as h0, a switch, as s0, or a range of them, as h0-15", setting, text)
	if text == "" || text[0] != 'h' && text[0] != 's' {
		return r, wrong
	}
	r.switches = text[0] == 's'
	first, last, isRange := strings.Cut(text[1:], "-")
	if r.first, err = strconv.Atoi(first); err != nil || r.first < 0 {
		return r, wrong
	}
	if r.last = r.first; isRange {
		if r.last, err = strconv.Atoi(last); err != nil || r.last < r.first {
			return r, wrong
		}
	}
	what, count := "hosts", n.Hosts
	if r.switches {
		what, count = "switches", n.Switches
	}
	if r.last >= count {
		return r, fmt.Errorf("%s is %q: there are %d %s, from 0 on", setting, text, count, what)
	}
	return r, nil
}
