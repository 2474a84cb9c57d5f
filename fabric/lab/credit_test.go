package lab

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// stored returns a program that notes the most that any port of a switch has
// stored of a class, beside whatever else the switches do. It is for networks
// of one part.
func stored(most *int64, class uint8) network.Program {
	return func(v *network.View) network.Hooks {
		return network.Hooks{Dequeue: func(p *network.Packet, at network.Place) network.Verdict {
			if at.Class == class {
				*most = max(*most, v.StoredOf(at.In, class)+int64(p.Size))
			}
			return network.Default
		}}
	}
}

// Credits beside pauses, in the scenarios victim and incast without marks.
// Credits of about one round trip keep a cable full, and lose nothing, with a
// bounded buffer: a port has stored no more than its credits, while pauses
// begin at a threshold of what is free, and need headroom beyond it. What holds
// flows back that have no part in the congestion is the same: with less
// buffer in front of it congestion spreads as far, only sooner.
func TestCreditBesidePauses(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "scenario\tflow control\tbuffer of a port\tmost stored\tsum Gb/s\tvictim Gb/s\tframes\tdropped\t\n")
	for _, name := range []string{"incast", "victim"} {
		for _, buffer := range []Bytes{0, 20_000, 64_000, 200_000} {
			text, err := Text(name)
			must(t, err)
			s, err := Parse(text)
			must(t, err)
			s.Until, s.Warm = 20_000*us, 5000*us
			if buffer > 0 {
				s.Network.Alpha = nil
			}
			s.Network.RED = &RED{}
			s.Adapter.Control, s.Adapter.Window = "static", 1<<20
			s.Network.Switch.Credit, s.Network.Switch.CreditBuffer = buffer > 0, buffer
			var most int64
			s.Network.Switch.Program = stored(&most, 3)
			r := play(t, s)
			rates, sum, _ := r.Rates()
			victim := Rate(0)
			if name == "victim" {
				victim = rates[4]
			}
			how, size := "pauses", "shared"
			frames := r.Totals.XOFFs + r.Totals.XONs
			if buffer > 0 {
				how, size, frames = "credits", fmt.Sprint(int64(buffer)), r.Totals.Frames
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.2f\t%.2f\t%d\t%d\t\n", name, how, size, most, float64(sum)/1e9, float64(victim)/1e9, frames, r.Totals.Dropped())
			if r.Totals.Dropped() != 0 || buffer > 0 && (most > int64(buffer) || r.Totals.XOFFs > 0) {
				t.Errorf("%s, credits for %v: %d stored, %d pauses, dropped %v", name, buffer, most, r.Totals.XOFFs, r.Totals.Drops)
			}
			if name == "victim" && !near(victim, 4.65, .02) {
				t.Errorf("credits for %v: the victim gets %v, want 4.65 Gb/s", buffer, victim)
			}
			if cable := 36.0; name == "incast" && buffer != 20_000 && float64(sum)/1e9 < cable {
				t.Errorf("credits for %v: %v, and the cable carries %v", buffer, sum, cable)
			}
		}
	}
	w.Flush()
	golden(t, "credit", b.String())
}
