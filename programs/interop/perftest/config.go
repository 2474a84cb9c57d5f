package perftest

import (
	"cmp"
	"crypto/tls"
	"math"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Defaults of Config, those of the originals.
const (
	DefaultSizeBW          = 65536
	DefaultSizeLat         = 2
	DefaultSizeAtomic      = 8
	DefaultIterations      = 1000
	DefaultIterationsWrite = 5000 // of write_bw
	DefaultTxDepth         = 128
	DefaultRxDepth         = 512 // of a reliable service; else all messages that come, at most 16000
	DefaultCQMod           = 100
	DefaultTimeout         = 14
	DefaultInterval        = 5 * time.Second // between the results of an endless run
)

// Limits of Config.
const (
	MaxSize       = 1 << 30 // bytes of a message
	MaxQPs        = 4096
	MaxIterations = min(1<<40, math.MaxInt)
	MaxDepth      = 1 << 16
	maxBuffers    = min(8<<30, math.MaxInt) // bytes of memory that a run registers
)

// The sizes that AllSizes runs through: 2, 4, … 2^23.
const (
	allSizesFirst = 1
	allSizesLast  = 23
)

// AtomicOp is the operation of the atomic tests.
type AtomicOp uint8

// Atomic operations.
const (
	FetchAdd AtomicOp = iota
	CompareSwap
)

// CM says what the connection manager is used for.
type CM uint8

// Uses of the connection manager.
const (
	NoCM      CM = iota // nothing: the control connection is TCP
	CMControl           // the control connection (-z)
	CMAll               // the control connection, and those of the queue pairs (-R)
)

// Config says what to run. Everything up to Bidirectional must be the peer's
// too.
type Config struct {
	Test          Test
	Service       interop.Service // transport service
	Size          int             // bytes of a message; 0 means the test's default, with UD at most the path MTU
	AllSizes      bool            // run through the sizes 2, 4, … 2^23 instead
	Iterations    int             // operations of each queue pair and size; 0 means the test's default
	Duration      time.Duration   // run for so long instead of a number of iterations; the middle of it is measured, see Margin
	Endless       bool            // run until ctx ends, with a result for every Duration; 0 means DefaultInterval
	QPs           int             // queue pairs; 0 means 1
	Bidirectional bool            // both sides send
	CM            CM              // what the connection manager is for; see RunCM and ServeCM

	TxDepth          int            // operations outstanding on a queue pair; 0 means DefaultTxDepth
	RxDepth          int            // receives kept posted on a queue pair, or on the shared receive queue; 0 means DefaultRxDepth
	SharedReceives   bool           // the queue pairs of this side have one receive queue, as those of XRC have
	CQMod            int            // one completion for that many operations; 0 means a choice by size and depth
	PostList         int            // operations are posted in lists of that many; 0 means as many as there is room for
	RecvPostList     int            // the same for receives
	Margin           time.Duration  // at both ends of Duration that is not measured; 0 means a quarter of it
	MTU              verbs.MTU      // path MTU, the smaller of both sides' is used; 0 means the largest that the link carries
	Inline           int            // SENDs and WRITEs up to that many bytes carry their data in the work request
	OutstandingReads int            // READs and atomics outstanding on a queue pair; 0 means the most that the device can do
	Timeout          uint8          // local ACK timeout, 4.096 µs × 2^n; 0 means DefaultTimeout
	RetryCount       verbs.OptUint8 // how often a request is sent again; 7 by default
	Events           bool           // sleep on a completion channel
	SourcePort       uint16         // of every queue pair, as in verbs.ConnectConfig; 0 means the device's
	TrafficClass     uint8          // of every packet that this side sends, as in verbs.ConnectConfig
	RateLimit        uint64         // of what each queue pair of this side sends, in bits per second on the wire; 0 means none
	Atomic           AtomicOp

	// TLS, if set, has the run secured, over RC or XRC: the two sides
	// authenticate each other on the control connection by TLS 1.3, and
	// all packets of the queue pairs are sealed with keys from there. The
	// peer has it, too, and is of this software. A client says which
	// ServerName it expects. The device needs verbs.Config.Sealing.
	TLS *tls.Config

	// Peers says which address the peer may name for its traffic; the zero
	// value allows only the one of the control connection.
	Peers interop.Peers

	// HandshakeTimeout bounds each step of the control connection at which
	// the peer should answer at once; 0 means 30 s, or IdleTimeout if that
	// is less.
	HandshakeTimeout time.Duration
	// IdleTimeout ends a run in which nothing completes, or, on a side that
	// only answers, nothing arrives for so long; 0 means 60 s.
	IdleTimeout time.Duration
	// LossTimeout ends a run over UC or UD in which nothing came for so
	// long: what has not come by then is lost. 0 means 5 s, or IdleTimeout
	// if that is less.
	LossTimeout time.Duration

	// OnListen, if set, is called by ServeCM once clients can connect.
	OnListen func()
	// OnRefused, if set, is called by Serve for every client that it does
	// not take.
	OnRefused func(from net.Addr, why error)

	// OnStart, if set, is called when all queue pairs are connected.
	OnStart func(Setup)
	// OnResult, if set, is called with each result as it comes.
	OnResult func(Result)
	// OnProgress, if set, is called a few times a second, from another
	// goroutine, with the operations that have completed; total is 0 where
	// the run is bounded by time.
	OnProgress func(size int, done, total uint64)

	sizeGiven bool // Size is the user's
	mtuGiven  bool // MTU is

	// adopt, of a server: run what a client of this software says, if its
	// messages need at most that many bytes of memory. 0 means not.
	adopt int

	plain bool // tests: behave towards this software as towards the originals
}

// Setup is what the two sides have agreed on.
type Setup struct {
	Test          Test
	Role          interop.Role
	MTU           int // bytes
	TxDepth       int
	RxDepth       int
	CQMod         int
	RemoteVersion string
	Local, Remote []Address // one for each queue pair
	Secured       *Secured  // nil: nothing is
}

// Check returns nil if the configuration can be run on dev, else an
// *interop.ConfigError.
func (c Config) Check(dev *verbs.Device) error {
	_, err := c.withDefaults(dev)
	return err
}

func (c Config) withDefaults(dev *verbs.Device) (Config, error) {
	if c.Test.Verb > Atomic || c.Test.Kind > Latency {
		return c, interop.BadConfig("there is no test %v", c.Test)
	}
	c.setDefaults(dev)
	if err := c.checkRanges(dev); err != nil {
		return c, err
	}
	if err := c.checkService(); err != nil {
		return c, err
	}
	if err := c.checkTogether(); err != nil {
		return c, err
	}
	if err := c.checkSecured(dev); err != nil {
		return c, err
	}
	c.fit()
	return c, nil
}

func (c *Config) setDefaults(dev *verbs.Device) {
	size, iterations := DefaultSizeBW, DefaultIterations
	switch {
	case c.Test.Verb == Atomic:
		size = DefaultSizeAtomic
	case c.Test.Kind == Latency:
		size = DefaultSizeLat
	case c.Test.Verb == Write:
		iterations = DefaultIterationsWrite
	}
	c.sizeGiven = c.Size != 0 && !c.AllSizes
	c.Size = cmp.Or(c.Size, size)
	if c.AllSizes {
		c.Size = 1 << allSizesLast
	}
	c.Iterations = cmp.Or(c.Iterations, iterations)
	c.QPs = cmp.Or(c.QPs, 1)
	c.TxDepth = cmp.Or(c.TxDepth, DefaultTxDepth)
	c.OutstandingReads = cmp.Or(c.OutstandingReads, dev.Query().MaxDestRdAtomic)
	c.mtuGiven = c.MTU != 0
	c.MTU = cmp.Or(c.MTU, dev.QueryPort().ActiveMTU)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 60*time.Second)
	c.LossTimeout = cmp.Or(c.LossTimeout, min(5*time.Second, c.IdleTimeout))
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, min(30*time.Second, c.IdleTimeout))
	if c.Endless {
		c.Duration = cmp.Or(c.Duration, DefaultInterval)
	}
	c.RxDepth = cmp.Or(c.RxDepth, min(c.defaultRxDepth(), dev.Query().MaxQPWR))
	c.Margin = cmp.Or(c.Margin, c.Duration/4)
}

