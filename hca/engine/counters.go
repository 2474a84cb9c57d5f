package engine

import (
	"errors"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// DeviceDrop is why an engine drops a packet before any queue pair sees it, in
// silence (IBTA 9.6).
type DeviceDrop uint8

// The reasons.
const (
	DropShort DeviceDrop = iota
	DropOpcode
	DropVersion
	DropLength
	DropPad
	DropMalformed
	DropBadICRC // IBTA 7.8.1
	DropUnknownQP
	DropSourcePort // not from the port of a native peer
	DropSecurity   // in clear for a queue pair whose packets are sealed, or the other way round, or sealed and not opened
	DropGroup      // for a group that no queue pair is attached to, or sent to a group and for one queue pair
	NumDeviceDrops
)

var deviceDropNames = [NumDeviceDrops]string{
	DropShort:      "short_packet",
	DropOpcode:     "unknown_opcode",
	DropVersion:    "wrong_version",
	DropLength:     "wrong_length",
	DropPad:        "wrong_pad",
	DropMalformed:  "malformed",
	DropBadICRC:    "bad_icrc",
	DropUnknownQP:  "unknown_qpn",
	DropSourcePort: "wrong_source_port",
	DropSecurity:   "wrong_security",
	DropGroup:      "unknown_group",
}

// String returns the reason as one word, fit for the label of a counter.
func (d DeviceDrop) String() string { return deviceDropNames[d] }

// Counters are the counters of an engine since it was made.
type Counters struct {
	Device      [NumDeviceDrops]uint64 // packets dropped before any queue pair saw them
	QP          [qp.NumDrops]uint64    // packets that queue pairs dropped
	LoopPackets uint64                 // packets that passed inside the engine
	LoopBytes   uint64                 // of these, BTH to ICRC
	Payload     uint64                 // bytes of packets that queue pairs were given, qp.Stats.RxBytes of all
}

// EachDrop calls f for every reason for which packets were dropped.
func (c *Counters) EachDrop(f func(reason string, n uint64)) {
	for i, n := range c.Device {
		if n > 0 {
			f(DeviceDrop(i).String(), n)
		}
	}
	for i, n := range c.QP {
		if n > 0 {
			f(qp.Drop(i).String(), n)
		}
	}
}

func (c *Counters) malformed(err error) {
	switch {
	case errors.Is(err, rocev2.ErrShort):
		c.Device[DropShort]++
	case errors.Is(err, rocev2.ErrOpcode):
		c.Device[DropOpcode]++
	case errors.Is(err, rocev2.ErrVersion):
		c.Device[DropVersion]++
	case errors.Is(err, rocev2.ErrLength):
		c.Device[DropLength]++
	case errors.Is(err, rocev2.ErrPad):
		c.Device[DropPad]++
	default:
		c.Device[DropMalformed]++
	}
}

// Usage is what an engine holds at the moment.
type Usage struct {
	QPs      int
	Peers    int
	Sending  int // queue pairs that wait for a turn, or keep their place in the round
	Limited  int // queue pairs that the limit of their peer has stopped
	Delayed  int // queue pairs with an acknowledgement that waits
	Final    int // final packets that wait
	Timers   int // entries of the heap, void ones included
	InFlight int // bytes, to all peers
	Silent   int // bytes of these that are in flight to peers that do not answer
	Busy     int // queue pairs with anything in flight
}

// Usage returns what the engine holds. It looks at every peer.
func (e *Engine) Usage() Usage {
	u := Usage{
		QPs: e.table.n, Peers: len(e.peers.byAddr), Sending: e.turns.len(), Delayed: len(e.out.acks.waiting),
		Final: len(e.finals.packets), Timers: e.timers.heap.Len(),
	}
	for _, p := range e.peers.byAddr {
		u.Silent += p.accounts[accountSilent].inFlight
		for i := range p.accounts {
			a := &p.accounts[i]
			u.InFlight += a.inFlight
			u.Busy += a.busy
			u.Limited += a.waiting.Len()
		}
	}
	return u
}

// Counters returns the live counters.
func (e *Engine) Counters() *Counters { return &e.counters }

// QPStats returns the sum of the counters of all queue pairs, those that are
// destroyed included. It looks at every queue pair.
func (e *Engine) QPStats() qp.Stats {
	sum := e.past
	e.table.each(func(q *QP) { qp.AddStats(&sum, q.core) })
	return sum
}

// Holds returns how many numbers are held.
func (e *Engine) Holds() int { return len(e.in.holds.of) }

// Lookup returns the queue pair with a number, nil if there is none.
func (e *Engine) Lookup(n rocev2.QPN) *QP { return e.table.get(n) }

// AppendQPNs appends the numbers of all queue pairs, in no order.
func (e *Engine) AppendQPNs(list []rocev2.QPN) []rocev2.QPN {
	for _, n := range e.table.keys {
		if n != 0 {
			list = append(list, n)
		}
	}
	return list
}
