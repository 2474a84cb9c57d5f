package agent

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// fuzzer plays what the input says: two agents, whose MADs are lost, doubled
// and changed on their way, whose programs do anything in any order, and MADs
// that neither agent has sent.
type fuzzer struct {
	in   []byte
	now  clock.Time
	side [2]*Agent
	ids  [2][]ID
	sent [2][]sentMAD // to that side, to be delivered
	idle [2][3]bool   // control connections of which that was told
	busy [2][3]bool   // control connections that had a connection last
}

// sentMAD is a MAD on its way, and the control connection that it goes over.
type sentMAD struct {
	control uint32
	b       [mad.Len]byte
}

func (f *fuzzer) byte() byte {
	if len(f.in) == 0 {
		return 0
	}
	b := f.in[0]
	f.in = f.in[1:]
	return b
}

func newFuzzer(in []byte) *fuzzer {
	f := &fuzzer{in: in, now: 1e9}
	for i := range f.side {
		idle := &f.idle[i]
		f.side[i] = newTestAgent(uint64(i+1), Config{HalfOpen: 6, HalfOpenPerSource: 5, Timewaits: 3, Replies: 4,
			Idle: func(control uint32) { idle[control] = true }})
		for _, s := range []mad.ServiceID{tcpService, udpService} {
			if err := f.side[i].Listen(s, 4); err != nil {
				panic(err)
			}
		}
	}
	return f
}

var fuzzPaths = [2]Path{{Local: serverAddr, Remote: clientAddr}, {Local: clientAddr, Remote: serverAddr}}

// path is the way of what comes to side i, mostly in the network.
func (f *fuzzer) path(i int) Path {
	p := fuzzPaths[i]
	if n := f.byte(); n >= 0xc0 {
		p.Control = uint32(n&1) + 1
	}
	return p
}

// step does one thing.
func (f *fuzzer) step() {
	op := f.byte()
	i := int(op >> 7)
	a := f.side[i]
	switch op & 15 {
	case 0, 1:
		f.connect(i)
	case 2, 3, 4, 5, 6:
		f.deliver(i, op>>4&7)
	case 7:
		f.now = f.now.Add(time.Duration(f.byte()) * 100 * time.Millisecond)
		for _, a := range f.side {
			a.Advance(f.now)
		}
	case 8, 9, 10, 11, 12:
		f.program(i)
	case 13: // any bytes
		b := make([]byte, int(f.byte())+8)
		for j := range b {
			b[j] = f.byte()
		}
		a.Receive(f.now, f.path(i), b)
	case 14:
		f.forge(i)
	case 15:
		f.sent[i] = nil
	}
	f.pull()
}

func (f *fuzzer) connect(i int) {
	path, a := f.path(i), f.side[i]
	if f.byte()&1 == 0 {
		id, err := a.Resolve(f.now, &SIDRRequest{Path: path, ServiceID: udpService, Retries: f.byte() & 3})
		f.learn(i, id, err)
		return
	}
	id, err := a.Connect(f.now, &ConnectRequest{Path: path, REQ: mad.REQ{
		ServiceID: tcpService, PathMTU: 1, LocalQPN: f.qpn(), MaxRetries: f.byte() & 3, Primary: mad.Path{AckTimeout: f.byte()&31 | 1},
	}})
	f.learn(i, id, err)
}

func (f *fuzzer) qpn() rocev2.QPN { return rocev2.QPN(f.byte()&7) + 2 }

func (f *fuzzer) learn(i int, id ID, err error) {
	if err != nil {
		panic(err)
	}
	f.ids[i] = append(f.ids[i], id)
}

// deliver brings one MAD to side i: as it is, twice, changed, or never.
func (f *fuzzer) deliver(i int, how byte) {
	if len(f.sent[i]) == 0 {
		return
	}
	m := f.sent[i][0]
	f.sent[i] = f.sent[i][1:]
	path := fuzzPaths[i]
	path.Control = m.control
	switch how {
	case 0:
		return
	case 1:
		m.b[f.byte()] ^= f.byte()
	case 2:
		f.side[i].Receive(f.now, path, m.b[:])
	case 3:
		path = f.path(i)
	}
	f.side[i].Receive(f.now, path, m.b[:])
}

// program has the program of side i do something with an ID, whether it fits or
// not.
func (f *fuzzer) program(i int) {
	if len(f.ids[i]) == 0 {
		return
	}
	a, id := f.side[i], f.ids[i][int(f.byte())%len(f.ids[i])]
	data := make([]byte, f.byte()&15)
	switch f.byte() % 11 {
	case 0, 1:
		_ = a.Accept(f.now, id, &mad.REP{LocalQPN: f.qpn(), Private: data})
	case 2, 3:
		_ = a.Ready(f.now, id, data)
	case 4:
		_ = a.Reject(f.now, id, mad.ReasonConsumer, data, data)
	case 5:
		_ = a.Disconnect(f.now, id, data)
	case 6:
		_ = a.Confirm(f.now, id, data)
	case 7:
		a.Release(f.now, id)
	case 8:
		_ = a.Answer(f.now, id, &mad.SIDRREP{Private: data})
		a.Communicated(id)
	case 9:
		a.Take(id)
	case 10:
		if n := f.byte(); n < 0x20 {
			_ = a.Detach(id)
		} else if path := f.path(i); path.Control != 0 {
			a.Cut(path)
		}
	}
}

