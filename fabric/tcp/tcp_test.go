package tcp

import (
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

const us, ms = event.Microsecond, event.Millisecond

// world is hosts on one switch, whose queues drop.
type world struct {
	t *testing.T
	n *network.Network
	a *adapter.Adapters
	s *Stack
}

// conditions are what differs between tests.
type conditions struct {
	hosts int
	rate  int64      // Gb/s
	times int64      // as fast are the cables of all hosts but the last; 0: 1
	delay event.Time // of a cable
	loss  uint32     // of 10^9 packets on a cable
	queue int64      // bytes of a queue of the switch; 0: as much as there is room
	red   network.RED
}

func newWorld(t *testing.T, c conditions) *world {
	t.Helper()
	b := topology.NewBuilder(c.hosts)
	s := b.Switch(1)
	for h := range int32(c.hosts) {
		rate := c.rate
		if int(h) < c.hosts-1 {
			rate *= max(c.times, 1)
		}
		b.Link(h, s, topology.Cable{Rate: rate * topology.Gbps, Delay: int64(c.delay), Loss: c.loss})
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := g.Network(topology.Plan{Profile: topology.Spectrum().Lossy(), Tune: func(_ int32, s *network.Switch) {
		s.Buffer = 1 << 40
		for i := range s.Classes {
			s.Classes[i].EgressMax, s.Classes[i].Alpha, s.Classes[i].RED = c.queue, 8, c.red
		}
		s.Ports = nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	if w.n, err = network.New(cfg); err != nil {
		t.Fatal(err)
	}
	if w.a, err = adapter.New(w.n, c.hosts, adapter.Config{}); err != nil {
		t.Fatal(err)
	}
	w.s = New(w.a, 1)
	return w
}

func (w *world) connect(from, to int, bytes int64, c Config) *Stream {
	w.t.Helper()
	s, err := w.s.Connect(from, to, bytes, c, Calls{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// whole checks that all of a stream has come, and that the books balance.
func (w *world) whole(s *Stream, bytes int64) {
	w.t.Helper()
	if got := s.Received(); got != bytes || !s.src.snd.done() {
		w.t.Errorf("%d of %d bytes have come, acknowledged: %v, %+v", got, bytes, s.src.snd.done(), s.State())
	}
	if err := w.a.Check(); err != nil {
		w.t.Error(err)
	}
	if err := w.n.Check(); err != nil {
		w.t.Error(err)
	}
}

// A stream of any length arrives, over a network that loses 2 % of all packets,
// and reorders none.
func TestStreamsArrive(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{1, 2, 1459, 1460, 1461, 14600, 14601, 1_000_000} {
		for _, control := range []Control{Reno, DCTCP} {
			w := newWorld(t, conditions{hosts: 2, rate: 10, delay: us, loss: 10_000_000})
			s := w.connect(0, 1, bytes, Config{MinRTO: 10 * ms, Control: control})
			w.n.Run(event.Never)
			w.whole(s, bytes)
			if st := s.Stats(); st.Segments-st.Retransmits < uint64(bytes+1459)/1460+1 {
				t.Errorf("%d bytes in %d segments", bytes, st.Segments)
			}
		}
	}
}

// In slow start the window doubles in each round trip, with an acknowledgement
// for each segment or for two: 10 segments in the first, 20 in the second, so
// 10·(2^n - 1) in n (RFC 5681 3.1, RFC 3465).
func TestSlowStartDoubles(t *testing.T) {
	t.Parallel()
	const delay = 1 * ms // a cable: a round trip takes 4 ms, and 1000 segments 0.12
	for every := 1; every <= 2; every++ {
		w := newWorld(t, conditions{hosts: 2, rate: 100, delay: delay})
		s := w.connect(0, 1, 0, Config{AckEvery: every, Window: 64 << 20})
		for n := 1; n <= 7; n++ {
			// The handshake takes one round trip, and what is
			// sent in the last one has come when half of the next
			// is over.
			w.n.Run(4*delay + event.Time(n-1)*4*delay + 3*delay)
			if got, want := s.Received()/1460, int64(10*(1<<n-1)); got != want {
				t.Errorf("an acknowledgement for %d: %d segments have come in %d round trips, want %d", every, got, n, want)
			}
		}
	}
}

// Without loss a stream fills its cable, and its queue is all of the window
// beyond what the path holds.
func TestFillsACable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, conditions{hosts: 3, rate: 10, delay: us})
	a, b := w.connect(0, 2, 0, Config{}), w.connect(1, 2, 0, Config{})
	w.n.Run(20 * ms)
	before := a.Received() + b.Received()
	w.n.Run(120 * ms)
	got := float64(a.Received()+b.Received()-before) * 8 / .1
	if want := 10e9 * 1460 / 1538; got < want*.999 || got > want*1.001 {
		t.Errorf("%.4g bit/s together, want %.4g", got, want)
	}
}

// Throughput is MSS/RTT · C/√p (Mathis, Semke, Mahdavi, Ott, CCR 27(3), 1997),
// where C is 1.31 for losses at random and an acknowledgement for each packet
// (their table 1), within 10 %.
func TestMathis(t *testing.T) {
	t.Parallel()
	const delay = 2 * ms
	for _, loss := range []uint32{200_000, 1_000_000, 4_000_000} { // of 1e9
		w := newWorld(t, conditions{hosts: 2, rate: 10, delay: delay, loss: loss})
		s := w.connect(0, 1, 0, Config{MinRTO: 100 * ms, AckEvery: 1, Window: 64 << 20})
		w.n.Run(2 * event.Second)
		before := s.Received()
		const seconds = 60
		w.n.Run((2 + seconds) * event.Second)
		rtt, p := 4*delay, 1-math.Pow(1-float64(loss)/1e9, 2) // two cables
		got := float64(s.Received()-before) / seconds
		want := 1460 / (float64(rtt) / 1e12) * 1.31 / math.Sqrt(p)
		t.Logf("p %.4f: %.0f B/s, %.2f of the formula, %+v", p, got, got/want, s.Stats())
		if got < want*.9 || got > want*1.1 {
			t.Errorf("p %.4f: %.0f B/s, and the formula has %.0f", p, got, want)
		}
	}
}

// Two streams over one cable come to share it, the one that began late too.
func TestFairness(t *testing.T) {
	t.Parallel()
	for _, control := range []Control{Reno, DCTCP} {
		c := conditions{hosts: 3, rate: 1, times: 10, delay: 25 * us, queue: 30_000}
		if control == DCTCP {
			c.queue, c.red = 0, network.RED{Kmin: 20_000, Kmax: 20_000, Pmax: 1_000_000}
		}
		w := newWorld(t, c)
		a := w.connect(0, 2, 0, Config{Control: control, MinRTO: 5 * ms})
		w.n.Run(100 * ms)
		b := w.connect(1, 2, 0, Config{Control: control, MinRTO: 5 * ms})
		w.n.Run(400 * ms)
		x, y := a.Received(), b.Received()
		w.n.Run(2400 * ms)
		x, y = a.Received()-x, b.Received()-y
		sum := float64(x + y)
		if jain := sum * sum / (2 * (float64(x)*float64(x) + float64(y)*float64(y))); jain < .98 {
			t.Errorf("%v: %d and %d bytes, Jain %.4f", control, x, y, jain)
		}
		if rate := sum * 8 / 2; rate < 1e9*1460/1538*.95 {
			t.Errorf("%v: %.4g bit/s together, %+v, %+v", control, rate, a.Stats(), b.Stats())
		}
	}
}

// DCTCP keeps the queue near its threshold K, with a full cable, where Reno
// with ECN swings below it (RFC 8257 1; Alizadeh et al., SIGCOMM 2010).
func TestDCTCPKeepsTheQueue(t *testing.T) {
	t.Parallel()
	const k = 100_000
	w := newWorld(t, conditions{hosts: 3, rate: 10, delay: 10 * us, red: network.RED{Kmin: k, Kmax: k, Pmax: 1_000_000}})
	a, b := w.connect(0, 2, 0, Config{Control: DCTCP}), w.connect(1, 2, 0, Config{Control: DCTCP})
	w.n.Run(50 * ms)
	w.n.ResetMax()
	port := w.n.Port(3, 2)
	area, before := port.Area(), a.Received()+b.Received()
	w.n.Run(250 * ms)
	mean := float64(port.Area()-area) / float64(200*ms) * (1 << 20) // see network.Port.Area
	if got := float64(a.Received()+b.Received()-before) * 8 / .2; got < 10e9*1460/1538*.99 {
		t.Errorf("%.4g bit/s together", got)
	}
	if st := w.s.Stats(); mean < k/2 || mean > 1.3*k || port.Queues().MaxBytes > 2*k || st.Retransmits > 0 || st.Cuts == 0 {
		t.Errorf("a mean queue of %.0f bytes, %d at most, of a threshold of %d, %+v", mean, port.Queues().MaxBytes, k, st)
	}
}
