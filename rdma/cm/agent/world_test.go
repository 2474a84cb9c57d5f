package agent

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// A world is a few hosts, each with an agent and a program that connects,
// accepts, rejects, releases and disconnects at random, and a network that
// loses, doubles and reorders. In some worlds hosts die and start again.
type world struct {
	rng   *rand.Rand
	now   clock.Time
	hosts []*host
	todo  heap.Heap[clock.Time, func()] // deliveries, and what programs do
	trace func(string)
	err   error

	loss, double float64
	delay        time.Duration // at most, of a MAD
	hurry        bool          // programs answer at once
	qpns         uint32        // queue pair numbers that a host chooses from
	tally        tally
	attempts     []*attempt
}

// attempt is a connection, or resolution, that a program has asked for.
type attempt struct {
	number   int
	from     *host
	life     int // of the host that asked
	started  clock.Time
	answered bool // an event has come, or the program gave up
	ready    bool // it has called Ready
	met      bool // both sides have seen it established
	given    bool // the passive program did not accept
}

type tally struct {
	Attempts, Established, Rejected, Unreachable, Disconnected, Timeouts, Resolved int
	Lost, Doubled, Deaths, Stale                                                   int
}

const (
	tcpService = mad.ServiceID(0x01060007)
	udpService = mad.ServiceID(0x01110007)
	// longest is how long an attempt may take: 16 transmissions of a REQ,
	// each with its timeout (4.8 s), an MRA (4.3 s), and the way of both.
	longest = 16 * (4900 + 4300 + 2*2000) * time.Millisecond
)

// host is an agent and its program.
type host struct {
	w     *world
	agent *Agent // nil while the host is dead
	addr  netip.Addr
	guid  mad.GUID
	life  int
	known map[ID]*known // what the program knows
}

// known is what a program knows of an ID.
type known struct {
	attempt *attempt
	active  bool
	data    string // what the attempt is called in private data
	phase   State
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0xcafe))
	w := &world{rng: rng, now: clock.Time(rng.Int64N(1e12)), qpns: 1 << 22, delay: time.Duration(rng.IntN(50)+1) * time.Millisecond}
	if rng.IntN(4) > 0 {
		w.loss = []float64{0.01, 0.05, 0.2, 0.4}[rng.IntN(4)]
		w.double = []float64{0, 0.05, 0.3}[rng.IntN(3)]
	}
	if rng.IntN(4) == 0 {
		w.delay = 2 * time.Second // beyond the first timeouts
	}
	w.hurry = rng.IntN(2) == 0
	if rng.IntN(4) == 0 {
		w.qpns = 64 // so that stale connections happen
	}
	for i := range rng.IntN(4) + 2 {
		h := &host{w: w, addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), guid: mad.GUID(i + 1)}
		w.hosts = append(w.hosts, h)
		h.start()
	}
	for range rng.IntN(60) + 5 {
		w.at(w.upTo(20*time.Second), func() { w.hosts[rng.IntN(len(w.hosts))].attempt() })
	}
	if rng.IntN(3) == 0 {
		for range rng.IntN(4) + 1 {
			w.at(w.upTo(30*time.Second), func() { w.hosts[rng.IntN(len(w.hosts))].die() })
		}
	}
	return w
}

func (w *world) describe() string {
	return fmt.Sprintf("%d hosts, loss %v, doubles %v, delay %v, hurry %v, %d QPNs", len(w.hosts), w.loss, w.double, w.delay, w.hurry, w.qpns)
}

func (w *world) at(d time.Duration, f func()) { w.todo.Push(w.now.Add(d), f) }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %d: %s", w.now, fmt.Sprintf(format, args...))
	}
}

func (w *world) log(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%d %s", w.now, fmt.Sprintf(format, args...)))
	}
}

func (h *host) start() {
	h.life++
	h.known = map[ID]*known{}
	h.agent = New(Config{GUID: h.guid, Random: h.w.rng.Uint32})
	for _, s := range []mad.ServiceID{tcpService, udpService} {
		if err := h.agent.Listen(s, 0); err != nil {
			panic(err)
		}
	}
}

