package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/e2e/attack/strangers"
)

// Report is the outcome of a series of attacks.
type Report struct {
	Wire    string        `json:"wire"` // how packets were forged
	Attacks []Result      `json:"attacks"`
	Blind   []BlindResult `json:"blind,omitempty"`

	Strangers []strangers.Result `json:"strangers,omitempty"`
}

// Broken counts what did not hold.
func (r *Report) Broken() int {
	n := 0
	for i := range r.Attacks {
		n += len(r.Attacks[i].Broken)
	}
	for i := range r.Blind {
		if r.Blind[i].Broken != "" {
			n++
		}
	}
	for i := range r.Strangers {
		n += len(r.Strangers[i].Broken)
	}
	return n
}

// JSON writes the report as one JSON object.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes the report as tables, followed by what did not hold.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	if len(r.Attacks) > 0 {
		fmt.Fprintf(&b, "Attacks on live devices; packets are forged by %s.\n\n", r.Wire)
		r.attacks(&b)
	}
	if len(r.Blind) > 0 {
		b.WriteString("\nBlind packets: addresses and QPN known, PSN guessed. PSNs with an effect, of 2^24, MSNs that\n" +
			"the packet may carry, and packets until one hits on average, extrapolated from the numbers tried: random\n" +
			"numbers; PSNs swept in the largest steps; the same on a young connection, whose MSN is known.\n\n")
		r.blind(&b)
	}
	for i := range r.Attacks {
		for _, s := range r.Attacks[i].Broken {
			fmt.Fprintf(&b, "\nBROKEN %s: %s\n  must hold: %s\n", r.Attacks[i].Name, s, r.Attacks[i].Must)
		}
	}
	for i := range r.Blind {
		if s := r.Blind[i].Broken; s != "" {
			fmt.Fprintf(&b, "\nBROKEN blind %s: %s\n", r.Blind[i].Name, s)
		}
	}
	_, err := io.WriteString(w, b.String())
	if err == nil && len(r.Strangers) > 0 {
		err = strangers.Text(w, r.Strangers)
	}
	return err
}

func (r *Report) attacks(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "attack\tsent\tanswers\teffect after\tneighbour's goodput\tholds\tfigures")
	for i := range r.Attacks {
		a := &r.Attacks[i]
		goodput, after, holds := "-", "none", "yes"
		if a.Goodput != nil {
			goodput = fmt.Sprintf("%.2f", *a.Goodput)
		}
		if a.After > 0 {
			after = fmt.Sprint(a.After)
		}
		if len(a.Broken) > 0 {
			holds = "NO"
		}
		var figures []string
		for _, f := range a.Figures {
			figures = append(figures, fmt.Sprintf("%s %.0f %s", f.Name, f.Value, f.Unit))
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", a.Name, a.Sent, a.Answers, after, goodput, holds, strings.Join(figures, ", "))
	}
	t.Flush() // to a strings.Builder: it cannot fail
}

func (r *Report) blind(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "packet\ttried\tends\treplaces\tlies\tany\tMSNs\trandom\tsweep\tyoung\twhat")
	for i := range r.Blind {
		g := &r.Blind[i]
		packets := "never\tnever\tnever"
		if g.Random > 0 {
			packets = fmt.Sprintf("%.4g\t%.4g\t%.4g", g.Random, g.Sweep, g.Young)
		}
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%s\n", g.Name, g.Tried, g.Ends, g.Replaces, g.Lies, g.Hits, g.MSNs, packets, g.What)
	}
	t.Flush() // to a strings.Builder: it cannot fail
}
