package engine

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Config describes an engine. Addr, Memory and Random are required.
type Config struct {
	Addr   netip.Addr    // the local address
	Port   uint16        // the UDP port that packets leave from, see native.go; 0 means 4791
	Memory *memreg.Table // the regions
	Random func() uint32 // for queue pair numbers: a peer must not be able to guess them
	Sink   Sink          // takes events; nil drops them

	// Window bounds what a queue pair keeps in flight, and what all to one
	// peer do together. Zero fields take the defaults of package cc, with
	// two exceptions. MaxBytes is then 2.25 MiB, or half of RecvBuffer if
	// that is less. MaxPSNs is 4096 towards a native peer, or what MaxBytes
	// holds of the smallest packets, up to 32768. Towards other peers
	// MaxBytes is at most 560 KiB, and MaxPSNs is 128.
	Window qp.WindowConfig

	// Congestion makes the congestion control of a queue pair that has none
	// of its own, for the window that it is given. nil means a cc.Window.
	Congestion func(qp.WindowConfig) qp.Controller

	// NotifyInterval is the least time between two congestion notifications
	// of a queue pair, see qp.Config.
	NotifyInterval time.Duration
	// NotifyScope says which queue pairs share that time. Where there are
	// several shards each shard keeps to as many times as much.
	NotifyScope qp.NotifyScope
	// NotifyHold has a mark that comes within that time reported after it,
	// see qp.Config.
	NotifyHold bool

	// NotifyClass is the traffic class of congestion notifications, so that
	// they need not queue with what they are to slow down. 0 means 192,
	// which is DSCP 48, as adapters have it. They are not ECN-capable:
	// nothing would answer a mark. A negative number means that of the
	// connection.
	NotifyClass int

	// RecvBuffer is how many bytes the receive buffer of the link holds, 0
	// if that is not known. The peer's buffer is taken to be of the same
	// size.
	RecvBuffer int

	// ReadChunk is the largest RDMA READ request in bytes; longer READs go
	// out as several. 0 means 256 KiB, or half of Window.MaxBytes if that
	// is less, and four times as much to native peers nearby while two such
	// requests fit into the window; a negative number means one request for
	// each message.
	ReadChunk int

	// Turn is how many bytes a queue pair sends before another one has its
	// turn, at least one packet. 0 means a segmentation run, with which
	// large messages cost the least on sockets.
	Turn int

	// MinProbe is how long a native peer is silent at least before
	// the oldest packet in flight is sent again without waiting for the
	// local ACK timeout, see qp.Config. 0 means 1 ms, a negative number
	// never.
	MinProbe time.Duration

	// Trace, if it is not nil, gets what the queue pairs decide. It must
	// not call the engine.
	Trace *qp.TraceHook

	// Loopback has packets to Addr itself pass inside the engine.
	Loopback bool

	// Phantom says that payloads have a length only, because all memory is
	// memreg.Phantom: what is kept after gaps has no bytes.
	Phantom bool

	// LeadAcks has a small request leave before an acknowledgement that
	// goes with it: where the driver sends packets of one peer as one
	// segmented datagram, only the last of them may be shorter.
	LeadAcks bool

	// Class returns the class, below NumClasses, of packets with a traffic
	// class, see Engine.Fill. Nil has all in class 0. Datagrams go with the
	// class of traffic class 0, wherever their handles say.
	Class func(trafficClass uint8) uint8

	// Shard of Shards, a power of two: the queue pairs of the engine have
	// numbers that are congruent to Shard modulo Shards. 0 shards mean 1.
	Shard, Shards int

	// OwnShards is how many of the Shards are of this device, from
	// FirstShard on; the others are of other processes that have the same
	// address. 0 means all. Loopback is for the queue pairs of the device
	// alone. Queue pair 1 of such a device is in FirstShard.
	FirstShard, OwnShards int
}

// Sink takes what an engine has to tell its driver. Its methods are called
// inside the methods of the engine and must not call back into it.
type Sink interface {
	// Event tells of an asynchronous event of q.
	Event(q *QP, e ib.Event)
	// Fetch asks for memory that q waits for. When it was fetched, or could
	// not be, the driver calls Engine.Fetched with f.
	Fetch(q *QP, f qp.Fetch)
}

// noSink drops events. Memory that is not present stays so.
type noSink struct{}

func (noSink) Event(*QP, ib.Event) {}
func (noSink) Fetch(*QP, qp.Fetch) {}