// die takes the host down, and up again later: nothing is left of what it knew.
func (h *host) die() {
	if h.agent == nil {
		return
	}
	h.w.log("%v dies", h.addr)
	h.w.tally.Deaths++
	h.agent = nil
	down := h.w.upTo(5 * time.Second)
	if h.w.rng.IntN(4) == 0 {
		down = 3 * time.Minute // until the others give up
	}
	h.w.at(down, func() { h.start() })
}

// run plays the world to its end and returns what was wrong.
func (w *world) run() error {
	end := w.now.Add(time.Hour)
	for w.err == nil {
		next := clock.Time(math.MaxInt64)
		if t, ok := w.todo.Min(); ok {
			next = t
		}
		for _, h := range w.hosts {
			if h.agent != nil {
				next = min(next, h.agent.Deadline())
			}
		}
		if next == math.MaxInt64 {
			break
		}
		if next > end {
			w.fail("the world does not come to rest")
			break
		}
		w.now = max(w.now, next)
		if t, ok := w.todo.Min(); ok && t <= w.now {
			_, f := w.todo.Pop()
			f()
		}
		for _, h := range w.hosts {
			h.pull()
		}
	}
	if w.err == nil {
		w.checkEnd()
	}
	return w.err
}

// pull does what is due in an agent, and takes all that it has to say.
func (h *host) pull() {
	if h.agent == nil {
		return
	}
	h.agent.Advance(h.w.now)
	for {
		e, ok := h.agent.Event()
		if !ok {
			break
		}
		h.event(&e)
	}
	for {
		var b [mad.Len]byte
		path, ok := h.agent.Send(b[:])
		if !ok {
			break
		}
		h.w.carry(path, b)
	}
	if err := consistent(h.agent); err != nil {
		h.w.fail("%v: %v", h.addr, err)
	}
}

// carry takes a MAD over the network.
func (w *world) carry(path Path, b [mad.Len]byte) {
	_, m, err := mad.Parse(b[:])
	if err != nil {
		w.fail("%v sends nonsense: %v", path.Local, err)
		return
	}
	w.log("%v > %v %v", path.Local, path.Remote, m.Attribute())
	copies := 1
	if w.chance(w.loss) {
		copies = 0
		w.tally.Lost++
	} else if w.chance(w.double) {
		copies = 2
		w.tally.Doubled++
	}
	for range copies {
		w.at(w.upTo(w.delay), func() {
			for _, h := range w.hosts {
				if h.addr == path.Remote && h.agent != nil {
					h.agent.Receive(w.now, Path{Local: path.Remote, Remote: path.Local}, b[:])
				}
			}
		})
	}
}

// attempt asks a host, maybe itself, for a connection or a resolution.
func (h *host) attempt() {
	if h.agent == nil {
		return
	}
	w := h.w
	to := w.hosts[w.rng.IntN(len(w.hosts))]
	a := &attempt{number: len(w.attempts), from: h, life: h.life, started: w.now}
	w.attempts = append(w.attempts, a)
	w.tally.Attempts++
	path := Path{Local: h.addr, Remote: to.addr}
	data := fmt.Sprintf("call %d", a.number)
	var id ID
	var err error
	phase := StateREQSent
	if w.rng.IntN(5) == 0 {
		phase = StateSIDRSent
		id, err = h.agent.Resolve(w.now, &SIDRRequest{Path: path, ServiceID: udpService, Private: []byte("REQ " + data)})
	} else {
		id, err = h.agent.Connect(w.now, &ConnectRequest{Path: path, REQ: mad.REQ{
			ServiceID: tcpService, LocalQPN: h.qpn(), PathMTU: 3, Primary: mad.Path{AckTimeout: uint8(w.rng.IntN(20) + 1)},
			Private: []byte("REQ " + data),
		}})
	}
	if err != nil {
		w.fail("connect: %v", err)
		return
	}
	k := &known{attempt: a, active: true, data: data, phase: phase}
	h.known[id] = k
	w.log("%v calls %v: %s", h.addr, to.addr, data)
	if w.rng.IntN(10) == 0 {
		h.later(id, k, w.upTo(3*time.Second), func() { h.release(id) })
	}
}

func (h *host) qpn() rocev2.QPN { return rocev2.QPN(h.w.rng.Uint32N(h.w.qpns)) + 2 }
