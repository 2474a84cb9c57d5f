package attack

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

func report(t *testing.T, r Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if r.Goodput != nil {
		t.Logf("sent %d, answers %d, goodput ratio %.3f, %v", r.Sent, r.Answers, *r.Goodput, r.Figures)
	} else {
		t.Logf("sent %d, answers %d, %v", r.Sent, r.Answers, r.Figures)
	}
	for _, b := range r.Broken {
		t.Error(b)
	}
	if t.Failed() {
		t.Logf("what was sent: %s; must hold: %s", r.What, r.Must)
	}
}

// TestAttacks runs every attack against devices on sockets. They run one after
// the other, for some measure memory.
func TestAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("attacks on sockets: run without -short")
	}
	for _, a := range All() {
		t.Run(a.Name, func(t *testing.T) {
			r, err := a.Run(t.Context(), Options{Scale: Short})
			report(t, r, err)
		})
	}
}

// TestGoodput judges the goodput of neighbours, in virtual time.
func TestGoodput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("goodput in virtual time: run without -short")
	}
	for _, a := range All() {
		if a.Goodput == 0 {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, err := a.Run(t.Context(), Options{Scale: Short, Network: Fabric(fabric.Config{
					Port: fabric.PortConfig{Rate: 1e9, Delay: 20 * time.Microsecond},
				})})
				report(t, r, err)
			})
		})
	}
}

// TestBlind judges how many PSNs of a forged packet have an effect.
func TestBlind(t *testing.T) {
	t.Parallel()
	for _, g := range Guesses() {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			r, err := g.Blind(1, 700, 200)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %+v", g.What, r)
			if r.Broken != "" {
				t.Error(r.Broken)
			}
		})
	}
}

// TestBlindUnreliable judges the same for services without acknowledgements. A
// guess that must hit does: the measure is not an empty one.
func TestBlindUnreliable(t *testing.T) {
	t.Parallel()
	for _, g := range UnreliableGuesses() {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			r, err := g.Blind(1, 3000)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %+v", g.What, r)
			if r.Broken != "" {
				t.Error(r.Broken)
			}
			if r.Hits < g.Most*0.999 {
				t.Errorf("%.0f values have an effect, fewer than %.0f", r.Hits, g.Most)
			}
		})
	}
}

// wires are the ways to forge, and whether this process may.
var wires = []struct {
	name string
	raw  bool
}{{"inject", false}, {"raw", true}}

func skipWithoutRaw(t *testing.T, raw bool) {
	t.Helper()
	if !raw {
		return
	}
	w, err := OpenRaw()
	if err != nil {
		t.Skipf("this user may not forge packets with raw sockets (run as root on Linux, or with CAP_NET_RAW): %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestForgedPacketsArrive shows that attacks which must have no effect are not
// empty: a packet whose fields are all right is executed, wherever it comes
// from.
func TestForgedPacketsArrive(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			skipWithoutRaw(t, w.raw)
			a := Attack{Name: "arrive", run: func(t *Trial) {
				c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
				check(c.b.postReceives())
				t.forgeSend(c, 0, forged)
				t.lab.fence()
				wc, err := t.lab.wait(c.b.rcq)
				check(err)
				t.must(wc.Status == verbs.StatusSuccess && bytes.Equal(c.b.mr.Bytes()[:slotSize], forged), "completion %+v", wc)
				t.must(c.b.qp.Stats().TxPackets == 1, "%d answers", c.b.qp.Stats().TxPackets)
			}}
			r, err := a.Run(t.Context(), Options{Scale: Short, Raw: w.raw})
			report(t, r, err)
		})
	}
}

// TestRawWire runs some attacks with packets that are forged on a raw socket,
// as the command does. Floods are left out: they would fill the victim's
// socket.
func TestRawWire(t *testing.T) {
	skipWithoutRaw(t, true)
	for _, a := range All() {
		switch a.Name {
		case "garbage", "wrong-qpn", "wrong-address", "blind-request":
			t.Run(a.Name, func(t *testing.T) {
				r, err := a.Run(t.Context(), Options{Scale: Scale{Packets: 500}, Raw: true})
				report(t, r, err)
			})
		}
	}
}

// As many guesses as the command makes are no more than there are.
func TestBlindUnreliableAddsUp(t *testing.T) {
	t.Parallel()
	for _, g := range UnreliableGuesses() {
		if g.Most != g.Space {
			continue
		}
		if r, err := g.Blind(1, 20_000); err != nil || r.Broken != "" || r.Hits != g.Space {
			t.Errorf("%s: %.9f values of %.0f: %v %v", g.Name, r.Hits, g.Space, r.Broken, err)
		}
	}
}
