package agent

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

func sixteenSources(rng *rand.Rand) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0xc6336400+rng.Uint32N(16))
	return netip.AddrFrom4(b)
}

// Beside 100,000 forged REQs a second, from one source, from 16, from as many
// as there are requests, or with the address of the client, an honest peer that
// is 100 ms away is connected when it has asked at most twice, and the agent
// answers at most 40,000 a second. A peer that asks again only after seconds,
// as Linux does, is answered at once unless the flood comes from everywhere.
func TestGreetBesideAFlood(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(*rand.Rand) netip.Addr{
		"one source": oneSource, "16 sources": sixteenSources, "many sources": anySource, "the client's address": theClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &siege{greeted: newGreeted(t, Config{}), forger: forger{rand.New(rand.NewPCG(7, 7)), from}, mail: map[clock.Time][]func(){}}
			x.client = newTestAgent(2, Config{})
			x.run(2500 * time.Millisecond)
			late := map[string]int{"many sources": x.dialed, "the client's address": x.dialed}[name]
			if x.late > late {
				t.Errorf("%d of %d had to ask twice", x.late, x.dialed)
			}
		})
	}
}

// siege is a flood at a server that greets, and an honest client far away.
type siege struct {
	*greeted
	forger
	client               *Agent
	mail                 map[clock.Time][]func() // by the millisecond
	started              map[ID]clock.Time
	dialed, met, late    int
	slowest              time.Duration
	answered, mostHalfOp int
}

const oneWay = 50 * time.Millisecond

func (x *siege) run(d time.Duration) {
	x.started = map[ID]clock.Time{}
	const step = 10 * time.Microsecond
	for i := 0; i < int(d/step); i++ {
		x.now = x.now.Add(step)
		p, b := x.forger.next()
		x.Receive(x.now, p, b)
		if i%25000 == 15000 && x.now < clock.Time(1e9).Add(d-time.Second) {
			x.dial()
		}
		if i%100 == 0 {
			tick := x.now / 1e6
			for _, f := range x.mail[tick] {
				f()
			}
			delete(x.mail, tick)
		}
		x.Advance(x.now)
		x.client.Advance(x.now)
		x.carry()
		x.mostHalfOp = max(x.mostHalfOp, x.Agent.Stats().HalfOpen)
	}
	x.t.Logf("%d dials, %d connected, the slowest after %v, %d only when asked again; %d answers; %+v", x.dialed, x.met, x.slowest, x.late, x.answered, x.Agent.Stats())
	if x.met != x.dialed || x.dialed < 5 {
		x.t.Errorf("%d of %d are connected", x.met, x.dialed)
	}
	if most := int(d.Seconds()*2*20000) + burst + ownBurst<<sourceBits; x.answered > most {
		x.t.Errorf("%d answers; want at most %d", x.answered, most)
	}
	if x.mostHalfOp > 32768 {
		x.t.Errorf("%d candidates", x.mostHalfOp)
	}
}

func (x *siege) dial() {
	id, err := x.client.Connect(x.now, &ConnectRequest{
		Path: Path{Local: clientAddr, Remote: serverAddr},
		REQ:  mad.REQ{ServiceID: tcpService, LocalQPN: rocev2.QPN(100 + x.dialed), PathMTU: 3, Primary: mad.Path{AckTimeout: 14}},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	x.started[id] = x.now
	x.dialed++
}

// post has f done when what is sent now arrives.
func (x *siege) post(f func()) {
	at := x.now.Add(oneWay) / 1e6
	x.mail[at] = append(x.mail[at], f)
}

func (x *siege) carry() {
	var b [mad.Len]byte
	for path, ok := x.client.Send(b[:]); ok; path, ok = x.client.Send(b[:]) {
		m := b
		_ = path
		x.post(func() { x.Receive(x.now, Path{Local: serverAddr, Remote: clientAddr}, m[:]) })
	}
	for path, ok := x.Send(b[:]); ok; path, ok = x.Send(b[:]) {
		x.answered++
		if path.Remote == clientAddr {
			m := b
			x.post(func() { x.client.Receive(x.now, Path{Local: clientAddr, Remote: serverAddr}, m[:]) })
		}
	}
	for e, ok := x.client.Event(); ok; e, ok = x.client.Event() {
		if e.Kind != EventReply {
			x.t.Errorf("the client: %v, reason %v", e.Kind, e.Reason)
			continue
		}
		if err := x.client.Ready(x.now, e.ID, nil); err != nil {
			x.t.Error(err)
		}
		took := x.now.Sub(x.started[e.ID])
		x.slowest = max(x.slowest, took)
		if took > 2*oneWay+10*time.Millisecond {
			x.late++
		}
		if took > 250*time.Millisecond+2*oneWay+10*time.Millisecond {
			x.t.Errorf("answered only after %v", took)
		}
	}
	for e, ok := x.Event(); ok; e, ok = x.Event() {
		if e.Kind != EventRequest {
			x.t.Errorf("the server: %v", e.Kind)
			continue
		}
		x.Take(e.ID)
		x.met++
	}
}

// A flood of one message that comes again and again gets no more answers than
// other floods: of a request that has an answer, and of a DREQ of no
// connection.
func TestRepeatedMessagesAreAnsweredWithinBounds(t *testing.T) {
	t.Parallel()
	f := forger{rand.New(rand.NewPCG(3, 3)), oneSource}
	path, req := f.next()
	dreq := mad.DREQ{LocalID: 7, RemoteID: 8, TransactionID: 9}
	for name, b := range map[string][]byte{"REQ": req, "DREQ": dreq.AppendTo(nil)} {
		g := newGreeted(t, Config{})
		var out [mad.Len]byte
		answers := 0
		for range 200_000 { // in two seconds
			g.now = g.now.Add(10 * time.Microsecond)
			g.Receive(g.now, path, b)
			for _, ok := g.Send(out[:]); ok; _, ok = g.Send(out[:]) {
				answers++
			}
		}
		if most := 2*20000 + 2*burst; answers > most || answers < 20000 {
			t.Errorf("%s: %d answers; want at most %d", name, answers, most)
		}
	}
}

// A meter lets as many through as its rate says, and together as many as may
// come together.
func TestMeter(t *testing.T) {
	t.Parallel()
	var m meter
	now := clock.Time(1e9)
	count := func(n int) (through int) {
		for range n {
			if m.take(now, 1000, 10) {
				through++
			}
		}
		return through
	}
	if n := count(100); n != 10 {
		t.Errorf("%d of 100 at once", n)
	}
	now = now.Add(3 * time.Millisecond)
	if n := count(100); n != 3 {
		t.Errorf("%d after 3 ms", n)
	}
	now = now.Add(time.Hour)
	if n := count(100); n != 10 {
		t.Errorf("%d after a quiet time", n)
	}
}

// What is expected to come again does not push out what has come just now.
func TestExpectedRequestsPushOutTheOldest(t *testing.T) {
	t.Parallel()
	var s sieve
	now := clock.Time(1e12)
	set := func(i uint64) uint64 { return i<<48 | 8 } // of one set
	for i := range uint64(3) {
		s.returns(now, set(2*i+1))
		now = now.Add(time.Second)
	}
	s.returns(now, set(7))
	now = now.Add(50 * time.Millisecond)
	s.expects(now, set(9))
	if !s.seen(now, set(9)) {
		t.Error("what is expected is not known")
	}
	now = now.Add(100 * time.Millisecond)
	if !s.seen(now, set(7)) || s.seen(now, set(1)) {
		t.Error("the newest was pushed out, and not the oldest")
	}
}
