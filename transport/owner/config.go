package owner

import (
	"log/slog"
	"math"
	"net/netip"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// Config says what an owner owns, and which users may lease it. Addr is
// required.
type Config struct {
	// Addr is the local address.
	Addr netip.Addr

	// Dir is the directory of the Unix socket, whose name there is the
	// address. It is made if it is not there, for this user alone. "" means
	// the user's own (lease.UserDir), where processes of the user in the
	// same network namespace find it.
	Dir string

	// Allow reports whether processes of another user may lease. Those of
	// the owner's own user always may. Nil allows no others. Where it
	// allows some, Dir must let them in, and they can send packets in the
	// name of each other leaseholder.
	Allow func(uid uint32) bool

	// Slots is how many sockets are bound: a power of two, 8 to 256. One
	// is the owner's, a device needs as many as it has shards. 0 means 256,
	// or 64 where the process may have few files.
	Slots int

	// Quota bounds each lease.
	Quota Quota

	// UDP describes the sockets. Its buffers are those of leaseholders that
	// ask for nothing else. Port 0 means 4791.
	UDP udp.Config

	// Secured has all packets of the port sealed, those of leaseholders
	// too. Nil: they go in clear.
	Secured *Secured

	// Ended is told of each lease that has ended, with its last counters.
	// Nil means none is. It must not wait, nor call the Owner.
	Ended func(Lease)

	// Past returns leases that have ended, for List. Nil means that they
	// are forgotten.
	Past func() []Lease

	// Changed is called when a lease has begun, and when one has ended. Nil
	// means that nothing is. It must not wait, nor call the Owner.
	Changed func()

	// Log is told of each lease, and why it ends. Nil means no log.
	Log *slog.Logger
}

// Secured says by which keys packets are sealed: see package transport/guard.
type Secured struct {
	Table *guard.Table
	File  *os.File // of the table, for leaseholders: see guard.NewSharedTable
	Want  func(peer netip.Addr, why guard.Reason)
}

// Quota is what one lease may have. A field of 0 has its default.
type Quota struct {
	QPs        int // queue pairs, which the leaseholder's device keeps to; 0: half of the numbers of its slots, 32768 with one of 256
	RecvBuffer int // bytes of the receive buffer of each socket; 0: 64 MiB
	SendBuffer int // bytes of the send buffer of each socket; 0: 64 MiB
	MADs       int // management datagrams in a second, each way; 0: 20000
	// Leases is how many leases one user has; 0: all slots. While fewer
	// than half of the slots are free, it is how many slots the user has,
	// those that rest included.
	Leases int
}

// Lease is one share of the port. Counters are those that the leaseholder has
// told last: one that is stopped tells nothing.
type Lease struct {
	PID     int    // of the process; 0 if it is not visible here
	UID     uint32 // its user
	Command string // its name, as the process says
	Slot    int    // the first of its slots
	Slots   int    // how many it has, one for each shard
	Run     string // the run that it says it belongs to (lease.RunEnv)
	Since   time.Time
	Told    bool // it has told its counters; else all of them are 0
	Last    bool // they are the last ones: its device has ended in order

	QPs                  int    // open queue pairs
	MadeQPs              uint64 // queue pairs made since the beginning
	TxPackets, RxPackets uint64 // with those through shared memory
	TxBytes, RxBytes     uint64
	TxShm, RxShm         uint64 // bytes of those, through shared memory
	Reached              []Peer // that queue pairs were connected to, the first ones
	Work                 Work
	Guard                *guard.Counters `json:",omitempty"` // nil: the port is not secured

	Connections int          // that its connection manager has, as the owner sees it
	Peers       []netip.Addr // of those, in order
	Services    []uint64     // service IDs that it has reserved, in order
}

// Add adds the counters of another lease. A sum that would be too large is the
// largest: leaseholders tell what they like.
func (l *Lease) Add(o *Lease) {
	for _, c := range []struct {
		to *uint64
		n  uint64
	}{
		{&l.MadeQPs, o.MadeQPs}, {&l.TxShm, o.TxShm}, {&l.RxShm, o.RxShm},
		{&l.TxPackets, o.TxPackets}, {&l.RxPackets, o.RxPackets}, {&l.TxBytes, o.TxBytes}, {&l.RxBytes, o.RxBytes},
	} {
		*c.to += min(c.n, math.MaxUint64-*c.to)
	}
	if o.Guard != nil { // its counters are bounded: see mostRate
		if sum := *o.Guard; l.Guard == nil {
			l.Guard = &sum
		} else {
			sum.Add(l.Guard)
			l.Guard = &sum
		}
	}
}

// Peer is a peer of queue pairs.
type Peer = lease.Peer

// Work is what a program has done with its queue pairs.
type Work = transport.Work

// Stats are counters of an owner.
type Stats struct {
	Leases, Resting, Free int // leases; slots that rest, and that are free

	Granted  uint64 // leases granted since the beginning
	Refused  uint64 // requests refused, or that made no sense
	Relayed  uint64 // management datagrams passed on, either way
	Answered uint64 // that belonged to no lease, and were handled by the owner
	Dropped  uint64 // management datagrams over a lease's quota, or malformed
	Strays   uint64 // packets that came to another slot than their own, passed on
}
