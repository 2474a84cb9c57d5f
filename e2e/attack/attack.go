package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// Attack is one way to harm a device, and what must hold against it.
type Attack struct {
	Name string // lower case, words joined by hyphens
	What string // what is sent, and from where
	Must string // what must hold

	// Goodput is the share of its goodput that an innocent connection keeps
	// at least. It is judged in virtual time only; 0 means that it is not.
	Goodput float64

	run func(*Trial)
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

// Trial is one attack under way. Its methods are for one goroutine unless they
// say otherwise.
type Trial struct {
	Scale
	ctx    context.Context
	attack *Attack
	lab    *lab
	rng    *rand.Rand
	seq    uint64 // of the messages that stream sends
	result Result

	wireErr atomic.Pointer[error] // the first error of the wire
}

// aborted carries an error of the lab itself up to Run.
type aborted struct{ err error }

// Run runs the attack. An error means that the lab did not come about; what the
// attack has broken is in the Result.
func (a *Attack) Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Network == nil {
		o.Network = Loopback()
	}
	t := &Trial{Scale: o.Scale, ctx: ctx, attack: a, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	t.result = Result{Name: a.Name, What: a.What, Must: a.Must}
	defer func() {
		if t.lab != nil {
			if e := t.lab.close(); e != nil && err == nil {
				err = e
			}
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
	t.open(o)
	a.run(t)
	return t.result, nil
}

// check ends the trial if the lab fails.
func (t *Trial) check(err error) {
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

const (
	giveUpAfter = time.Minute // for what must happen
	pollTime    = 200 * time.Microsecond
)

// await polls until cond holds. It aborts the trial when that takes too long.
func (t *Trial) await(what string, cond func() bool) {
	if !t.happens(giveUpAfter, cond) {
		t.check(fmt.Errorf("no %s in %v", what, giveUpAfter))
	}
}

// happens polls until cond holds, or for d, and reports whether it did.
func (t *Trial) happens(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); !cond(); {
		if t.ctx.Err() != nil {
			panic(aborted{t.ctx.Err()})
		}
		if err := t.wireErr.Load(); err != nil {
			panic(aborted{*err})
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pollTime)
	}
	return true
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

// wait takes one completion.
func (t *Trial) wait(cq *verbs.CQ) (verbs.WC, error) {
	ctx, cancel := context.WithTimeout(t.ctx, giveUpAfter)
	defer cancel()
	var wc [1]verbs.WC
	_, err := cq.Wait(ctx, wc[:])
	return wc[0], err
}
