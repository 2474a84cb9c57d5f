package engine

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// maxPaths is how many paths are kept at least; at most twice that many are.
const maxPaths = 4096

// paths are the ways that packets take to where no queue pair is connected: UD
// names a destination with each request. Packets of several requests, and of
// several queue pairs, can leave as one run if they have the same path.
type paths struct {
	src    netip.Addr
	recent map[pathKey]*transport.Path
	older  map[pathKey]*transport.Path // those that were not used for long go with it

	last     *ib.AddressVector // that was asked for
	lastPath *transport.Path
}

// pathKey is what two address vectors of one path have in common.
type pathKey struct {
	dst                    netip.Addr
	srcPort                uint16
	trafficClass, hopLimit uint8
	flowLabel              uint32
}

// of returns the path of a vector that does not change.
func (p *paths) of(av *ib.AddressVector) *transport.Path {
	if p.last != av {
		p.last, p.lastPath = av, p.find(av)
	}
	return p.lastPath
}

// flowLabel returns the flow label of packets to where a vector says. IPv4 has
// none: there vectors that differ in it have one path. Connection managers
// choose one for each connection.
func flowLabel(av *ib.AddressVector) uint32 {
	if av.DGID.Unmap().Is4() {
		return 0
	}
	return av.FlowLabel
}

// find returns the path of a vector.
func (p *paths) find(av *ib.AddressVector) *transport.Path {
	k := pathKey{dst: av.DGID.Unmap().WithZone(""), srcPort: av.SrcPort, trafficClass: av.TrafficClass,
		hopLimit: av.HopLimit, flowLabel: flowLabel(av)}
	have := p.recent[k]
	if have != nil {
		return have
	}
	if have = p.older[k]; have == nil {
		have = transport.NewPath(p.src, transport.Path{Dst: k.dst, SrcPort: k.srcPort, TrafficClass: k.trafficClass,
			HopLimit: k.hopLimit, FlowLabel: k.flowLabel})
	}
	if p.recent == nil || len(p.recent) == maxPaths {
		p.older, p.recent = p.recent, map[pathKey]*transport.Path{}
	}
	p.recent[k] = have
	return have
}