const (
	// defaultMaxWindow is a window beyond which more in flight only grows
	// queues: 2 MiB of data with what the packets count beyond it.
	defaultMaxWindow = 9 << 18
	minMaxWindow     = 16 << 10

	// A peer that is not known to be native gets what Linux keeps in flight
	// itself. A native peer has a large socket buffer, of which it takes
	// packets in batches.
	foreignPSNs  = 128
	foreignBytes = foreignPSNs * (4096 + qp.PacketOverhead)
	nativePSNs   = qp.MaxReorder

	// defaultReadChunk keeps the answer to one READ request well below what
	// a socket buffer holds; with a modest one it is half of the window.
	defaultReadChunk = 256 << 10

	// defaultNotifyClass is DSCP 48 (class selector 6), which adapters have
	// for notifications (CNP_DSCP of mlxconfig), without ECN.
	defaultNotifyClass = 48 << 2

	// defaultMinProbe is above what a peer in software needs to answer if
	// it does not pause. How long its pauses are, queue pairs learn.
	defaultMinProbe = time.Millisecond
)

// window is the bound of what a queue pair, and all to one peer together, may
// have in flight. The peer's socket buffer is not known, so ours stands for it.
func (c *Config) window() qp.WindowConfig {
	w := c.Window
	if w.MaxBytes == 0 {
		w.MaxBytes = defaultMaxWindow
		if b := c.RecvBuffer; b > 0 {
			w.MaxBytes = min(w.MaxBytes, max(b/2, minMaxWindow))
		}
	}
	return w
}

// foreignWindow is the window towards a peer that is not known to be native.
func (c *Config) foreignWindow() qp.WindowConfig {
	w := c.window()
	w.MaxBytes = min(w.MaxBytes, foreignBytes)
	if w.MaxPSNs == 0 {
		w.MaxPSNs = foreignPSNs
	}
	return w
}

// nativeWindow is the window towards a native peer.
func (c *Config) nativeWindow() qp.WindowConfig {
	w := c.window()
	if w.MaxPSNs == 0 {
		w.MaxPSNs = min(max(nativePSNs, w.MaxBytes/(256+qp.PacketOverhead)), qp.MostReorder)
	}
	return w
}

// notifyClass is the traffic class of congestion notifications of a connection
// that has the other one.
func (c *Config) notifyClass(data uint8) uint8 {
	switch {
	case c.NotifyClass < 0:
		return data
	case c.NotifyClass == 0:
		return defaultNotifyClass
	default:
		return uint8(c.NotifyClass)
	}
}

func (c *Config) minProbe() time.Duration {
	switch p := c.MinProbe; {
	case p < 0:
		return 0
	case p == 0:
		return defaultMinProbe
	default:
		return p
	}
}

func (c *Config) readChunk() int {
	switch n := c.ReadChunk; {
	case n < 0:
		return 0
	case n == 0:
		return min(defaultReadChunk, c.window().MaxBytes/2)
	default:
		return n
	}
}

// fill fills in what an engine decides of a queue pair.
func (c *Config) fill(q *qp.Config) {
	q.Window = c.foreignWindow()
	if q.Congestion == nil && c.Congestion != nil {
		q.Congestion = c.Congestion(q.Window)
	}
	if q.MinProbe == 0 {
		q.MinProbe = c.minProbe()
	}
	q.NotifyInterval, q.NotifyHold = c.NotifyInterval, c.NotifyHold
	q.ReadChunk, q.LongReads = c.readChunk(), c.ReadChunk == 0
}

// GSIQPN is the number of the GSI queue pair (IBTA 3.9.4), wherever packets for
// it arrive.
const GSIQPN rocev2.QPN = 1

// minQPN is the least queue pair number: 0 and 1 are the management queue
// pairs, and a few more stay reserved.
const minQPN = 0x10

// randomQPN returns a number that a queue pair of the engine may have.
func (c *Config) randomQPN() rocev2.QPN {
	for {
		n := rocev2.QPN(c.Random()) & rocev2.QPNMask
		n = n&^rocev2.QPN(c.Shards-1) | rocev2.QPN(c.Shard)
		if n >= minQPN && n != rocev2.MulticastQPN {
			return n
		}
	}
}

// owns reports whether a queue pair with the number would be of this engine.
func (c *Config) owns(n rocev2.QPN) bool {
	if n == GSIQPN && c.OwnShards < c.Shards {
		return c.Shard == c.FirstShard
	}
	return int(n)&(c.Shards-1) == c.Shard
}

// inDevice reports whether a queue pair with the number would be of this
// device, and not of another one with the same address.
func (c *Config) inDevice(n rocev2.QPN) bool {
	return uint(int(n)&(c.Shards-1)-c.FirstShard) < uint(c.OwnShards)
}