// forge makes a message with IDs that exist.
func (f *fuzzer) forge(i int) {
	m := mad.New(mad.AttrREQ + mad.Attribute(f.byte()%11))
	var b [mad.Len]byte
	m.AppendTo(b[:0])
	for j, side := range []int{1 - i, i} {
		if n := len(f.ids[side]); n > 0 {
			id := f.ids[side][int(f.byte())%n]
			for k := range 4 {
				b[mad.HeaderLen+4*j+k] = byte(id >> (24 - 8*k))
			}
		}
	}
	for range f.byte() & 7 {
		b[mad.HeaderLen+8+f.byte()&127] = f.byte()
	}
	f.side[i].Receive(f.now, f.path(i), b[:])
}

// pull takes what the agents have to say, and checks what must always hold.
func (f *fuzzer) pull() {
	for i, a := range f.side {
		for {
			e, ok := a.Event()
			if !ok {
				break
			}
			if e.Kind == EventRequest || e.Kind == EventSIDRRequest {
				f.ids[i] = append(f.ids[i], e.ID)
			}
			if (e.Kind.Final()) != (a.State(e.ID) == StateIdle) && e.Kind.Final() {
				panic(fmt.Sprintf("%v, and the state is %v", e.Kind, a.State(e.ID)))
			}
		}
		for {
			var b [mad.Len]byte
			path, ok := a.Send(b[:])
			if !ok {
				break
			}
			if _, _, err := mad.Parse(b[:]); err != nil {
				panic(err)
			}
			if len(f.sent[1-i]) < 50 {
				f.sent[1-i] = append(f.sent[1-i], sentMAD{path.Control, b})
			}
		}
		if err := consistent(a); err != nil {
			panic(err)
		}
		f.checkIdle(i)
		if s := a.Stats(); s.HalfOpen > 6 || s.Timewait > 3 {
			panic(fmt.Sprintf("%+v", s))
		}
	}
}

// checkIdle checks what was told of control connections. Without a connection,
// and before the first, they are idle.
func (f *fuzzer) checkIdle(i int) {
	for n := uint32(1); n <= 2; n++ {
		path := fuzzPaths[i]
		path.Control = n
		busy := f.side[i].Busy(path)
		if p := f.side[i].table.peers[addressesOf(&path)]; busy && p.only != nil && f.side[i].table.conns[p.only.local] != p.only {
			panic("the latest connection has ended")
		}
		if f.busy[i][n] && !busy && !f.idle[i][n] {
			panic("nothing was told of a control connection that is idle")
		}
		f.busy[i][n], f.idle[i][n] = busy, false
	}
}

// finish releases everything. In time nothing is left.
func (f *fuzzer) finish() {
	for i, a := range f.side {
		for _, id := range f.ids[i] {
			a.Release(f.now, id)
		}
	}
	for range 1000 {
		f.pull()
		next := min(f.side[0].Deadline(), f.side[1].Deadline())
		if next == math.MaxInt64 {
			break
		}
		f.now = max(f.now, next)
		for _, a := range f.side {
			a.Advance(f.now)
		}
	}
	f.pull()
	for _, a := range f.side {
		if s := a.Stats(); s.Connections != 0 || s.Timers != 0 {
			panic(fmt.Sprintf("left over: %+v", s))
		}
	}
}

func (f *fuzzer) play() {
	for len(f.in) > 0 {
		f.step()
	}
	f.finish()
}

// FuzzAgent: whatever arrives, and whatever programs do, the tables of an agent
// stay consistent and bounded, and nothing is left when all is released.
func FuzzAgent(f *testing.F) {
	f.Add([]byte{0x00, 1, 0xb2, 0xb2, 0x88, 0, 0, 0, 0x32, 0x08, 0, 0, 2, 0xb2, 0x08, 0, 0, 5, 0xb2, 0x88, 0, 0, 5, 0x32})
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		b := make([]byte, 300)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		newFuzzer(in).play()
	})
}

// TestRandomWalk plays long random inputs of the fuzz target.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	reached := map[State]bool{}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 5))
		b := make([]byte, 3000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f := newFuzzer(b)
		for len(f.in) > 0 {
			f.step()
			for _, a := range f.side {
				for _, c := range a.table.conns {
					reached[c.state] = true
				}
			}
		}
		f.finish()
	}
	for s := StateREQSent; s <= StateSIDRReceived; s++ {
		if !reached[s] {
			t.Errorf("the walk never comes to state %v", s)
		}
	}
}
