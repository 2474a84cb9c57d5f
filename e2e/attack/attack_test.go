package attack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
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

// TestRawWire runs the attacks whose packets are forged as somebody else's
// through a raw socket, as the command does.
func TestRawWire(t *testing.T) {
	w, err := openRaw()
	if err != nil {
		t.Skip(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, a := range All() {
		switch a.Name {
		case "wrong-qpn", "wrong-address", "blind-request":
			t.Run(a.Name, func(t *testing.T) {
				r, err := a.Run(t.Context(), Options{Scale: Short, Raw: true})
				report(t, r, err)
			})
		}
	}
}
