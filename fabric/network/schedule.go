package network

import "math/bits"

// schedule returns the class that sends next, of those in ready: the highest of
// the strict ones, or the one whose turn it is in deficit weighted round robin
// (Shreedhar, Varghese: Efficient Fair Queuing Using Deficit Round Robin). A
// turn adds the class's quantum to its deficit. The largest quantum is an MTU,
// so shares are fair over few packets.
func (o *port) schedule(s *slots, ready uint8) uint8 {
	if strict := ready & o.strict; strict != 0 {
		return uint8(bits.Len8(strict) - 1)
	}
	if ready&(ready-1) == 0 {
		return uint8(bits.Len8(ready) - 1) // no class to share with
	}
	for {
		if c := o.turn; ready>>c&1 != 0 {
			q := &o.queues[c]
			if size := int32(s.all[q.head].Size); size <= q.deficit {
				q.deficit -= size
				return c
			}
		}
		o.turn = following(o.turn, ready)
		o.queues[o.turn].deficit += o.quantum[o.turn]
	}
}

// following returns the class of a set that comes after c, in a circle.
func following(c, set uint8) uint8 {
	if above := set &^ (2<<c - 1); above != 0 {
		return uint8(bits.TrailingZeros8(above))
	}
	return uint8(bits.TrailingZeros8(set))
}
