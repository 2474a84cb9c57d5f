package traffic

import "fmt"

// checkBytes checks the size of a flow or of a vector.
func checkBytes(n int64) error {
	if n < 1 || n > maxBytes {
		return fmt.Errorf("traffic: flows of %d bytes; a flow has 1 to %d", n, int64(maxBytes))
	}
	return nil
}

// Permutation returns one flow from each host, so that each host receives one,
// too, and none its own. All begin at 0.
func Permutation(r Source, hosts int, bytes int64) ([]Flow, error) {
	if err := checkHosts(hosts); err != nil {
		return nil, err
	}
	if err := checkBytes(bytes); err != nil {
		return nil, err
	}
	flows := make([]Flow, hosts)
	for src, dst := range cyclic(r, hosts) {
		flows[src] = Flow{Bytes: bytes, Src: int32(src), Dst: dst}
	}
	return flows, nil
}

// PermutationAcross returns a permutation in which no flow stays within a
// group of hosts that follow each other: those of one leaf, for instance. So
// every flow takes an uplink. All begin at 0. The number of hosts is a
// multiple of the group's size, and at least twice it.
func PermutationAcross(r Source, hosts, group int, bytes int64) ([]Flow, error) {
	if err := checkHosts(hosts); err != nil {
		return nil, err
	}
	if err := checkBytes(bytes); err != nil {
		return nil, err
	}
	if group < 1 || hosts%group != 0 || hosts/group < 2 {
		return nil, fmt.Errorf("traffic: a permutation of %d hosts in groups of %d; it takes two groups or more, all full", hosts, group)
	}
	groups := hosts / group
	from, to := make([][]int32, groups), make([][]int32, groups)
	for g := range groups {
		from[g], to[g] = shuffled(r, group), shuffled(r, group)
	}
	flows := make([]Flow, hosts)
	for slot := range group {
		for g, other := range cyclic(r, groups) {
			src := g*group + int(from[g][slot])
			dst := int(other)*group + int(to[other][slot])
			flows[src] = Flow{Bytes: bytes, Src: int32(src), Dst: int32(dst)}
		}
	}
	return flows, nil
}

// Incast returns flows from hosts 1 to senders to host 0. All begin at 0.
func Incast(senders int, bytes int64) ([]Flow, error) {
	if err := checkHosts(senders + 1); err != nil {
		return nil, err
	}
	if err := checkBytes(bytes); err != nil {
		return nil, err
	}
	flows := make([]Flow, senders)
	for i := range flows {
		flows[i] = Flow{Bytes: bytes, Src: int32(i + 1)}
	}
	return flows, nil
}

// AllToAll returns a flow from every host to every other one. All begin at 0.
// They are in the order in which hosts send them so that no two send to one
// at the same time: first each to the next host, then each to the second
// next. There are 2 to 4096 hosts.
func AllToAll(hosts int, bytes int64) ([]Flow, error) {
	if hosts < 2 || hosts > 4096 {
		return nil, fmt.Errorf("traffic: all-to-all of %d hosts; it takes 2 to 4096", hosts)
	}
	if err := checkBytes(bytes); err != nil {
		return nil, err
	}
	flows := make([]Flow, 0, hosts*(hosts-1))
	for distance := 1; distance < hosts; distance++ {
		for src := range hosts {
			flows = append(flows, Flow{Bytes: bytes, Src: int32(src), Dst: int32((src + distance) % hosts)})
		}
	}
	return flows, nil
}
