package agent

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// greeted is a server that answers requests itself.
type greeted struct {
	*Agent
	t     *testing.T
	now   clock.Time
	held  map[rocev2.QPN]bool
	heard map[rocev2.QPN]bool // data has come for it
}

func newGreeted(t *testing.T, cfg Config) *greeted {
	g := &greeted{t: t, now: 1e9, held: map[rocev2.QPN]bool{}, heard: map[rocev2.QPN]bool{}}
	next := rocev2.QPN(1000)
	cfg.Hold = func() rocev2.QPN { next++; g.held[next] = true; return next }
	cfg.Release = func(n rocev2.QPN) {
		if !g.held[n] {
			t.Errorf("number %v is released, and is not held", n)
		}
		delete(g.held, n)
	}
	cfg.Heard = func(n rocev2.QPN, _ netip.Addr, _ rocev2.PSN) bool { return g.heard[n] }
	g.Agent = newTestAgent(1, cfg)
	if err := g.Listen(tcpService, 0); err != nil {
		t.Fatal(err)
	}
	g.Greet(tcpService, func(_ *Path, req *mad.REQ) (*mad.REP, *mad.REJ) {
		if req.RetryCount == 1 {
			return nil, &mad.REJ{Reason: mad.ReasonConsumer, Private: []byte("no")}
		}
		return &mad.REP{RNRRetryCount: 7, Private: []byte("welcome")}, nil
	})
	return g
}

// reps takes what the agent sends, of which all are REPs.
func (g *greeted) reps() (all []mad.REP) {
	g.t.Helper()
	var b [mad.Len]byte
	for {
		if _, ok := g.Send(b[:]); !ok {
			return all
		}
		var m mad.REP
		if err := m.Parse(b[:]); err != nil {
			g.t.Fatal(err)
		}
		m.Private = nil
		all = append(all, m)
	}
}

func (g *greeted) sleep(d time.Duration) {
	for end := g.now.Add(d); ; {
		at := g.Deadline()
		if at > end {
			g.now = end
			return
		}
		g.now = max(at, g.now)
		g.Advance(g.now)
	}
}

func rtuFor(rep *mad.REP) []byte {
	m := mad.RTU{TransactionID: rep.TransactionID, LocalID: rep.RemoteID, RemoteID: rep.LocalID}
	return m.AppendTo(nil)
}

// A request is answered before the program hears of it, and again in the same
// words; the program gets the connection when the peer has answered.
func TestCandidate(t *testing.T) {
	t.Parallel()
	g := newGreeted(t, Config{})
	f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	path, req := f.next()
	for range 3 {
		g.Receive(g.now, path, req)
	}
	reps := g.reps()
	if len(reps) != 3 || string(reps[0].AppendTo(nil)) != string(reps[1].AppendTo(nil)) || string(reps[0].AppendTo(nil)) != string(reps[2].AppendTo(nil)) {
		t.Fatalf("%+v", reps)
	}
	if e, ok := g.Event(); ok || len(g.table.conns) != 0 || g.Stats().HalfOpen != 1 {
		t.Errorf("the program hears of it: %+v", e)
	}
	rep := reps[0]
	other := path
	other.Remote = serverAddr
	g.Receive(g.now, other, rtuFor(&rep))
	wrong := rep
	wrong.RemoteID++
	g.Receive(g.now, path, rtuFor(&wrong))
	if _, ok := g.Event(); ok {
		t.Error("a forged RTU counts")
	}
	g.Receive(g.now, path, rtuFor(&rep))
	e, ok := g.Event()
	if !ok || e.Kind != EventRequest || e.ID != ID(rep.LocalID) || e.QPN != rep.LocalQPN || e.PSN != rep.StartingPSN || e.Request.LocalID != rep.RemoteID {
		t.Fatalf("%+v", e)
	}
	if g.State(e.ID) != StateEstablished || !g.held[rep.LocalQPN] || g.Stats().HalfOpen != 0 {
		t.Errorf("%+v", g.Stats())
	}
	g.dropAll()
	g.Receive(g.now, path, req) // late
	g.Receive(g.now, path, rtuFor(&rep))
	if _, ok := g.Event(); ok {
		t.Error("copies are something new")
	}
}

func (g *greeted) dropAll() {
	var b [mad.Len]byte
	for _, ok := g.Send(b[:]); ok; _, ok = g.Send(b[:]) {
	}
}

// A REP goes again while the peer is silent, and then the peer is forgotten;
// data that comes over the queue pair stands for an RTU that was lost.
func TestCandidateIsSilent(t *testing.T) {
	t.Parallel()
	g := newGreeted(t, Config{})
	f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	path, req := f.next()
	g.Receive(g.now, path, req)
	g.sleep(candidateLife - 1)
	if n := len(g.reps()); n != 4 {
		t.Errorf("%d REPs", n)
	}
	g.sleep(1)
	if len(g.held) != 0 || g.Stats().HalfOpen != 0 || g.greeting.cache.byID != nil {
		t.Errorf("it is not forgotten: %+v", g.Stats())
	}
	path, req = f.next()
	g.Receive(g.now, path, req)
	g.heard[g.reps()[0].LocalQPN] = true
	g.sleep(turns[0].after)
	if e, ok := g.Event(); !ok || e.Kind != EventRequest {
		t.Errorf("data is no sign of the peer: %+v", e)
	}
}

