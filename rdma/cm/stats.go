package cm

import (
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/verbs"
)

// Stats are the counters of a device's connection manager, since its first use.
type Stats struct {
	Received, Sent uint64 // management datagrams
	Resent         uint64 // of those sent, because no answer came

	Malformed    uint64 // dropped: no message of connection management
	WrongAddress uint64 // dropped: not from the address of the connection's peer
	Unexpected   uint64 // dropped: for a connection that there is not, or not in its state
	Duplicates   uint64 // messages that had come before
	Unsupported  uint64 // dropped: path migration, which RoCE does not have
	Overloaded   uint64 // requests dropped: a bound was reached
	Evicted      uint64 // requests that have made room for others
	Refused      uint64 // requests that were rejected before a program saw them
	Unanswered   uint64 // answers to strangers that found no room
	Stale        uint64 // connections whose peer has forgotten them

	Connections int // now: all, those that are being made and in timewait too
	HalfOpen    int // now: requests of peers that are not yet connections
	Timewait    int // now
	Listeners   int // now
}

// ReadStats returns the counters of a device; zero before its first use and
// after its close.
func ReadStats(dev *verbs.Device) Stats {
	m := existingManager(dev)
	if m == nil {
		return Stats{}
	}
	m.lock()
	defer m.unlock()
	s := statsOf(m.agent.Stats())
	s.Refused += m.refused
	for service := range m.listeners {
		if _, control := controlled(service); !control {
			s.Listeners++
		}
	}
	return s
}

func statsOf(a agent.Stats) Stats {
	return Stats{
		Received: a.Received, Sent: a.Sent, Resent: a.Resent,
		Malformed: a.Malformed, WrongAddress: a.WrongAddress, Unexpected: a.Unexpected, Duplicates: a.Duplicates,
		Unsupported: a.Unsupported, Overloaded: a.Overloaded, Evicted: a.Evicted, Refused: a.Refused,
		Unanswered: a.Unanswered, Stale: a.Stale,
		Connections: a.Connections, HalfOpen: a.HalfOpen, Timewait: a.Timewait,
	}
}
