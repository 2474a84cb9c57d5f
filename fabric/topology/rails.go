package topology

import (
	"errors"
	"fmt"
)

// Rails describes the network of a cluster whose machines have several GPUs,
// each with an adapter of its own: a host. Adapter r of each machine is on rail
// r: attached to the leaf that rail has for the machine. So what goes from a
// GPU to that of the same number in another machine passes one switch. Host
// m*GPUs+r is GPU r of machine m. The leaves are the first switches: for the
// first PerLeaf machines one of each rail, then for the next ones. Each leaf
// has one link to each spine. Without spines the rails are apart (rail-only,
// Wang et al., HOTI 2024).
//
// With ScaleUp each machine has a switch of its own between its GPUs, as NVLink
// has, numbered after the spines. A GPU then has two links, and a Bond: what it
// has for one of its own machine goes by that switch, which is the shortest
// way, and all else by its rail. GPUs do not forward for each other.
type Rails struct {
	Machines int
	GPUs     int // of a machine: that many rails
	PerLeaf  int // machines of a leaf; 0: all
	Spines   int
	Host     Cable // from a host to its leaf
	Up       Cable // from a leaf to a spine; the zero Cable stands for Host
	ScaleUp  Cable // from a GPU to the switch of its machine; the zero Cable: there is none
}

// Graph returns the network.
func (c Rails) Graph() (*Graph, error) {
	if c.PerLeaf == 0 {
		c.PerLeaf = c.Machines
	}
	err := firstError(count("machines", c.Machines, 1), count("GPUs per machine", c.GPUs, 1), count("machines per leaf", c.PerLeaf, 1), count("spines", c.Spines, 0))
	if err != nil {
		return nil, err
	}
	groups := (c.Machines + c.PerLeaf - 1) / c.PerLeaf
	if groups > 1 && c.Spines == 0 {
		return nil, fmt.Errorf("topology: %d machines with leaves for %d, and no spines: the machines are apart", c.Machines, c.PerLeaf)
	}
	hosts, leaves := int64(c.Machines)*int64(c.GPUs), int64(groups)*int64(c.GPUs)
	inside := c.ScaleUp != (Cable{})
	own, ports := int64(0), hosts
	if inside {
		own, ports = int64(c.Machines)+hosts, 3*hosts // each GPU has a Bond
	}
	switch err := fits(hosts, leaves+int64(c.Spines)+own, ports+leaves*int64(c.Spines)); {
	case err != nil:
		return nil, err
	case inside && c.GPUs == 1:
		return nil, errors.New("topology: a machine of one GPU has no network inside")
	}
	if c.Up == (Cable{}) {
		c.Up = c.Host
	}
	b := NewBuilder(int(hosts))
	leaf := switches(b, int(leaves), 1)
	for h := range int(hosts) {
		group, rail := h/c.GPUs/c.PerLeaf, h%c.GPUs
		b.Link(int32(h), leaf+int32(group*c.GPUs+rail), c.Host)
	}
	if c.Spines > 0 {
		spine := switches(b, c.Spines, 2)
		for l := range int32(leaves) {
			for s := range int32(c.Spines) {
				b.Link(leaf+l, spine+s, c.Up)
			}
		}
	}
	if inside {
		machine := switches(b, c.Machines, 1)
		for h := range int(hosts) {
			b.Link(int32(h), machine+int32(h/c.GPUs), c.ScaleUp)
		}
	}
	return b.Graph()
}