// Whichever REP it was whose RTU is lost, data of the peer is noticed before
// that gives up, which is half a second later.
func TestDataOfCandidateIsNoticed(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after < 3500*time.Millisecond; after += 10 * time.Millisecond {
		g := newGreeted(t, Config{})
		f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
		path, req := f.next()
		g.Receive(g.now, path, req)
		qpn := g.reps()[0].LocalQPN
		g.sleep(after)
		g.heard[qpn] = true
		g.sleep(420 * time.Millisecond)
		if e, ok := g.Event(); after < 3*time.Second && (!ok || e.Kind != EventRequest) {
			t.Errorf("data that comes %v after the request is not noticed in time", after)
		}
	}
}

// A request that is refused costs nothing, and neither does one that its peer
// takes back.
func TestCandidateRefused(t *testing.T) {
	t.Parallel()
	g := newGreeted(t, Config{})
	f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	path, b := f.next()
	var req mad.REQ
	if err := req.Parse(b); err != nil {
		t.Fatal(err)
	}
	req.RetryCount = 1
	g.Receive(g.now, path, req.AppendTo(nil))
	var out [mad.Len]byte
	var rej mad.REJ
	if _, ok := g.Send(out[:]); !ok || rej.Parse(out[:]) != nil || rej.RemoteID != req.LocalID || rej.Reason != mad.ReasonConsumer {
		t.Errorf("%+v", rej)
	}
	if len(g.held) != 0 || g.Stats().HalfOpen != 0 {
		t.Error("something is kept")
	}
	for name, back := range map[string]func(rep *mad.REP) mad.Message{
		"REJ": func(rep *mad.REP) mad.Message {
			return &mad.REJ{LocalID: rep.RemoteID, RemoteID: rep.LocalID, Message: mad.StageREP, Reason: mad.ReasonConsumer}
		},
		"DREQ": func(rep *mad.REP) mad.Message {
			return &mad.DREQ{LocalID: rep.RemoteID, RemoteID: rep.LocalID, RemoteQPN: rep.LocalQPN}
		},
		"timeout": func(rep *mad.REP) mad.Message { return nil },
	} {
		path, b := f.next()
		g.Receive(g.now, path, b)
		rep := g.reps()[0]
		m := back(&rep)
		if m == nil {
			if err := req.Parse(b); err != nil {
				t.Fatal(err)
			}
			guid := outbox{guid: req.LocalGUID}
			m = &mad.REJ{LocalID: rep.RemoteID, Message: mad.StageREQ, Reason: mad.ReasonTimeout, ARI: guid.guidBytes()}
		}
		g.Receive(g.now, path, m.AppendTo(nil))
		if len(g.held) != 0 {
			t.Errorf("%s: the candidate stays", name)
		}
		g.dropAll()
	}
}

// When there are too many candidates the oldest of the source goes, where it
// has a quarter of all, and else the oldest of all.
func TestCandidatesMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 4096
	g := newGreeted(t, Config{Candidates: most, Answers: 1e9})
	honest := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	path, req := honest.next()
	g.Receive(g.now, path, req)
	rep := g.reps()[0]
	one := forger{rand.New(rand.NewPCG(2, 2)), oneSource}
	for range 10 * most { // push out none but their own
		p, b := one.next()
		g.now++
		g.Receive(g.now, p, b)
		g.reps()
	}
	if s := g.Stats(); s.HalfOpen != most/4+1 || len(g.held) != s.HalfOpen {
		t.Errorf("%d candidates, %d numbers", s.HalfOpen, len(g.held))
	}
	g.Receive(g.now, path, rtuFor(&rep))
	if e, ok := g.Event(); !ok || e.ID != ID(rep.LocalID) {
		t.Error("one source has pushed out another")
	}
	many := forger{rand.New(rand.NewPCG(3, 3)), anySource}
	for range 10 * most {
		p, b := many.next()
		g.now++
		g.Receive(g.now, p, b)
		g.reps()
	}
	path, req = honest.next()
	g.Receive(g.now, path, req)
	rep = g.reps()[0]
	for range most / 2 { // what comes in half of the time that it has
		p, b := many.next()
		g.now++
		g.Receive(g.now, p, b)
		g.reps()
	}
	if s := g.Stats(); s.HalfOpen != most {
		t.Errorf("%d candidates", s.HalfOpen)
	}
	g.Receive(g.now, path, rtuFor(&rep))
	if e, ok := g.Event(); !ok || e.ID != ID(rep.LocalID) {
		t.Error("the youngest have gone")
	}
	g.sleep(candidateLife)
	if s := g.Stats(); s.HalfOpen != 0 || len(g.held) != 2 || g.greeting.cache.sources != nil || g.greeting.cache.byID != nil || g.greeting.cache.byHash != nil {
		t.Errorf("after the flood: %+v, %d numbers", s, len(g.held))
	}
}