// checkRanges checks every value alone, and against what the device can do.
func (c *Config) checkRanges(dev *verbs.Device) error {
	attr, port := dev.Query(), dev.QueryPort()
	for _, r := range []struct {
		what       string
		got        int
		least, max int
	}{
		{"message size", c.Size, 1, MaxSize},
		{"number of iterations", c.Iterations, 1, MaxIterations},
		{"number of queue pairs", c.QPs, 1, MaxQPs},
		{"transmit depth", c.TxDepth, 1, min(MaxDepth, attr.MaxQPWR)},
		{"receive depth", c.RxDepth, 1, min(MaxDepth, attr.MaxQPWR)},
		{"CQ moderation", c.CQMod, 0, MaxDepth},
		{"post list", c.PostList, 0, c.TxDepth},
		{"receive post list", c.RecvPostList, 0, c.RxDepth},
		{"inline size", c.Inline, 0, attr.MaxInline},
		{"number of outstanding reads", c.OutstandingReads, 1, attr.MaxDestRdAtomic},
		{"QP timeout", int(c.Timeout), 1, 31},
	} {
		if r.got < r.least || r.got > r.max {
			return interop.BadConfig("the %s is %d; it must be between %d and %d", r.what, r.got, r.least, r.max)
		}
	}
	switch {
	case !c.MTU.Valid():
		return interop.BadConfig("the path MTU must be 256, 512, 1024, 2048 or 4096 bytes")
	case c.MTU > port.ActiveMTU:
		return interop.BadConfig("a path MTU of %d does not fit the link of %v: its MTU of %d carries at most %d",
			c.MTU.Bytes(), dev.Addr(), port.LinkMTU, port.ActiveMTU.Bytes())
	case c.Service == interop.UD && c.sizeGiven && c.Size > c.MTU.Bytes():
		return interop.BadConfig("the message size is %d; a datagram is one packet, of at most %d bytes", c.Size, c.MTU.Bytes())
	case c.Duration < 0:
		return interop.BadConfig("the duration is %v; it must be positive", c.Duration)
	case c.HandshakeTimeout < 0 || c.IdleTimeout < 0 || c.LossTimeout < 0:
		return interop.BadConfig("a timeout is negative")
	}
	return nil
}

