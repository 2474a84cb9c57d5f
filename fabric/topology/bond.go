package topology

import "fmt"

// A host with several links has a bond: a switch inside its adapter, as
// adapters have one between their function and their ports (link aggregation,
// IEEE 802.1AX). The host has one link, which takes no time and is as fast as
// all others together, to its bond, and that has the links. It chooses one by
// the hash of a flow. No other host's packets go by way of it. Bonds are numbered
// after all other switches, and their links to the hosts after all other links.
// They stand in tier 0.

// Bond returns the bond of a host, and false if it has one link.
func (g *Graph) Bond(host int32) (sw int32, ok bool) {
	if p := g.Ports(host)[0].Peer; g.IsBond(p) {
		return p, true
	}
	return 0, false
}

// IsBond reports whether a node is the bond of a host.
func (g *Graph) IsBond(node int32) bool { return node >= g.Nodes()-g.bonds }

// bond gives a bond to each host that has several links.
func (b *Builder) bond() (bonds int32) {
	count := make([]uint16, b.hosts)
	rate := make([]int64, b.hosts)
	for i := range b.links {
		l := &b.links[i]
		for _, end := range []int32{l.A, l.B} {
			if end < b.hosts {
				count[end] = min(count[end]+1, 2)
				rate[end] = min(rate[end]+l.Rate, mostBond)
			}
		}
	}
	of := make([]int32, b.hosts)
	for h := range of {
		if count[h] > 1 {
			of[h] = b.Switch(1)
			bonds++
		}
	}
	if b.err != nil || bonds == 0 {
		return 0
	}
	for i := range b.links {
		l := &b.links[i]
		for _, end := range []*int32{&l.A, &l.B} {
			if *end < b.hosts && of[*end] != 0 {
				*end = of[*end]
			}
		}
	}
	for h, sw := range of {
		if sw != 0 {
			b.tiers[sw] = 0
			b.Link(int32(h), sw, Cable{Rate: rate[h]})
		}
	}
	return bonds
}

// mostBond is the highest rate of a cable of package network.
const mostBond = 8_000_000_000_000

// errNoLink is the mistake of a host without a cable.
func errNoLink(host int) error {
	return fmt.Errorf("topology: host %d has 0 links; a host has one or more", host)
}
