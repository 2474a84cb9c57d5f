package switches

import "github.com/gosoftroce/rocev2/fabric/network"

// DRILL has each packet take the port with the fewest bytes queued, among some
// at random and those that were best the last times (Ghorbani et al., SIGCOMM
// 2017, section 3.2.1: DRILL(d, m)). What was best is kept for each set of
// ports. Ports whose cable is down are passed over.
type DRILL struct {
	Samples int // d, ports that are drawn for each packet; 0: 2
	Memory  int // m, ports that are kept; 0: 1. Negative: none
}

// Program implements it.
func (d DRILL) Program(v *network.View) network.Hooks {
	samples, memory := orDefault(d.Samples, 2), max(orDefault(d.Memory, 1), 0)
	best := map[uint16][]uint16{} // only looked up, by the first port of the set
	tried := make([]uint16, 0, samples+memory)
	return network.Hooks{Route: func(_ *network.Packet, _ int, set []uint16) int {
		if len(set) < 2 {
			return only(set)
		}
		tried = append(tried[:0], best[set[0]]...)
		for range samples {
			tried = append(tried, set[v.Rand().Uint64n(uint64(len(set)))])
		}
		sortByQueue(v, tried)
		kept := best[set[0]][:0]
		for _, port := range tried {
			if len(kept) < memory && contains(set, port) && !contains(kept, port) {
				kept = append(kept, port)
			}
		}
		best[set[0]] = kept
		for _, port := range tried {
			if contains(set, port) && v.Up(int(port)) {
				return int(port)
			}
		}
		return int(set[v.Rand().Uint64n(uint64(len(set)))])
	}}
}

// sortByQueue sorts a few ports by what is queued there, the least first.
func sortByQueue(v *network.View, ports []uint16) {
	for i := 1; i < len(ports); i++ {
		for j := i; j > 0 && v.Queued(int(ports[j])) < v.Queued(int(ports[j-1])); j-- {
			ports[j], ports[j-1] = ports[j-1], ports[j]
		}
	}
}

func contains(set []uint16, port uint16) bool {
	for _, p := range set {
		if p == port {
			return true
		}
	}
	return false
}

// only returns the port of a set that has no choice.
func only(set []uint16) int {
	if len(set) == 0 {
		return -1
	}
	return int(set[0])
}

// Weighted has each packet take a port at random, with a weight that is half as
// large for each step that the port's queue is longer: what is queued is known
// only roughly, as to the adaptive routing of switches as they are sold. A port
// whose cable is down has no weight.
type Weighted struct {
	Step   int64 // bytes; 0: 8192
	Levels int   // from there on all are alike; 0: 8, at most 32
}

// Program implements it.
func (w Weighted) Program(v *network.View) network.Hooks {
	step, levels := w.Step, min(orDefault(w.Levels, 8), 32)
	if step <= 0 {
		step = 8192
	}
	weight := func(port uint16) uint64 {
		if !v.Up(int(port)) {
			return 0
		}
		level := min(v.Queued(int(port))/step, int64(levels-1))
		return 1 << (32 - level)
	}
	return network.Hooks{Route: func(_ *network.Packet, _ int, set []uint16) int {
		if len(set) < 2 {
			return only(set)
		}
		var sum uint64
		for _, port := range set {
			sum += weight(port)
		}
		at := v.Rand().Uint64n(max(sum, 1))
		for _, port := range set {
			n := weight(port)
			if at < n {
				return int(port)
			}
			at -= n
		}
		return int(set[0]) // all are down
	}}
}
