package qptest

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// router has one cable for the packets of several senders, with a queue that
// marks before it is full, as that of internal/scripts/marking-net.sh does:
// packets that come faster than 99 % of the rate, beyond a burst of 32.
type router struct {
	rate    int64 // bits per second
	buffer  int   // bytes
	from    int   // if not 0, this queue marks instead, from this many bytes on
	free    clock.Time
	tokens  float64    // packets that may come without a mark
	at      clock.Time // when that was counted
	sent    int
	dropped int
}

const (
	routerBurst = 32
	routerFrame = 4154
)

// pass takes a packet, and returns when it has left.
func (r *router) pass(at clock.Time, size int) (left clock.Time, lost, marked bool) {
	size += 42 // Ethernet, IP and UDP headers
	wait := max(r.free-at, 0)
	if int64(wait)*r.rate/8e9+int64(size) > int64(r.buffer) {
		r.dropped++
		return at, true, false
	}
	if at > r.at {
		r.tokens = min(routerBurst, r.tokens+float64(at-r.at)*float64(r.rate)*0.99/8e9/routerFrame)
		r.at = at
	}
	if marked = r.tokens < 1; !marked {
		r.tokens--
	}
	if r.from > 0 {
		marked = int64(wait)*r.rate/8e9 >= int64(r.from)
	}
	r.sent++
	r.free = max(r.free, at) + clock.Time(int64(size)*8*1e9/r.rate)
	return r.free, false, marked
}

// sharedCable is senders that write without end to a receiver of their own
// each, by one router.
type sharedCable struct {
	sim
	router  *router
	senders []*simQP
	region  map[*simQP]*memreg.Region
	done    []int // bytes of each sender
}

// sharedParams are those of a sharedCable.
type sharedParams struct {
	senders int
	seed    uint64
	delay   clock.Time // one way
	jitter  clock.Time // of hosts: how long packets wait for one at most
	router  router
	begin   clock.Time // of each further sender
	burst   int
}

const sharedSize = 1 << 20

func newSharedCable(t *testing.T, p sharedParams) *sharedCable {
	t.Helper()
	c := &sharedCable{router: &p.router, region: map[*simQP]*memreg.Region{}, done: make([]int, p.senders)}
	c.skipCRC = true
	rng := rand.New(rand.NewPCG(p.seed, 0xfa14))
	c.hooks.unexpected = func(format string, args ...any) { t.Fatalf(format, args...) }
	for i := range p.senders {
		c.connect(t, i, &p, rng)
	}
	c.hooks.touched = func(q *simQP) { c.post(t, q, &p, rng) }
	for i, s := range c.senders {
		c.push(event{at: clock.Time(i) * p.begin, kind: eventAct, q: s})
	}
	return c
}

// connect makes a sender and its receiver.
func (c *sharedCable) connect(t *testing.T, i int, p *sharedParams, rng *rand.Rand) {
	t.Helper()
	var pair [2]*simQP
	var nodes [2]*simNode
	for j := range nodes {
		n := &simNode{node: newNode(netip.AddrFrom4([4]byte{10, 0, byte(j), byte(i + 1)}), rng.Uint32), rng: rng,
			link: linkParams{delay: p.delay, bitsPerSecond: 20e9, queue: 10000}}
		if j == 0 {
			n.link.router = c.router
		}
		r, err := n.register(n.pd, alignedBytes(sharedSize), 0x10000, accessAll)
		if err != nil {
			t.Fatal(err)
		}
		e, err := newEndpoint(n.node, qp.Config{QPN: rocev2.QPN(0x11 + j), MaxSendWR: 16, MaxRecvWR: 1, MinProbe: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		e.SetWindow(deviceWindow(true))
		e.SetReorder(qp.NewPool(2048))
		pair[j] = &simQP{endpoint: e, on: n, qpn: e.QPN(), burst: p.burst}
		n.qps, nodes[j] = []*simQP{pair[j]}, n
		c.region[pair[j]] = r
	}
	nodes[0].peer, nodes[1].peer = nodes[1], nodes[0]
	for j, q := range pair {
		if err := q.connect(ib.Attr{
			State: ib.StateRTS, Access: accessAll, Port: 1, AV: ib.AddressVector{DGID: nodes[1-j].addr}, PathMTU: rocev2.MTU4096,
			Timeout: 14, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 16, MaxDestRdAtomic: 16, DestQPN: pair[1-j].qpn,
		}); err != nil {
			t.Fatal(err)
		}
	}
	c.senders = append(c.senders, pair[0])
}

// post keeps the requests of a sender outstanding, from its beginning on.
func (c *sharedCable) post(t *testing.T, q *simQP, p *sharedParams, rng *rand.Rand) {
	if p.jitter > 0 {
		q.on.lag = clock.Time(rng.Int64N(int64(p.jitter)))
	}
	i := slices.Index(c.senders, q)
	if i < 0 || c.now < clock.Time(i)*p.begin {
		return
	}
	for _, wc := range q.sendCQ.drain() {
		if wc.Status != ib.StatusSuccess {
			t.Fatalf("sender %d: %v", i, wc.Status)
		}
		c.done[i] += sharedSize
	}
	to := c.region[q.on.peer.qps[0]]
	for q.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Signaled: true,
		SGList: []ib.SGE{{Addr: c.region[q].Addr(), Length: sharedSize, LKey: c.region[q].LKey()}},
		Remote: ib.RemoteAddr{Addr: to.Addr(), RKey: to.RKey()}}) == nil {
	}
}

// run goes on until a time, and returns the bytes that each sender has had
// acknowledged since the call.
func (c *sharedCable) run(until clock.Time) []float64 {
	before := append([]int(nil), c.done...)
	for c.now < until && c.step(func(q *simQP) { c.touch(q) }) {
	}
	got := make([]float64, len(c.done))
	for i := range got {
		got[i] = float64(c.done[i] - before[i])
	}
	return got
}

func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / squares / float64(len(x))
}

// TestMarkedPathIsShared: two writers after a router that marks have the same
// share of its cable in every seed, and fill it, whenever the second began and
// however busy the hosts are.
func TestMarkedPathIsShared(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("statistics of seconds of virtual time: run without -short")
	}
	for _, delay := range []clock.Time{20e3, 100e3, 500e3} {
		for _, jitter := range []clock.Time{0, 100e3, 500e3} {
			for _, from := range []int{0, 128 << 10} {
				for seed := range uint64(2) {
					const begin, end = 1e9, 4e9
					c := newSharedCable(t, sharedParams{senders: 2, seed: seed, delay: delay, jitter: jitter, burst: 16, begin: clock.Time(1+seed) * 300e6,
						router: router{rate: 1e9, buffer: 768 << 10, from: from}})
					c.run(begin)
					sent := c.router.sent
					got := c.run(end)
					share := float64(c.router.sent-sent) * routerFrame * 8 / float64(end-begin)
					if j := jain(got); j < 0.97 || share < 0.95 || c.router.dropped > 0 {
						t.Errorf("one way %v, hosts wait up to %v, marks from %d bytes, seed %d: Jain's index %.3f, %.2f Gb/s, %d dropped",
							time.Duration(delay), time.Duration(jitter), from, seed, j, share, c.router.dropped)
					}
				}
			}
		}
	}
}
