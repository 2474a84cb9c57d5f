package strangers

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// What is done, and what must hold.
const (
	What = "anybody sends forged REQs to a rocev2d and a program of package rdma: 2,000, 20,000 and 100,000 a second, from one address and from everywhere; and opens silent TCP connections to the rocev2d"
	Must = "honest peers, of the same kind and of another, connect in half a second or so; the victim lives, has less than 192 MiB, and 30 s later about what it had before; the probes and who has the token are answered"
)

// Result is what a victim has gone through.
type Result struct {
	Victim string  `json:"victim"`
	Before float64 `json:"before"` // memory, in MiB
	After  float64 `json:"after"`  // 30 s after the last flood
	Floods []Flood `json:"floods"`

	// Load is how many threads wanted each processor before the first flood
	// (the load average of a minute). Above 1 others had the processors,
	// too, and what took long says little of the victim.
	Load float64 `json:"load"`

	Broken []string `json:"broken,omitempty"` // what did not hold
}

// Flood is one of its floods.
type Flood struct {
	What     string   `json:"what"`
	Rate     float64  `json:"rate,omitempty"` // what the attacker came to in a second
	Honest   []Honest `json:"honest"`
	Most     float64  `json:"most"` // memory at the end, in MiB
	Failures []string `json:"failures,omitempty"`
}

// Honest are the dials of one kind of honest peer: until the victim has
// answered what was sent over the connection.
type Honest struct {
	Kind    string        `json:"kind"`
	Count   int           `json:"count"`
	Median  time.Duration `json:"median"`
	Longest time.Duration `json:"longest"`
}

func honest(kind string, took []time.Duration) Honest {
	h := Honest{Kind: kind, Count: len(took)}
	if h.Count > 0 {
		slices.Sort(took)
		h.Median, h.Longest = took[h.Count/2], took[h.Count-1]
	}
	return h
}

// Text writes results as a table, followed by what did not hold.
func Text(w io.Writer, all []Result) error {
	fmt.Fprint(w, "\nStrangers: forged REQs and silent connections, what honest peers have beside them, and the victim's memory.\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "victim\tflood\ta second\thonest\tdials\tmedian\tlongest\tMiB")
	var failed []string
	for _, r := range all {
		fmt.Fprintf(t, "%s\tbefore\t\t\t\t\t\t%.0f\n", r.Victim, r.Before)
		for _, f := range r.Floods {
			for _, e := range f.Failures {
				failed = append(failed, f.What+": "+e)
			}
			for i, h := range f.Honest {
				what, rate, most := f.What, fmt.Sprintf("%.0f", f.Rate), fmt.Sprintf("%.0f", f.Most)
				if i > 0 || f.Rate == 0 {
					rate = ""
				}
				if i > 0 {
					what, most = "", ""
				}
				fmt.Fprintf(t, "\t%s\t%s\t%s\t%d\t%v\t%v\t%s\n", what, rate, h.Kind, h.Count, short(h.Median), short(h.Longest), most)
			}
		}
		fmt.Fprintf(t, "\t30 s later\t\t\t\t\t\t%.0f\n", r.After)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range failed {
		fmt.Fprintf(w, "\nfailed: %s\n", e)
	}
	for _, r := range all {
		if r.Load > 1 {
			fmt.Fprintf(w, "\nBUSY %s: before the floods %.0f threads wanted each processor: times, and dials that failed, say little; repeat it on an idle machine\n", r.Victim, r.Load)
		}
		for _, b := range r.Broken {
			fmt.Fprintf(w, "\nBROKEN %s: %s\n", r.Victim, b)
		}
	}
	return nil
}

func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
