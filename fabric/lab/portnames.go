package lab

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// portRef is a port of a node: hosts come first, then the switches.
type portRef struct{ node, port int }

// portName returns the name of a port: "h3" of a host, which has one, and
// "s1.4" of a switch.
func portName(hosts, node, port int) string {
	if node < hosts {
		return "h" + strconv.Itoa(node)
	}
	return fmt.Sprintf("s%d.%d", node-hosts, port)
}

// portsOf returns the ports that a text names, in its order, each once: hosts
// as h3 and h0-15, all ports of switches as s1 and s0-3, ports of them as s1.4
// and s0-3.0-7, and "all" hosts.
func portsOf(g *topology.Graph, setting, text string, most int) (list []portRef, err error) {
	seen := map[portRef]bool{}
	for _, word := range strings.Fields(text) {
		if word == "all" {
			word = fmt.Sprintf("h0-%d", g.Hosts()-1)
		}
		nodes, ports, some := strings.Cut(word, ".")
		kind, numbers := nodes[:min(1, len(nodes))], nodes[min(1, len(nodes)):]
		first, last, ok := numberRange(numbers)
		ofPorts := [2]int{0, topology.MaxPorts}
		if some {
			var good bool
			ofPorts[0], ofPorts[1], good = numberRange(ports)
			ok = ok && good && kind == "s"
		}
		if !ok || kind != "h" && kind != "s" {
			return nil, fmt.Errorf("%s: %q is no port: there are hosts, as h3 or h0-15, switches with all their ports, as s1 or s0-3, ports of them, as s1.4, and all hosts, as all", setting, word)
		}
		base, count, what := 0, int(g.Hosts()), "hosts"
		if kind == "s" {
			base, count, what = count, int(g.Switches()), "switches"
		}
		if last >= count {
			return nil, fmt.Errorf("%s: %q: there are %d %s, from 0 on", setting, word, count, what)
		}
		for i := first; i <= last; i++ {
			has := len(g.Ports(int32(base + i)))
			if some && ofPorts[1] >= has {
				return nil, fmt.Errorf("%s: %q: switch %d has %d ports, from 0 on", setting, word, i, has)
			}
			for p := ofPorts[0]; p <= min(ofPorts[1], has-1); p++ {
				at := portRef{base + i, p}
				if seen[at] {
					continue
				}
				if len(list) == most {
					return nil, fmt.Errorf("%s: these are more than %d ports", setting, most)
				}
				seen[at] = true
				list = append(list, at)
			}
		}
	}
	return list, nil
}

// numberRange reads "3" or "0-15".
func numberRange(text string) (first, last int, ok bool) {
	a, b, isRange := strings.Cut(text, "-")
	x, err := strconv.ParseUint(a, 10, 31)
	if err != nil {
		return 0, 0, false
	}
	y := x
	if isRange {
		if y, err = strconv.ParseUint(b, 10, 31); err != nil || y < x {
			return 0, 0, false
		}
	}
	return int(x), int(y), true
}

// flowsOf returns the numbers that a text names, as "0-15 40": of flows in the
// order in which they begin.
func flowsOf(setting, text string, most int) (list []int, err error) {
	seen := map[int]bool{}
	for _, word := range strings.Fields(text) {
		first, last, ok := numberRange(word)
		if !ok {
			return nil, fmt.Errorf("%s: %q is no flow: they have numbers from 0 on, in the order in which they begin, as 7 or 0-15", setting, word)
		}
		for i := first; i <= last; i++ {
			if seen[i] {
				continue
			}
			if len(list) == most {
				return nil, fmt.Errorf("%s: these are more than %d flows", setting, most)
			}
			seen[i] = true
			list = append(list, i)
		}
	}
	return list, nil
}
