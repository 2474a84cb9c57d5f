package network

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
)

const (
	flowletBits = 12
	udpPort     = 4791 // RoCEv2's, the destination of all packets
)

// flowlet is where packets of a hash went, and when the last one did.
type flowlet struct {
	last Time
	port uint16
	used bool
}

// hash is that of ECMP: over source, destination and UDP ports.
func (sw *swtch) hash(p *Packet) uint64 {
	flow := uint64(p.Src)<<48 | uint64(p.Dst)<<32 | uint64(p.SrcPort)<<16 | udpPort
	return event.Mix(flow ^ sw.hashSeed)
}

// choose returns a port of a set of two or more.
func (sw *swtch) choose(set []uint16, p *Packet) uint16 {
	size := uint64(len(set))
	switch sw.routing {
	case Spray:
		sw.turns[p.Dst]++
		return set[uint64(sw.turns[p.Dst])%size]
	case LeastQueue:
		return sw.leastQueue(set)
	case Flowlet:
		f := &sw.flowlets[sw.hash(p)>>(64-flowletBits)]
		now := sw.part.q.Now()
		if !f.used || now-f.last > sw.gap || !contains(set, f.port) {
			f.port = set[sw.rand.Uint64n(size)]
		}
		f.last, f.used = now, true
		return f.port
	}
	i, _ := bits.Mul64(sw.hash(p), size)
	return set[i]
}

// leastQueue returns the port of a set with the fewest bytes queued. Of equal
// ones it is any: if the flow decided, flows would collide further on as with
// ECMP, where this switch does not see it. Ports whose cable is down are passed
// over: a switch knows its own.
func (sw *swtch) leastQueue(set []uint16) uint16 {
	first := sw.rand.Uint64n(uint64(len(set)))
	best, least := set[first], int64(-1)
	for j := range set {
		port := set[(int(first)+j)%len(set)]
		if b := sw.out[port].bytes; (least < 0 || b < least) && sw.link(int(port)).up {
			best, least = port, b
		}
	}
	return best
}

func contains(set []uint16, port uint16) bool {
	for _, p := range set {
		if p == port {
			return true
		}
	}
	return false
}

// mustStore reports whether a packet of which the head has come must be stored
// until its last bit is there: a port that it may leave by is faster.
func (sw *swtch) mustStore(k *link, s *slot) bool {
	return sw.fastest[sw.table.Set[s.Dst]] > k.rate
}
