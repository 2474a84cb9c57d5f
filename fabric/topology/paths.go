package topology

import (
	"fmt"
	"math"
	"math/bits"
)

// Path returns the links of a way from one host to another. Where the tables
// leave a choice, choose is told the switch and the number of ways, and says
// which; nil takes the first. It is an error if there is no way, if the tables
// send packets in a circle or by a host, and if choose says what there is not.
func (t *Tables) Path(src, dst int32, choose func(sw int32, ways int) int) ([]int32, error) {
	g := t.g
	for _, h := range []int32{src, dst} {
		if h < 0 || h >= g.hosts {
			return nil, fmt.Errorf("topology: a path from node %d to node %d; hosts are 0 to %d", src, dst, g.hosts-1)
		}
	}
	if src != dst && t.cutOff(src) {
		return nil, fmt.Errorf("topology: no way from host %d to host %d: the link of host %d has failed", src, dst, src)
	}
	var links []int32
	for at := src; at != dst; {
		if len(links) > int(g.Switches())+1 {
			return nil, fmt.Errorf("topology: the tables send packets from host %d to host %d in a circle", src, dst)
		}
		port := uint16(0) // of a host
		if !g.IsHost(at) {
			next := t.Next(at, dst)
			if len(next) == 0 {
				return nil, fmt.Errorf("topology: no way from host %d to host %d at switch %d", src, dst, at)
			}
			port = next[0]
			if choose != nil {
				i := choose(at, len(next))
				if i < 0 || i >= len(next) {
					return nil, fmt.Errorf("topology: way %d was chosen of %d at switch %d", i, len(next), at)
				}
				port = next[i]
			}
		} else if at != src {
			return nil, fmt.Errorf("topology: the tables send packets from host %d to host %d by way of host %d", src, dst, at)
		}
		p := g.Ports(at)[port]
		links = append(links, p.Link)
		at = p.Peer
	}
	return links, nil
}

// cutOff reports whether the link of a host has failed.
func (t *Tables) cutOff(host int32) bool { return t.cut.Has(t.g.Ports(host)[0].Link) }

// Ways returns in how many ways packets can get from one host to another. It
// is 0 if there is none, and MaxUint64 if there are more. It returns an error
// if packets can run in a circle.
func (t *Tables) Ways(src, dst int32) (uint64, error) {
	g := t.g
	for _, h := range []int32{src, dst} {
		if h < 0 || h >= g.hosts {
			return 0, fmt.Errorf("topology: ways from node %d to node %d; hosts are 0 to %d", src, dst, g.hosts-1)
		}
	}
	if t.cutOff(src) {
		return 0, nil
	}
	if peer := g.Ports(src)[0].Peer; g.IsHost(peer) {
		if peer == dst {
			return 1, nil
		}
		return 0, nil
	}
	const open = math.MaxUint64 - 1
	w := ways{t: t, dst: dst, known: map[int32]uint64{}, open: open}
	n, ok := w.from(g.Ports(src)[0].Peer)
	if !ok {
		return 0, fmt.Errorf("topology: the tables send packets from host %d to host %d in a circle", src, dst)
	}
	return n, nil
}

type ways struct {
	t     *Tables
	dst   int32
	known map[int32]uint64
	open  uint64 // what known has while a switch is looked at
}

func (w *ways) from(s int32) (uint64, bool) {
	if s == w.dst {
		return 1, true
	}
	if w.t.g.IsHost(s) {
		return 0, true
	}
	if n, ok := w.known[s]; ok {
		return n, n != w.open
	}
	w.known[s] = w.open
	var sum uint64
	for _, port := range w.t.Next(s, w.dst) {
		n, ok := w.from(w.t.g.Ports(s)[port].Peer)
		if !ok {
			return 0, false
		}
		var carry uint64
		if sum, carry = bits.Add64(sum, n, 0); carry != 0 || sum >= w.open {
			sum = math.MaxUint64
		}
	}
	w.known[s] = sum
	return sum, true
}
