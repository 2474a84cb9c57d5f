package lab

import (
	"fmt"
	"testing"
)

// Flows of a class that drops find out soon that a packet was lost, whichever
// says their class: the traffic, a list, or a program.
func TestProbesOfALossyClass(t *testing.T) {
	t.Parallel()
	scenario := func(class string, k Traffic) Scenario {
		s := parsed(t, "[network]\ntopology = \"star\"\nhosts = 5\nqueue_max = \"20KB\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1B\"\n")
		k.Class = class
		s.Traffic[0] = k
		return s
	}
	list, specs := "from,to,bytes,class\n", []FlowSpec(nil)
	plain := "from,to,bytes\n"
	for i := 1; i < 5; i++ {
		list += fmt.Sprintf("%d,0,50000,10\n", i)
		plain += fmt.Sprintf("%d,0,50000\n", i)
		specs = append(specs, FlowSpec{Src: i, Dst: 0, Bytes: 50_000, Class: "10"})
	}
	all := map[string]*Result{
		"traffic": play(t, scenario("10", Traffic{Kind: "list", List: plain})),
		"list":    play(t, scenario("", Traffic{Kind: "list", List: list})),
		"program": play(t, scenario("", Traffic{Source: func(s *Source) {
			for _, k := range specs {
				s.Start(k)
			}
		}})),
	}
	want := all["traffic"]
	_, _, last := want.Done()
	if want.Totals.Dropped() == 0 || want.Stats.Probes == 0 || last > 900*us {
		t.Fatalf("%d packets were dropped, %d probes, the last flow ended at %v: nothing depends on probes", want.Totals.Dropped(), want.Stats.Probes, last)
	}
	for name, r := range all {
		if r.Digest != want.Digest || r.Stats != want.Stats {
			_, _, last := r.Done()
			t.Errorf("%s: digest %x, the last flow ended at %v, %d probes; where the traffic says the class %x, %d probes", name, r.Digest, last, r.Stats.Probes, want.Digest, want.Stats.Probes)
		}
	}
}
