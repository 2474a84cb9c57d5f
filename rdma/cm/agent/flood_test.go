package agent

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

var (
	serverAddr = netip.MustParseAddr("10.0.0.1")
	clientAddr = netip.MustParseAddr("10.0.0.2")
)

func newTestAgent(seed uint64, cfg Config) *Agent {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg.GUID, cfg.Random = mad.GUID(seed), rng.Uint32
	return New(cfg)
}

// forger makes REQs that look like those of an honest peer.
type forger struct {
	rng  *rand.Rand
	from func(*rand.Rand) netip.Addr
}

func (f *forger) next() (Path, []byte) {
	source := f.from(f.rng)
	m := mad.REQ{
		LocalID: mad.CommID(f.rng.Uint32() | 1), LocalGUID: mad.GUID(f.rng.Uint64()), LocalQPN: rocev2.QPN(f.rng.Uint32N(1<<22) + 2),
		ServiceID: tcpService, PKey: 0xffff, PathMTU: 3, MaxRetries: 15, LocalResponseTimeout: 31,
		Primary: mad.Path{LocalGID: source, RemoteGID: serverAddr, AckTimeout: 14},
	}
	return Path{Local: serverAddr, Remote: source}, m.AppendTo(nil)
}

func oneSource(*rand.Rand) netip.Addr { return netip.MustParseAddr("10.9.9.9") }
func theClient(*rand.Rand) netip.Addr { return clientAddr }
func anySource(rng *rand.Rand) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], rng.Uint32())
	return netip.AddrFrom4(b)
}

// TestFlood: at 50,000 forged REQs a second, from one source, from many, from
// the honest client's own address, or each sent again after a while, an honest
// client still connects within a second, every time, to a program that makes
// 5,000 queue pairs a second, or 500, unless others whose requests come again
// are before it. What the server holds is bounded.
func TestFlood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from  func(*rand.Rand) netip.Addr
		again bool
		every int
	}{
		"one source": {oneSource, false, 10}, "many sources": {anySource, false, 10}, "the client's address": {theClient, false, 10},
		"many sources, each again": {anySource, true, 10}, "one source, each again": {oneSource, true, 10},
		"one source, a slow program": {oneSource, false, 100}, "many sources, a slow program": {anySource, false, 100},
		"the client's address, a slow program": {theClient, false, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlood(t, &forger{rand.New(rand.NewPCG(7, 7)), c.from}, c.again)
			f.acceptEvery = c.every
			f.run(2 * time.Second)
		})
	}
}

type flood struct {
	t              *testing.T
	now            clock.Time
	server, client *Agent
	forger         *forger
	again          []func() // what is sent once more, in order, 150 ms later
	every          bool     // each is
	acceptEvery    int      // forged ones, the program accepts a request
	waiting        []ID     // the server's program has them in hand
	accepted       int
	largest        Stats
	started        clock.Time
	dialing        ID
	connected      int
	slowest        time.Duration
	dialed         int
}

func newFlood(t *testing.T, f *forger, again bool) *flood {
	x := &flood{t: t, now: 1e9, forger: f, every: again, server: newTestAgent(1, Config{}), client: newTestAgent(2, Config{})}
	if err := x.server.Listen(tcpService, 0); err != nil {
		t.Fatal(err)
	}
	return x
}

const (
	forgedEvery = 20 * time.Microsecond
	againAfter  = 7500
)

func (f *flood) run(d time.Duration) {
	end := f.now.Add(d)
	for i := 0; f.now < end; i++ {
		f.now = f.now.Add(forgedEvery)
		path, b := f.forger.next()
		f.server.Receive(f.now, path, b)
		if f.every {
			f.again = append(f.again, func() { f.server.Receive(f.now, path, b) })
			if len(f.again) > againAfter {
				f.again[0]()
				f.again = f.again[1:]
			}
		}
		if i%f.acceptEvery == 0 {
			f.accept()
		}
		if i%25000 == 15000 { // twice a second, when the flood has begun
			f.dial()
		}
		f.server.Advance(f.now)
		f.client.Advance(f.now)
		f.carry()
		s := f.server.Stats()
		f.largest.Connections = max(f.largest.Connections, s.Connections)
		f.largest.HalfOpen = max(f.largest.HalfOpen, s.HalfOpen)
	}
	if f.dialed < int(d/time.Second) || f.connected < f.dialed-1 {
		f.t.Errorf("%d of %d honest connections", f.connected, f.dialed)
	}
	if most := 4096; f.largest.HalfOpen > most || f.largest.Connections > most+f.connected {
		f.t.Errorf("the server held up to %+v", f.largest)
	}
	f.t.Logf("%d honest connections, the slowest in %v; %d accepted; at most %d half open; %+v",
		f.connected, f.slowest, f.accepted, f.largest.HalfOpen, f.server.Stats())
}

