// Package cc is congestion control: what a connection may have in flight, and
// when it may go on.
//
// A Controller takes events and has a Limit, a small value that is read again
// after each event, and that the connection evaluates itself. So a packet costs
// no call through the interface. These are the controllers:
//
//   - Window is what a queue pair has by default: a window in bytes that grows
//     on acknowledgements and shrinks on losses and on congestion
//     notifications.
//   - Static is a window that never changes, as large as what the path holds.
//   - DCQCN is the rate control of RDMA adapters, by notifications alone. It
//     stands around one of the two, which takes the losses.
//   - Swift is a window by the length of round trips, and may be smaller than a
//     packet.
//   - Timely is a rate by how round trips get longer and shorter. It stands
//     around another one, too.
//   - HPCC is a window by what switches tell of their queues (Telemetry). Only
//     simulated networks have such switches.
//   - Pacer gives a rate to any other.
//
// One that works with rates says with Limit.NotBefore when the next packets may
// go, and hears with Sent what went. The rate is for all data that a connection
// sends: its requests, and its answers to the READs of the peer.
// Acknowledgements, NAKs and congestion notifications are not held back. A
// window bounds what the own side asks for, requests and the responses to its
// READs.
//
// A controller knows nothing of packets, timers or retransmission: what counts
// as a loss, and whether silence was one, the requester decides. One that wants
// to be called at some time says so with Limit.Deadline.
package cc

import (
	"cmp"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// PacketOverhead is what a packet counts in flight beyond its payload, in
// bytes. Linux charges a socket's receive buffer not for a datagram's bytes but
// for the memory that it lies in: powers of two and some bookkeeping, 832 bytes
// for the smallest and 2304 for 644 of payload. With this overhead it is at
// most 2.4 times what is counted, whatever the size; datagrams that are
// coalesced cost less.
const PacketOverhead = 384

// MaxPSNs keeps everything in flight far from half of the PSN space, even
// together with a READ of its own.
const MaxPSNs = 1 << 22

// Config bounds what a requester has in flight: requests, and responses that
// READs ask for.
type Config struct {
	InitialBytes int // 0 means 128 KiB
	MaxBytes     int // 0 means 512 KiB
	MaxPSNs      int // 0 means 128, what Linux keeps in flight
}

// withDefaults fills in what is 0.
func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 512<<10)
	c.InitialBytes = min(cmp.Or(c.InitialBytes, 128<<10), c.MaxBytes)
	c.MaxPSNs = cmp.Or(c.MaxPSNs, 128)
	return c
}

// Flight is what a requester has in flight, as places in the stream of bytes
// that it sends. A packet counts there with its payload and PacketOverhead, and
// the request for a READ as the packets that it asks for.
type Flight struct {
	Una    uint64 // all before it is acknowledged
	Next   uint64 // what is sent next, or is sent again
	Packet int    // what a packet of the path MTU counts
	// Pipe is what is between the two hosts, with what has just turned out
	// lost. It is 0 while there are READs: one asks for so much at once
	// that more than the window is on the way always.
	Pipe uint64

	RTT    time.Duration // of the last round trips, 0 if it is not known
	MinRTT time.Duration // without queues, as far as is known
	RTTVar time.Duration // how much it varies
	// Sample is a round trip that was just measured, from a packet to its
	// acknowledgement. It is 0 except for the call of Acked that follows.
	Sample time.Duration
}

// idle reports whether the round trip shows no queue on the path: there is one
// at a link that loses packets because it has too many. A short queue does not
// count, as there are some in both hosts.
func (f *Flight) idle() bool { return f.RTT > 0 && f.RTT-f.MinRTT <= f.MinRTT/2 }

// clear is idle where little else makes a round trip longer: MinRTT may have
// the queue in it that others had filled before, of which less may be left.
func (f *Flight) clear() bool {
	return f.RTT > 0 && f.RTT-f.MinRTT <= max(f.MinRTT/4, min(f.MinRTT/2, hostQueues))
}

// hostQueues is for how long packets may lie in both hosts.
const hostQueues = 500 * time.Microsecond

// queue reports whether the round trip shows a queue on the path for sure: it
// is longer by much more than it varies, as it does where hosts are busy.
func (f *Flight) queue() bool { return f.RTT > 0 && !f.idle() && f.RTT-f.MinRTT > 4*f.RTTVar }

// Loss is how a loss shows, and what is done about it.
type Loss uint8

const (
	// Repaired is a lost packet that is sent again alone: the peer keeps
	// what came after it.
	Repaired Loss = iota
	// RepairedRow is such a loss right after the one before: packets were
	// lost in a row, as when a buffer overflows.
	RepairedRow
	// Selective is a lost packet that is sent again alone, one of several
	// that the peer's selective acknowledgements have shown.
	Selective
	// GoBack is a loss after which all is sent again that is in flight.
	GoBack
	// Timeout is the silence of the peer, after which all is sent again. It
	// says more of the path than a packet that is missing.
	Timeout
)

// Mark is how congestion shows.
type Mark uint8

const (
	// Notified is a notification of the peer (CNP, IBTA A17.9.3). The peer
	// bounds how often it sends one, but a hostile one does not.
	Notified Mark = iota
	// MarkedResponse is a marked response to a READ, for which the peer is
	// sent a notification.
	MarkedResponse
	// MarkedAgain is another marked response, so soon after one that the
	// peer is sent no notification for it.
	MarkedAgain
)