// Connections that the program does not take are bounded. The peer of one more
// is heard again when it has taken some.
func TestReadyConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	g := newGreeted(t, Config{Backlog: 8})
	f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	var path Path
	var last mad.REP
	for range 9 {
		var b []byte
		path, b = f.next()
		g.Receive(g.now, path, b)
		last = g.reps()[0]
		g.Receive(g.now, path, rtuFor(&last))
	}
	var ids []ID
	for e, ok := g.Event(); ok; e, ok = g.Event() {
		ids = append(ids, e.ID)
	}
	if len(ids) != 8 {
		t.Fatalf("the program has %d connections", len(ids))
	}
	g.Take(ids[0])
	g.sleep(turns[1].after)
	if len(g.reps()) != 1 {
		t.Error("the peer is not asked again")
	}
	g.Receive(g.now, path, rtuFor(&last))
	if e, ok := g.Event(); !ok || e.ID != ID(last.LocalID) {
		t.Error("there is no room")
	}
	g.Release(g.now, ids[1])
	if g.listeners[tcpService].ready != 7 {
		t.Errorf("%d are ready", g.listeners[tcpService].ready)
	}
}

// TestMemoryOfCandidates: a peer that has not shown that it is there costs less
// than 600 bytes, with the number that is held for it.
func TestMemoryOfCandidates(t *testing.T) { // not parallel: it measures the heap
	const n, most = 8000, 600
	g := newGreeted(t, Config{Answers: 1e9})
	f := forger{rand.New(rand.NewPCG(3, 3)), anySource}
	heapSize := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heapSize()
	for range n {
		p, b := f.next()
		g.now++
		g.Receive(g.now, p, b)
		g.reps()
	}
	each := float64(heapSize()-before) / n
	t.Logf("%.0f bytes each", each)
	if s := g.Stats(); s.HalfOpen != n || len(g.held) != n || each > most {
		t.Errorf("%.0f bytes for each of %d", each, s.HalfOpen)
	}
}

// A candidate is of the listener that has answered it. When that has ended, or
// does not greet any more, its peer is rejected, though another one may listen
// on the port by then, with other terms.
func TestCandidateOfAListenerThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*greeted){
		"unlisten": func(g *greeted) { g.Unlisten(tcpService) },
		"listen again": func(g *greeted) {
			g.Unlisten(tcpService)
			if err := g.Listen(tcpService, 0); err != nil {
				t.Fatal(err)
			}
		},
		"greet again": func(g *greeted) {
			greeter := g.listeners[tcpService].greeter
			g.Unlisten(tcpService)
			if err := g.Listen(tcpService, 0); err != nil {
				t.Fatal(err)
			}
			g.Greet(tcpService, greeter)
		},
		"greet no more": func(g *greeted) { g.Greet(tcpService, nil) },
	} {
		for _, heard := range []bool{false, true} {
			g := newGreeted(t, Config{})
			f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
			path, req := f.next()
			g.Receive(g.now, path, req)
			rep := g.reps()[0]
			end(g)
			if g.heard[rep.LocalQPN] = heard; heard {
				g.sleep(turns[0].after)
			} else {
				g.Receive(g.now, path, rtuFor(&rep))
				var b [mad.Len]byte
				var rej mad.REJ
				if _, ok := g.Send(b[:]); !ok || rej.Parse(b[:]) != nil || rej.RemoteID != rep.RemoteID {
					t.Errorf("%s: the RTU is answered by %+v", name, rej)
				}
			}
			if e, ok := g.Event(); ok {
				t.Errorf("%s, data %v: the program hears of it: %+v", name, heard, e)
			}
			if len(g.held) != 0 || g.Stats().HalfOpen != 0 {
				t.Errorf("%s, data %v: it is kept: %+v", name, heard, g.Stats())
			}
		}
	}
}

// The request of a candidate comes again when another listener has the port: it
// is a new one.
func TestCandidateAsksAnotherListener(t *testing.T) {
	t.Parallel()
	g := newGreeted(t, Config{})
	f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	path, req := f.next()
	g.Receive(g.now, path, req)
	first := g.reps()[0]
	greeter := g.listeners[tcpService].greeter
	g.Unlisten(tcpService)
	if err := g.Listen(tcpService, 0); err != nil {
		t.Fatal(err)
	}
	g.Greet(tcpService, greeter)
	g.Receive(g.now, path, req)
	again := g.reps()[0]
	if again.LocalID == first.LocalID || again.LocalQPN == first.LocalQPN || len(g.held) != 1 {
		t.Errorf("%+v, and before %+v; %d are held", again, first, len(g.held))
	}
	g.Receive(g.now, path, rtuFor(&again))
	if e, ok := g.Event(); !ok || e.Kind != EventRequest {
		t.Errorf("%+v", e)
	}
}