// checkTogether checks what goes together, by the rules of perftest.
func (c *Config) checkTogether() error {
	switch {
	case c.Test.Verb == Atomic && (c.Size != 8 || c.AllSizes):
		return interop.BadConfig("atomic operations are on 8 bytes; the size cannot be chosen")
	case c.Margin < 0 || c.Duration > 0 && 2*c.Margin >= c.Duration:
		return interop.BadConfig("margins of %v at both ends leave nothing of a duration of %v to measure", c.Margin, c.Duration)
	case c.PostList > 1 && c.CQMod > 0 && c.PostList%c.CQMod != 0:
		return interop.BadConfig("the post list is %d and CQ moderation %d: a post list must be a multiple of the moderation", c.PostList, c.CQMod)
	case (c.PostList > 1 || c.RecvPostList > 1) && c.Test.Kind == Latency:
		return interop.BadConfig("post lists are for the bandwidth tests: a latency test has one operation at a time")
	case c.RecvPostList > 1 && c.Test.Verb != Send:
		return interop.BadConfig("receive post lists are for SEND: nothing else uses receives")
	case c.Endless && c.Test.Kind == Latency:
		return interop.BadConfig("a run without end is for the bandwidth tests")
	case c.Endless && (c.AllSizes || c.Test.Verb == Send && c.Bidirectional):
		return interop.BadConfig("a run without end has one size, and SEND in one direction only: perftest knows no other")
	case c.Duration > 0 && c.AllSizes:
		return interop.BadConfig("a duration and all sizes do not go together: perftest knows no such run")
	case c.Test.Kind == Latency && c.Bidirectional:
		return interop.BadConfig("a latency test has no bidirectional form")
	case c.CM > CMAll:
		return interop.BadConfig("there is no use %d of the connection manager", c.CM)
	case c.CM == CMAll && c.Service != interop.RC:
		return interop.BadConfig("the connection manager connects RC here, not %v: let it carry the control connection only (-z)", c.Service)
	case c.RetryCount.Or(7) > 7:
		return interop.BadConfig("the retry count is %d; it must be between 0 and 7", c.RetryCount.Or(7))
	case c.Test.Kind == Latency && c.QPs != 1:
		return interop.BadConfig("a latency test has one queue pair")
	case c.Test == (Test{Write, Latency}) && c.Events:
		return interop.BadConfig("write_lat watches memory: there are no events to sleep on")
	case 3*uint64(c.QPs)*uint64(slotSize(c.Size+verbs.GRHLen, maxCycle)) > maxBuffers:
		return interop.BadConfig("%d queue pairs with messages of %d bytes need more than %d GiB of memory", c.QPs, c.Size, (maxBuffers+1)>>30)
	}
	return nil
}

// largeMessage is the size above which the originals ask for a completion of
// every operation.
const largeMessage = 8192

// fit makes numbers agree that depend on each other.
func (c *Config) fit() {
	if c.Test.Kind == Latency {
		c.TxDepth = 1
	}
	if c.Duration == 0 {
		c.TxDepth = min(c.TxDepth, c.Iterations)
		c.RxDepth = min(c.RxDepth, c.iterationsOfQueue())
	}
	c.PostList, c.RecvPostList = min(max(c.PostList, 1), c.TxDepth), min(max(c.RecvPostList, 1), c.RxDepth)
	if c.CQMod == 0 && c.PostList > 1 {
		c.CQMod = c.PostList
	}
	if c.CQMod == 0 {
		c.CQMod = min(DefaultCQMod, max(c.TxDepth/2, 1))
		if c.Size > largeMessage && !c.AllSizes && c.Service != interop.UD {
			c.CQMod = 1
		}
	}
	c.CQMod = min(c.CQMod, c.TxDepth)
}

// sendDepth returns how many operations of a queue pair may be without a
// completion.
func (c *Config) sendDepth() int {
	if c.Test.Kind == Latency && !c.Test.hasReadDepth() {
		return 2 * signalEvery
	}
	return c.TxDepth
}

// iterationsOfQueue returns how many messages one receive queue takes.
func (c *Config) iterationsOfQueue() int {
	if c.shared() {
		return c.Iterations * c.QPs
	}
	return c.Iterations
}

// sizes returns the message sizes to run through.
func (c *Config) sizes() []int {
	if !c.AllSizes {
		return []int{c.Size}
	}
	var s []int
	for p := allSizesFirst; p <= allSizesLast && 1<<p <= c.Size; p++ {
		s = append(s, 1<<p)
	}
	return s
}

// total returns how many operations a run of one size has in one direction, 0
// where time bounds it.
func (c *Config) total() uint64 {
	if c.Duration > 0 {
		return 0
	}
	return uint64(c.Iterations) * uint64(c.QPs)
}
