package qp

import (
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/datagram"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Limit is what the driver lets a queue pair send now.
type Limit struct {
	Packets int // at most this many
	// Bytes bounds the requests, for a driver that shares a peer's buffers
	// among queue pairs: while there are bytes left a request may go, and
	// with 0 none. Answers go on. math.MaxInt is no bound.
	Bytes int
	// DelayAck has a lone acknowledgement wait, for a driver that polls
	// again in a moment: so a request that the program posts in answer goes
	// first. All other answers go as ever, and acknowledgements with them.
	DelayAck bool

	// AckFirst has an acknowledgement leave before requests always.
	AckFirst bool
}

// Polled is what a Poll has done, why it has stopped, and what the queue pair
// wants of the driver now, but for Owes and Sends: whether there is more to
// send the first fields say.
type Polled struct {
	Packets    int  // written
	Bytes      int  // of requests among them, as they count in flight (cc.Flight)
	Full       bool // the writer takes no more
	Blocked    bool // a request waits for nothing but Limit.Bytes
	AckDelayed bool // an acknowledgement waits because of Limit.DelayAck
	Ready
}

// Ready is how a queue pair stands after an input, and what it wants of the
// driver. The driver asks for it once for each input.
type Ready struct {
	InFlight int        // see QP.InFlight
	Silent   bool       // see QP.InFlight
	Raised   bool       // PollEvent or PollFetch has something to return
	Owes     Owed       // what waits beside requests; a congestion notification is OwesAnswers
	Sends    bool       // Poll may have something to do
	Deadline clock.Time // after a Poll: when HandleTimeout wants to be called; 0: not at all
}

// NewTraceHook returns a hook that calls take, see trace.NewHook.
func NewTraceHook(take func(*TraceEvent)) *TraceHook { return trace.NewHook(take) }

// What drivers need of the rooms below.
type (
	// Arrival is a packet as it came.
	Arrival = conn.Arrival
	// Writer takes packets one after the other.
	Writer = conn.Writer
	// PacketKind says which packets a Writer may treat in a way of their
	// own.
	PacketKind = conn.PacketKind
	// Owed is what a queue pair has to send beside requests.
	Owed = conn.Owed
	// Drop is why a packet had no effect.
	Drop = conn.Drop
	// Stats are the counters of a queue pair.
	Stats = conn.Stats
	// Scratch is memory for what lasts no longer than a call.
	Scratch = conn.Scratch
	// TraceEvent is something that a queue pair has decided.
	TraceEvent = trace.Event
	// TraceHook is what gets them.
	TraceHook = trace.Hook
	// Fetch is memory that must be fetched so that a queue pair can go on.
	Fetch = conn.Fetch
	// WindowConfig bounds what a queue pair has in flight.
	WindowConfig = cc.Config
	// Controller is congestion control of a connection.
	Controller = cc.Controller
	// Recv is a receive.
	Recv = queue.Recv
	// RecvSource is where a queue pair gets receives from.
	RecvSource = queue.RecvSource
	// XRCDomain has the shared receive queues that an XRC target takes
	// from.
	XRCDomain = queue.XRCDomain
	// SRQ is the ring of a shared receive queue.
	SRQ = queue.SRQ
	// CompletionSink takes completions.
	CompletionSink = queue.CompletionSink
	// Pool is the memory of reorder buffers.
	Pool = queue.Pool
	// PoolConfig describes one.
	PoolConfig = queue.PoolConfig
	// Pauses remembers for how long a host was silent though nothing was
	// lost.
	Pauses = requester.Pauses
)

// Constants of the rooms below.
const (
	GSIQKey        = datagram.GSIQKey
	PacketOverhead = cc.PacketOverhead
	MaxReorder     = queue.MaxReorder
	MostReorder    = queue.MostReorder
	NumDrops       = conn.NumDrops
	GuardTimeout   = requester.GuardTimeout
)

// What may be owed.
const (
	OwesNothing = conn.OwesNothing
	OwesAck     = conn.OwesAck
	OwesAckNow  = conn.OwesAckNow
	OwesAnswers = conn.OwesAnswers
)

// The kinds of packets.
const (
	OrdinaryPacket = conn.OrdinaryPacket
	KernelFlush    = conn.KernelFlush
	NoticePacket   = conn.NoticePacket
)

// The reasons of Drop.
const (
	DropNone        = conn.DropNone
	DropState       = conn.DropState
	DropService     = conn.DropService
	DropPeer        = conn.DropPeer
	DropPKey        = conn.DropPKey
	DropQPN         = conn.DropQPN
	DropDuplicate   = conn.DropDuplicate
	DropOutOfOrder  = conn.DropOutOfOrder
	DropRNR         = conn.DropRNR
	DropInvalid     = conn.DropInvalid
	DropBusy        = conn.DropBusy
	DropGhost       = conn.DropGhost
	DropStale       = conn.DropStale
	DropGap         = conn.DropGap
	DropBadResponse = conn.DropBadResponse
	DropRdAtomic    = conn.DropRdAtomic
	DropConflict    = conn.DropConflict
	DropNotPresent  = conn.DropNotPresent
	DropQKey        = conn.DropQKey
	DropTooLong     = conn.DropTooLong
)

// NewPool makes a pool for that many packets of any size, of at most 4.5 KiB
// each.
func NewPool(packets int) *Pool { return queue.NewPool(packets) }

// MakePool makes a pool that is bounded in bytes.
func MakePool(c PoolConfig) *Pool { return queue.MakePool(c) }
