package engine

// A network with classes holds them apart: it can pause one, and schedule them
// by rules of its own. A driver that has such a network says with Config.Class
// which packets are of which, asks with Engine.Classes what there is, and takes
// packets of some classes with Fill. What it does not take stays where it is:
// in the queue pairs, not in a queue after them.

// NumClasses is how many classes there can be, as there are priorities of
// Ethernet (IEEE 802.1Q).
const NumClasses = 8

// Classes is a set of classes: 1<<n has class n.
type Classes uint8

// AllClasses has all of them.
const AllClasses Classes = 1<<NumClasses - 1

// Has reports whether class n is in c.
func (c Classes) Has(n uint8) bool { return c>>n&1 != 0 }

// class returns the class of packets with a traffic class.
func (c *Config) class(trafficClass uint8) uint8 {
	if c.Class == nil {
		return 0
	}
	return min(c.Class(trafficClass), NumClasses-1)
}
