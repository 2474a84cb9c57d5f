package lab_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// A trace player that is written outside of the package: a host computes, and
// then sends what others wait for. Each line has the host that sends, the one
// that receives, the bytes, and for how long the sender computes when all that
// was for it has come.
func ExampleSource() {
	type send struct {
		from, to int
		bytes    int64
		compute  lab.Time
	}
	trace := []send{{0, 1, 1 << 20, 5 * lab.Microsecond}, {1, 2, 1 << 16, 10 * lab.Microsecond}, {2, 0, 1 << 10, lab.Microsecond}}
	play := func(s *lab.Source) {
		var next func(i int)
		next = func(i int) {
			if i == len(trace) {
				return
			}
			line := trace[i]
			s.At(s.Now()+line.compute, func() {
				s.Start(lab.FlowSpec{Src: line.from, Dst: line.to, Bytes: line.bytes, Done: func(f *lab.Flow) {
					fmt.Printf("%d to %d: %d bytes in %v\n", f.Src, f.Dst, f.Bytes, f.End-f.Start)
					next(i + 1)
				}})
			})
		}
		next(0)
	}
	r, err := lab.Run(context.Background(), lab.Scenario{
		Network: lab.Network{Topology: "star", Hosts: 3},
		Traffic: []lab.Traffic{{Source: play}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the end:", r.End)
	// Output:
	// 0 to 1: 1048576 bytes in 89.916us
	// 1 to 2: 65536 bytes in 9.698us
	// 2 to 0: 1024 bytes in 4.193us
	// the end: 120us
}

// A source that has a row of flows is what the same list is, to the last event.
func TestSourceIsAsAList(t *testing.T) {
	t.Parallel()
	s := lab.Scenario{Seed: 5, Network: lab.Network{Topology: "star", Hosts: 4}}
	const n = 500
	spec := func(i int) lab.FlowSpec {
		return lab.FlowSpec{Src: i % 4, Dst: (i + 1 + i%3) % 4, Bytes: int64(1 + i*997%50000), Start: lab.Time(i) * lab.Microsecond, Op: []string{"write", "read", "send"}[i%3], Class: "26"}
	}
	var list strings.Builder
	list.WriteString("from,to,bytes,start,op,class\n")
	for i := range n {
		f := spec(i)
		fmt.Fprintf(&list, "%d,%d,%d,%v,%s,%s\n", f.Src, f.Dst, f.Bytes, f.Start, f.Op, f.Class)
	}
	s.Traffic = []lab.Traffic{{Kind: "list", List: list.String()}}
	want, err := lab.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	s.Traffic = []lab.Traffic{{Source: func(s *lab.Source) {
		s.Play(func(yield func(lab.FlowSpec) bool) {
			for i := range n {
				f := spec(i)
				f.Done = func(*lab.Flow) { done++ }
				if !yield(f) {
					return
				}
			}
		})
	}}}
	s.Cores = 4
	got, err := lab.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Flows) != n || done != n || len(want.Flows) != n {
		t.Errorf("%d flows, %d of them were told of; the list has %d", len(got.Flows), done, len(want.Flows))
	}
	for i, f := range got.Flows {
		if w := want.Flows[i]; f.Start != w.Start || f.End != w.End || f.Src != w.Src {
			t.Fatalf("flow %d is %v to %v, and of the list %v to %v", i, f.Start, f.End, w.Start, w.End)
		}
	}
}

// What is wrong with a flow of a source ends the run, which says so.
func TestMistakesOfSources(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]lab.FlowSpec{
		"a flow from host 0 to 4: there are 0 to 3, and they differ": {Dst: 4, Bytes: 1},
		"from host 0 to 0":                        {Bytes: 1},
		"it has -1 bytes":                         {Dst: 1, Bytes: -1},
		"without bytes it goes on until the end":  {Dst: 1},
		"its port is 80: it is 49152 to 65535":    {Dst: 1, Bytes: 1, SrcPort: 80},
		"op is \"x\": there are":                  {Dst: 1, Bytes: 1, Op: "x"},
		"class \"x\" is no DSCP":                  {Dst: 1, Bytes: 1, Class: "x"},
		"it starts at 9223372.036s: at most 2305": {Dst: 1, Bytes: 1, Start: 1<<63 - 1},
	} {
		for name, start := range map[string]func(*lab.Source){
			"start": func(s *lab.Source) { s.Start(f) },
			"play":  func(s *lab.Source) { s.Play(func(yield func(lab.FlowSpec) bool) { yield(f) }) },
		} {
			s := lab.Scenario{Network: lab.Network{Topology: "star", Hosts: 4}, Traffic: []lab.Traffic{{Source: start}}}
			if _, err := lab.Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %+v: %v; want %q", name, f, err, want)
			}
		}
	}
	s := lab.Scenario{Network: lab.Network{Topology: "star"}, Traffic: []lab.Traffic{{Kind: "incast", Source: func(*lab.Source) {}}}}
	if _, err := lab.Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), `kind is "incast" beside Source: leave it out`) {
		t.Errorf("%v", err)
	}
	// A sequence that is not at its end is told to stop.
	stopped := false
	s = lab.Scenario{Limit: 50 * lab.Microsecond, Network: s.Network, Traffic: []lab.Traffic{{Source: func(s *lab.Source) {
		s.Play(func(yield func(lab.FlowSpec) bool) {
			defer func() { stopped = true }()
			for i := range 1000 {
				if !yield(lab.FlowSpec{Dst: 1, Bytes: 1, Start: lab.Time(i) * lab.Millisecond}) {
					return
				}
			}
		})
	}}}}
	if _, err := lab.Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "go on to arrive at the limit") || !stopped {
		t.Errorf("%v, stopped %v", err, stopped)
	}
}
