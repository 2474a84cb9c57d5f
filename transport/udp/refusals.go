//go:build linux && !portable

package udp

import "net/netip"

// refusals remembers the destinations to which a device refused to segment. One
// way says nothing about the others. The memory is bounded, and after a while a
// destination is tried again, because devices change. A forgotten destination
// costs one refusal.
type refusals struct {
	plain map[netip.Addr]int // runs that were not tried since the refusal
	order [maxRefusals]netip.Addr
	next  int // place in order of the one to be forgotten
}

const (
	maxRefusals   = 64
	retryRefusals = 1 << 16 // runs
)

// add notes a refusal.
func (r *refusals) add(dst netip.Addr) {
	if _, known := r.plain[dst]; known {
		r.plain[dst] = 0
		return
	}
	if r.plain == nil {
		r.plain = make(map[netip.Addr]int, maxRefusals)
	}
	delete(r.plain, r.order[r.next])
	r.order[r.next] = dst
	r.next = (r.next + 1) % maxRefusals
	r.plain[dst] = 0
}

// allow reports whether to try a run to dst.
func (r *refusals) allow(dst netip.Addr) bool {
	if len(r.plain) == 0 {
		return true
	}
	n, refused := r.plain[dst]
	if !refused {
		return true
	}
	if n >= retryRefusals {
		delete(r.plain, dst) // unless it is refused again
		return true
	}
	r.plain[dst] = n + 1
	return false
}
