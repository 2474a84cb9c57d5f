package topofile

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// level is a tier of switches and the cables below them. Times are in
// picoseconds.
type level struct {
	line     int
	rate     int64
	delay    int64
	latency  int64 // of a switch
	down, up int64 // ports of a switch
	bundle   int64 // cables between a switch and one below it
	over     int64 // what goes down for what goes up; 0: the file does not say
}

// tree is a fat tree of htsim: pods of hosts, tier 0 and tier 1, and a tier 2
// that joins them, or two tiers that are one pod.
type tree struct {
	hosts, pod int64
	levels     []level
	counts     [3]int64 // switches of each tier
	perPod     [2]int64 // switches of tiers 0 and 1 in a pod
}

// check computes how many switches there are, and says which numbers do not go
// together.
func (t *tree) check() error {
	l := t.levels
	wrong := func(tier int, format string, args ...any) error {
		return fmt.Errorf("line %d: tier %d: %w", l[tier].line, tier, fmt.Errorf(format, args...))
	}
	if t.hosts > topology.MaxNodes || t.hosts%t.pod != 0 {
		return fmt.Errorf("line 1: Nodes is %d and Podsize %d: Nodes is a multiple of it, and at most %d", t.hosts, t.pod, topology.MaxNodes)
	}
	if l[0].bundle != 1 {
		return wrong(0, "a Bundle of %d: a host has one cable", l[0].bundle)
	}
	if t.pod%l[0].down != 0 {
		return wrong(0, "Radix_Down is %d: Podsize, %d, is a multiple of it", l[0].down, t.pod)
	}
	pods := t.hosts / t.pod
	for i := 1; i < len(l); i++ {
		if l[i-1].up%l[i].bundle != 0 {
			return wrong(i, "a Bundle of %d: the Radix_Up of tier %d, %d, is a multiple of it", l[i].bundle, i-1, l[i-1].up)
		}
	}
	t.perPod = [2]int64{t.pod / l[0].down, l[0].up / l[1].bundle}
	t.counts = [3]int64{t.perPod[0] * pods, t.perPod[1] * pods}
	below := t.perPod[0] // switches below one of tier 1
	if len(l) == 2 && pods != 1 {
		return fmt.Errorf("line 1: Podsize is %d and Nodes %d: two tiers are one pod", t.pod, t.hosts)
	}
	if l[1].down != below*l[1].bundle {
		return wrong(1, "Radix_Down is %d: it has %d switches below it, with %d cables each, so it is %d", l[1].down, below, l[1].bundle, below*l[1].bundle)
	}
	if len(l) == 3 {
		t.counts[2] = t.perPod[1] * (l[1].up / l[2].bundle)
		if l[2].down != pods*l[2].bundle {
			return wrong(2, "Radix_Down is %d: it has a switch of each of %d pods below it, with %d cables each, so it is %d", l[2].down, pods, l[2].bundle, pods*l[2].bundle)
		}
	}
	for i := range len(l) - 1 {
		down, up := l[i].down*l[i].rate, l[i].up*l[i+1].rate
		if l[i].over != 0 && down != l[i].over*up {
			return wrong(i, "Oversubscribed is %d, and its ports have %d Gb/s down and %d Gb/s up", l[i].over, down/1e9, up/1e9)
		}
	}
	links := t.hosts + t.counts[0]*l[0].up
	if len(l) == 3 {
		links += t.counts[1] * l[1].up
	}
	if switches := t.counts[0] + t.counts[1] + t.counts[2]; switches > topology.MaxSwitches || links > topology.MaxLinks {
		return fmt.Errorf("line 1: %d switches and %d cables: there are at most %d and %d", switches, links, topology.MaxSwitches, topology.MaxLinks)
	}
	return nil
}

// cable returns those below a tier. Half of the latency of each switch at its
// ends is in its delay: a packet passes a switch by two cables.
func (t *tree) cable(tier int) topology.Cable {
	half := t.levels[tier].latency / 2
	if tier > 0 {
		half += t.levels[tier-1].latency / 2
	}
	return topology.Cable{Rate: t.levels[tier].rate, Delay: t.levels[tier].delay + half}
}

// graph builds the network.
func (t *tree) graph() (*topology.Graph, error) {
	b := topology.NewBuilder(int(t.hosts))
	var first [3]int32 // switches of each tier
	for tier := range t.levels {
		for i := range t.counts[tier] {
			if s := b.Switch(tier + 1); i == 0 {
				first[tier] = s
			}
		}
	}
	for h := range t.hosts {
		b.Link(int32(h), first[0]+int32(h/t.levels[0].down), t.cable(0))
	}
	for s := range t.counts[0] {
		for j := range t.perPod[1] {
			for range t.levels[1].bundle {
				b.Link(first[0]+int32(s), first[1]+int32(s/t.perPod[0]*t.perPod[1]+j), t.cable(1))
			}
		}
	}
	if len(t.levels) == 3 {
		for a := range t.counts[1] {
			for j := range t.levels[1].up / t.levels[2].bundle {
				for range t.levels[2].bundle {
					b.Link(first[1]+int32(a), first[2]+int32(a%t.perPod[1]+t.perPod[1]*j), t.cable(2))
				}
			}
		}
	}
	g, err := b.Graph()
	if err != nil {
		return nil, fmt.Errorf("the network of the file: %w", err)
	}
	return g, nil
}
