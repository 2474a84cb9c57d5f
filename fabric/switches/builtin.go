package switches

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// ECMP is network.ECMP, as a program.
func ECMP(v *network.View) network.Hooks {
	return network.Hooks{Route: func(p *network.Packet, _ int, set []uint16) int {
		if len(set) < 2 {
			return only(set)
		}
		i, _ := bits.Mul64(v.Hash(p), uint64(len(set)))
		return int(set[i])
	}}
}

// Flowlet returns network.Flowlet with a gap, as a program.
func Flowlet(gap network.Time) network.Program {
	const hashBits = 12
	type flowlet struct {
		last network.Time
		port uint16
		used bool
	}
	return func(v *network.View) network.Hooks {
		table := make([]flowlet, 1<<hashBits)
		return network.Hooks{Route: func(p *network.Packet, _ int, set []uint16) int {
			if len(set) < 2 {
				return only(set)
			}
			f := &table[v.Hash(p)>>(64-hashBits)]
			if !f.used || v.Now()-f.last > gap || !contains(set, f.port) {
				f.port = set[v.Rand().Uint64n(uint64(len(set)))]
			}
			f.last, f.used = v.Now(), true
			return int(f.port)
		}}
	}
}

// LeastQueue is network.LeastQueue, as a program.
func LeastQueue(v *network.View) network.Hooks {
	return network.Hooks{Route: func(_ *network.Packet, _ int, set []uint16) int {
		if len(set) < 2 {
			return only(set)
		}
		first := int(v.Rand().Uint64n(uint64(len(set))))
		best, least := set[first], int64(-1)
		for j := range set {
			port := set[(first+j)%len(set)]
			if b := v.Queued(int(port)); (least < 0 || b < least) && v.Up(int(port)) {
				best, least = port, b
			}
		}
		return int(best)
	}}
}

// Spray is network.Spray, as a program.
func Spray(v *network.View) network.Hooks {
	turns := make([]uint16, v.Hosts())
	for d := range turns {
		turns[d] = uint16(v.Rand().Uint64())
	}
	return network.Hooks{Route: func(p *network.Packet, _ int, set []uint16) int {
		if len(set) < 2 {
			return only(set)
		}
		turns[p.Dst]++
		return int(set[uint64(turns[p.Dst])%uint64(len(set))])
	}}
}

// RED returns network.RED for all classes, as a program. Its marks are not in
// Totals.Marks, which has those of Class.RED.
func RED(red network.RED) network.Program {
	return func(v *network.View) network.Hooks {
		return network.Hooks{Dequeue: func(p *network.Packet, at network.Place) network.Verdict {
			queue := v.QueuedOf(at.Out, at.Class)
			switch {
			case p.ECN == network.NotECT || p.ECN == network.CE || queue <= red.Kmin:
			case queue > red.Kmax,
				v.Rand().Uint64n(1e6*uint64(red.Kmax-red.Kmin)) < uint64(red.Pmax)*uint64(queue-red.Kmin):
				p.ECN = network.CE
			}
			return network.Default
		}}
	}
}
