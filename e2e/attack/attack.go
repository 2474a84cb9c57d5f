package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// Attack is one way to harm a device, and what must hold against it.
type Attack struct {
	Name string // lower case, words joined by hyphens
	What string // what is sent, and from where
	Must string // what must hold

	// Goodput is the share of its goodput that an innocent connection keeps
	// at least. It is judged in virtual time only; 0 means that it is not.
	Goodput float64

	secured bool // the connections of the lab are secured
	guarded bool // its devices are: hosts agree on keys by TCP, so there are sockets
	run     func(*Trial)
}

// Scale is how much of an attack is run.
type Scale struct {
	Packets int           // of a flood, whose answers are counted
	Conns   int           // connections that an attacker opens one after another
	Rounds  int           // turns without and with the attack; 0: none
	Bytes   int           // that a neighbour moves at least in a turn and direction
	Turn    time.Duration // how long a turn lasts at least
}

// Short is for tests, Long for figures.
var (
	Short = Scale{Packets: 2000, Conns: 400, Rounds: 1, Bytes: 2 << 20}
	Long  = Scale{Packets: 100_000, Conns: 5000, Rounds: 5, Bytes: 8 << 20, Turn: 200 * time.Millisecond}
)

// Result is what an attack did.
type Result struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Must    string   `json:"must"`
	Sent    uint64   `json:"sent"`              // packets of the counted part of the attack
	Answers uint64   `json:"answers"`           // packets that the victim sent because of them
	After   uint64   `json:"after,omitempty"`   // packets until an effect; 0: none
	Goodput *float64 `json:"goodput,omitempty"` // of the innocent connection, with / without
	Figures []Figure `json:"figures,omitempty"`
	Broken  []string `json:"broken,omitempty"` // what did not hold
}

// Figure is one more number that an attack reports.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Options say where an attack is run.
type Options struct {
	Scale   Scale
	Network *Network // nil means sockets of the loopback network
	Raw     bool     // forge through a raw socket, which needs CAP_NET_RAW
	Seed    uint64
}

// Trial is one attack under way. It joins the lab, the random numbers of
// forged packets, and what is judged: an attack is a function of a Trial, as a
// test is one of a testing.T. A Trial is for one goroutine; what it has for
// floods is the lab's.
type Trial struct {
	Scale
	attack *Attack
	lab    *lab
	random random
	result Result
}

// aborted carries an error of the lab itself up to Run.
type aborted struct{ err error }

// Run runs the attack. An error means that the lab did not come about; what the
// attack has broken is in the Result.
func (a *Attack) Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Network == nil {
		o.Network = Loopback()
	}
	t := &Trial{Scale: o.Scale, attack: a, random: random{rand.New(rand.NewPCG(o.Seed, 1))}}
	t.lab = &lab{ctx: ctx, net: o.Network, secured: a.secured}
	t.result = Result{Name: a.Name, What: a.What, Must: a.Must}
	defer func() {
		if e := t.lab.close(); e != nil && err == nil {
			err = e
		}
		switch p := recover().(type) {
		case nil:
		case aborted:
			err = fmt.Errorf("attack %s: %w", a.Name, p.err)
		default:
			panic(p)
		}
		r = t.result
	}()
	if a.guarded {
		t.lab.guard()
	}
	t.lab.open(o.Raw)
	a.run(t)
	return t.result, nil
}

// check ends the trial if the lab fails.
func check(err error) {
	if err != nil {
		panic(aborted{err})
	}
}

// broken notes that something did not hold.
func (t *Trial) broken(format string, args ...any) {
	t.result.Broken = append(t.result.Broken, fmt.Sprintf(format, args...))
}

// must notes what did not hold unless ok.
func (t *Trial) must(ok bool, format string, args ...any) {
	if !ok {
		t.broken(format, args...)
	}
}

// effect notes after how many packets the attack first had an effect.
func (t *Trial) effect(after uint64) {
	if t.result.After == 0 {
		t.result.After = after
	}
}

func (t *Trial) figure(name string, v float64, unit string) {
	t.result.Figures = append(t.result.Figures, Figure{name, v, unit})
}

// heap returns the bytes of live objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC() // twice: what finalizers and pools held goes with the second
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// smallHeap is what the objects of at most 32 KiB take, in bytes. Packets that
// are kept are such objects; the receive buffers of a link are not, which it
// takes when its first bursts come, and keeps.
func smallHeap() int64 {
	heap()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n := uint64(0)
	for _, c := range m.BySize {
		n += uint64(c.Size) * (c.Mallocs - c.Frees)
	}
	return int64(n)
}
