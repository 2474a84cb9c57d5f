package hca

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// HoldQPN returns a number that no queue pair has and none gets: it is for one
// that is made later, with qp.Config.QPN. What comes for the number until that
// is in RTR waits, as far as there is room. It is 0 if the device is closed.
// The number is free again when the queue pair is closed, or with ReleaseQPN.
func (d *shared) HoldQPN() rocev2.QPN {
	s := d.parts[int(d.random())&(len(d.parts)-1)]
	s.lock()
	defer s.unlock()
	if s.closed {
		return 0
	}
	return s.eng.Hold()
}

// ReleaseQPN gives back a number that HoldQPN has returned, and of which no
// queue pair was made.
func (d *shared) ReleaseQPN(n rocev2.QPN) {
	i := d.partOf(n)
	if i < 0 {
		return
	}
	s := d.parts[i]
	s.lock()
	defer s.unlock()
	s.eng.Release(n)
}

// Heard reports whether a packet with a PSN has come from an address for a
// number that is held.
func (d *shared) Heard(n rocev2.QPN, from netip.Addr, psn rocev2.PSN) bool {
	i := d.partOf(n)
	if i < 0 {
		return false
	}
	s := d.parts[i]
	s.lock()
	defer s.unlock()
	return s.eng.Heard(n, from, psn)
}

// replay has the shard handle the packets that have come for a number before
// its queue pair could take them. The caller holds the shard's lock.
func replay(s *locked, n rocev2.QPN) {
	packets := s.eng.Kept(n)
	for i := range packets {
		s.forwarded.put(&packets[i])
	}
}

// Held returns how many numbers are held.
func (d *shared) Held() (n int) {
	for _, s := range d.parts {
		s.lock()
		n += s.eng.Holds()
		s.unlock()
	}
	return n
}