// Controller is congestion control for one connection. Its methods are called
// under the lock of the queue pair. They neither block nor allocate, and do not
// keep a Flight, which is the caller's.
type Controller interface {
	// Limit returns what may be in flight now. The requester reads it again
	// after each call of another method, but for Acked.
	Limit() Limit
	// Reset begins a connection.
	Reset()
	// SetConfig changes the bounds; what is in flight stays. InitialBytes
	// is not looked at.
	SetConfig(c Config)

	// Sent is called after requests, or answers to READs, were sent, if
	// Limit.Burst is not 0: how many packets, and the bytes that they count
	// in flight. The request for a READ counts as the packets that it asks
	// for.
	Sent(now clock.Time, bytes, packets int)
	// Acked is called when n more bytes are acknowledged, up to f.Una. It
	// reports whether there is another Limit: it is called often.
	Acked(now clock.Time, f *Flight, n uint64) (changed bool)
	// Lost is called when a loss shows. It reports whether less may be in
	// flight because of it.
	Lost(now clock.Time, f *Flight, how Loss) bool
	// Marked is called for a sign of congestion. It reports whether less
	// may be sent because of it.
	Marked(now clock.Time, f *Flight, how Mark) bool
	// Silence is called before something is sent again because the peer is
	// silent, once until it is heard. What Lost does then may have to be
	// undone.
	Silence()
	// Undo is called when the peer is heard and was only late: nothing had
	// been lost since Silence (RFC 4015).
	Undo()
	// Advance is called when the time Limit.Deadline has come, or a little
	// later. Where controllers stand around each other, that may be the
	// deadline of another one.
	Advance(now clock.Time)
}

// Limit is what a controller lets a requester have in flight: the number of
// bytes and of PSNs between the oldest unacknowledged packet and the next one.
type Limit struct {
	Bytes int
	Max   int // what Bytes may grow to
	PSNs  uint32
	// Spare says that single losses are being repaired. What the peer keeps
	// after the gap is acknowledged only with what is missing, but it does
	// not lie in the peer's receive buffer any more: so half as much again
	// may be in flight. Without that the requester would stand still at
	// every loss.
	Spare bool
	// Smooth says that pauses between bursts are short: no longer than
	// hosts in software take to answer. Else the last packet before a pause
	// asks for an acknowledgement, so that it is not taken for silence.
	Smooth bool
	// AckPSNs, if not 0, is after how many packets an acknowledgement is
	// asked for at the latest, see AckInterval.
	AckPSNs uint16
	// Burst, if not 0, is how many bytes may be sent at NotBefore or later,
	// before Sent is called and there is another Limit. It may be exceeded
	// by one packet, and by one READ.
	Burst     int
	NotBefore clock.Time

	Rate     uint64     // bits per second that Burst stands for; 0: there is none, or it is not known
	Deadline clock.Time // if not 0, when Advance is called, if data waits for NotBefore then: there may be another Limit
}

// spareShare is by what part of itself the limit is wider with Spare.
const spareShare = 2

// bytes is the limit with the share.
func (l *Limit) bytes() uint64 {
	size := uint64(l.Bytes)
	if l.Spare {
		size += size / spareShare
	}
	return size
}

// Admits reports whether cost bytes in psns packets may be sent after what is
// in flight. With nothing in flight anything may: a READ may be larger than the
// limit. It may also begin inside of it and end outside, short of Max: else
// there would be no request after it that shows the loss of its last response.
func (l *Limit) Admits(inFlight uint64, inFlightPSNs uint32, cost uint64, psns uint32) bool {
	if inFlightPSNs == 0 {
		return true
	}
	size := l.bytes()
	if psns > 1 && inFlight < size {
		size = max(size, uint64(l.Max))
	}
	return inFlightPSNs+psns <= l.PSNs && inFlight+cost <= size
}

// Room returns how many more packets of that size may be sent.
func (l *Limit) Room(inFlight uint64, inFlightPSNs uint32, packet int) int {
	size := l.bytes()
	if inFlight >= size || inFlightPSNs >= l.PSNs {
		return 0
	}
	return min(int(size-inFlight)/packet, int(l.PSNs-inFlightPSNs))
}

// Charge returns how much of the peer's receive buffer inFlight bytes take.
func (l *Limit) Charge(inFlight int) int {
	if l.Spare {
		return inFlight - inFlight/(1+spareShare)
	}
	return inFlight
}

// Pauses reports whether a packet of cost bytes is the last one before a pause
// that is not a short one.
func (l *Limit) Pauses(cost uint64) bool {
	return l.Burst > 0 && uint64(l.Burst) <= cost && !l.Smooth
}

// ackTime is how long a rate without long pauses may send before it asks for an
// acknowledgement: well below what would be taken for silence.
const ackTime = 64 * time.Microsecond

// AckInterval is after how many packets inside a long message an
// acknowledgement is asked for: a quarter of the limit, or less where that is
// so large that the peer would not be heard for long.
func (l *Limit) AckInterval(packet int) uint32 {
	n := min(uint32(l.Bytes/packet), l.PSNs) / 4
	if l.AckPSNs > 0 {
		n = min(n, uint32(l.AckPSNs))
	}
	if l.Smooth && l.Rate > 0 {
		n = min(n, uint32(l.Rate/uint64(8*time.Second/ackTime)/uint64(packet)))
	}
	return max(1, n)
}