// dial has the honest client connect. The one before must have come through.
func (f *flood) dial() {
	if f.dialing != 0 {
		return
	}
	id, err := f.client.Connect(f.now, &ConnectRequest{
		Path: Path{Local: clientAddr, Remote: serverAddr},
		REQ:  mad.REQ{ServiceID: tcpService, LocalQPN: rocev2.QPN(100 + f.connected), PathMTU: 3, Primary: mad.Path{AckTimeout: 14}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.dialing, f.started = id, f.now
	f.dialed++
}

func (f *flood) acceptOne(id ID) bool {
	f.accepted++
	return f.server.Accept(f.now, id, &mad.REP{LocalQPN: rocev2.QPN(f.accepted)}) == nil
}

// accept has the server's program make a queue pair for the request that has
// the best claim, or else has waited longest.
func (f *flood) accept() {
	if id, ok := f.server.Claimant(tcpService); ok {
		f.server.Take(id)
		if f.acceptOne(id) {
			return
		}
	}
	for len(f.waiting) > 0 {
		id := f.waiting[0]
		f.waiting = f.waiting[1:]
		if f.acceptOne(id) {
			return
		}
	}
}

func (f *flood) carry() {
	var b [mad.Len]byte
	for {
		e, ok := f.server.Event()
		if !ok {
			break
		}
		if e.Kind == EventRequest {
			f.waiting = append(f.waiting, e.ID)
		}
	}
	for {
		path, ok := f.server.Send(b[:])
		if !ok {
			break
		}
		if path.Remote == clientAddr {
			f.client.Receive(f.now, Path{Local: clientAddr, Remote: serverAddr}, b[:])
		}
	}
	for {
		e, ok := f.client.Event()
		if !ok {
			break
		}
		if e.ID != f.dialing {
			continue
		}
		if took := f.now.Sub(f.started); e.Kind != EventReply || took > time.Second {
			f.t.Errorf("%v after %v, reason %v", e.Kind, took, e.Reason)
		}
		f.slowest = max(f.slowest, f.now.Sub(f.started))
		if e.Kind == EventReply {
			f.connected++
			if err := f.client.Ready(f.now, e.ID, nil); err != nil {
				f.t.Error(err)
			}
		}
		f.dialing = 0
	}
	for {
		if _, ok := f.client.Send(b[:]); !ok {
			break
		}
		f.server.Receive(f.now, Path{Local: serverAddr, Remote: clientAddr}, b[:])
	}
}

// link carries between two agents whose programs take everything.
type link struct {
	now clock.Time
	mad [mad.Len]byte
	qpn rocev2.QPN
}

func (l *link) carry(a, b *Agent) {
	for {
		pathA, okA := a.Send(l.mad[:])
		if okA {
			b.Receive(l.now, Path{Local: pathA.Remote, Remote: pathA.Local}, l.mad[:])
			l.events(b)
		}
		pathB, okB := b.Send(l.mad[:])
		if okB {
			a.Receive(l.now, Path{Local: pathB.Remote, Remote: pathB.Local}, l.mad[:])
			l.events(a)
		}
		if !okA && !okB {
			return
		}
	}
}

func (l *link) events(a *Agent) {
	for {
		e, ok := a.Event()
		if !ok {
			return
		}
		var err error
		switch e.Kind {
		case EventRequest:
			l.qpn++
			err = a.Accept(l.now, e.ID, &mad.REP{LocalQPN: l.qpn, Private: e.Request.Private[:8]})
		case EventReply:
			err = a.Ready(l.now, e.ID, nil)
		case EventDisconnectRequested:
			err = a.Confirm(l.now, e.ID, nil)
		}
		if err != nil {
			panic(err)
		}
	}
}

func (l *link) connect(t testing.TB, client, server *Agent) ID {
	l.qpn++
	id, err := client.Connect(l.now, &ConnectRequest{
		Path: Path{Local: clientAddr, Remote: serverAddr},
		REQ:  mad.REQ{ServiceID: tcpService, LocalQPN: l.qpn & rocev2.QPNMask, PathMTU: 3, Primary: mad.Path{AckTimeout: 14}, Private: make([]byte, 56)},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.carry(client, server)
	return id
}

// TestMemory: an idle connection costs less than 300 bytes in an agent, on
// either side, and no timer.
func TestMemory(t *testing.T) {
	const n = 10000
	heapSize := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	client, server := newTestAgent(1, Config{}), newTestAgent(2, Config{})
	if err := server.Listen(tcpService, 0); err != nil {
		t.Fatal(err)
	}
	before := heapSize()
	l := link{now: 1, qpn: 1}
	for range n {
		l.connect(t, client, server)
	}
	each := float64(heapSize()-before) / (2 * n)
	t.Logf("%.0f bytes each", each)
	for _, a := range []*Agent{client, server} {
		if s := a.Stats(); s.Connections != n || s.Timers != 0 || s.HalfOpen != 0 {
			t.Errorf("%+v", s)
		}
	}
	if each >= 300 {
		t.Errorf("%.0f bytes each", each)
	}
}

// TestRefusedCostsNothing: a forged REQ that finds no room allocates nothing.
func TestRefusedCostsNothing(t *testing.T) {
	a, f := fullAgent(t)
	var reqs [][]byte
	var paths []Path
	for range 1000 {
		p, b := f.next()
		paths, reqs = append(paths, p), append(reqs, b)
	}
	i := 0
	if n := testing.AllocsPerRun(900, func() {
		a.Receive(2, paths[i], reqs[i])
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := a.Stats(); s.HalfOpen != 1024 || s.Overloaded != 901 {
		t.Errorf("%+v", s)
	}
}

// fullAgent has a listener with a full backlog.
func fullAgent(t testing.TB) (*Agent, *forger) {
	a := newTestAgent(1, Config{})
	if err := a.Listen(tcpService, 0); err != nil {
		t.Fatal(err)
	}
	f := &forger{rand.New(rand.NewPCG(7, 7)), anySource}
	for range 1024 {
		path, b := f.next()
		a.Receive(1, path, b)
		a.Event()
	}
	return a, f
}

// BenchmarkConnect makes and ends a connection: both sides, all six messages.
func BenchmarkConnect(b *testing.B) {
	client, server := newTestAgent(1, Config{}), newTestAgent(2, Config{})
	if err := server.Listen(tcpService, 0); err != nil {
		b.Fatal(err)
	}
	l := link{now: 1, qpn: 1}
	b.ReportAllocs()
	for b.Loop() {
		id := l.connect(b, client, server)
		if err := client.Disconnect(l.now, id, nil); err != nil {
			b.Fatal(err)
		}
		l.carry(client, server)
		l.now = l.now.Add(200 * time.Microsecond)
		client.Advance(l.now)
		server.Advance(l.now)
		l.events(client)
		l.events(server)
	}
}

// BenchmarkRefused takes forged REQs that find no room.
func BenchmarkRefused(b *testing.B) {
	a, f := fullAgent(b)
	var reqs [4096][]byte
	var paths [4096]Path
	for i := range reqs {
		paths[i], reqs[i] = f.next()
	}
	b.ReportAllocs()
	i := 0
	now := clock.Time(1)
	for b.Loop() {
		now = now.Add(20 * time.Microsecond)
		binary.BigEndian.PutUint32(reqs[i%4096][mad.HeaderLen:], uint32(i)+1)
		a.Receive(now, paths[i%4096], reqs[i%4096])
		i++
	}
}
