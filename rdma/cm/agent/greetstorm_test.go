package agent

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Peers and the program do anything in any order, also with messages of before.
// Each number that was held is given back once, and nothing is kept at the end.
func TestGreetStorm(t *testing.T) {
	t.Parallel()
	seeds := 300
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		greetStorm(t, uint64(seed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func greetStorm(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	g := newGreeted(t, Config{Candidates: 8 + rng.IntN(20), Timewaits: 4, Backlog: 3, Answers: 1 << rng.IntN(20), Replies: 8})
	greeter := g.listeners[tcpService].greeter
	type request struct {
		path Path
		b    []byte
		m    mad.REQ
	}
	var asked []request
	var reps []mad.REP
	var paths []Path
	mine := map[ID]rocev2.QPN{} // the program's
	gone := func(id ID) {
		if n := mine[id]; n != 0 {
			g.cfg.Release(n)
		}
		delete(mine, id)
	}
	f := forger{rng, theClient}
	pull := func() {
		var b [mad.Len]byte
		for {
			path, ok := g.Send(b[:])
			if !ok {
				break
			}
			var m mad.REP
			if m.Parse(b[:]) == nil {
				reps, paths = append(reps, m), append(paths, path)
			}
		}
		for e, ok := g.Event(); ok; e, ok = g.Event() {
			switch {
			case e.Kind == EventRequest:
				if _, twice := mine[e.ID]; twice {
					t.Errorf("%v comes twice", e.ID)
				}
				mine[e.ID] = e.QPN
			case e.Kind.Final():
				gone(e.ID)
			}
		}
	}
	any := func() (Path, *mad.REP) {
		i := rng.IntN(len(reps))
		return paths[i], &reps[i]
	}
	for range 400 {
		switch k := rng.IntN(14); {
		case k < 3:
			path, b := f.next()
			var m mad.REQ
			if m.Parse(b) != nil {
				t.Fatal("a forged request does not parse")
			}
			if len(asked) > 0 && rng.IntN(4) == 0 { // another one of the same queue pair
				old := asked[rng.IntN(len(asked))]
				path, m.LocalQPN, m.LocalGUID, m.Primary = old.path, old.m.LocalQPN, old.m.LocalGUID, old.m.Primary
				b = m.AppendTo(nil)
			}
			asked = append(asked, request{path, b, m})
			g.Receive(g.now, path, b)
		case k == 3 && len(asked) > 0:
			r := asked[rng.IntN(len(asked))]
			g.Receive(g.now, r.path, r.b)
		case k < 6 && len(reps) > 0:
			path, rep := any()
			g.Receive(g.now, path, rtuFor(rep))
		case k == 6 && len(reps) > 0:
			path, rep := any()
			g.Receive(g.now, path, (&mad.REJ{LocalID: rep.RemoteID, RemoteID: rep.LocalID, Message: mad.StageREP, Reason: mad.ReasonConsumer}).AppendTo(nil))
		case k == 7 && len(reps) > 0:
			path, rep := any()
			g.Receive(g.now, path, (&mad.DREQ{LocalID: rep.RemoteID, RemoteID: rep.LocalID, RemoteQPN: rep.LocalQPN}).AppendTo(nil))
		case k == 8 && len(reps) > 0:
			_, rep := any()
			if g.held[rep.LocalQPN] {
				g.heard[rep.LocalQPN] = true
			}
		case k == 9:
			g.sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		case k < 12 && len(mine) > 0:
			for _, id := range slices.Sorted(maps.Keys(mine))[rng.IntN(len(mine)):] {
				switch rng.IntN(4) {
				case 0:
					g.Take(id)
				case 1:
					g.Disconnect(g.now, id, nil)
				case 2:
					g.Reject(g.now, id, mad.ReasonConsumer, nil, nil)
				}
				if rng.IntN(2) == 0 {
					g.Release(g.now, id)
					gone(id)
				}
				break
			}
		case k == 12 && rng.IntN(4) == 0:
			g.Greet(tcpService, map[bool]Greeter{true: greeter}[rng.IntN(2) == 0])
		case k == 13 && rng.IntN(6) == 0:
			g.Unlisten(tcpService)
			pull()
			if err := g.Listen(tcpService, 1+rng.IntN(4)); err != nil {
				t.Fatal(err)
			}
			g.Greet(tcpService, greeter)
		}
		pull()
	}
	for id := range mine {
		g.Release(g.now, id)
		gone(id)
	}
	for range 200 {
		g.sleep(10 * time.Second)
		pull()
		for id := range mine {
			g.Release(g.now, id)
			gone(id)
		}
	}
	if s := g.Stats(); len(g.held) != 0 || s.HalfOpen != 0 || s.Connections != 0 || s.Timers != 0 || len(g.table.peers) != 0 || len(g.table.byQPN) != 0 || len(g.table.byID) != 0 {
		t.Errorf("left: %d numbers, %d peers, %+v", len(g.held), len(g.table.peers), s)
	}
	if l := g.listeners[tcpService]; l.waiting != 0 || l.ready != 0 {
		t.Errorf("%d wait, %d are ready", l.waiting, l.ready)
	}
}
