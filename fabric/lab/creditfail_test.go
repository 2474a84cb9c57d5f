package lab

import "testing"

// TestCreditsAfterFailures: where grants, and what was sent, were lost while a
// cable or a host failed without either end seeing it, flows go on afterwards,
// as they do with pauses.
func TestCreditsAfterFailures(t *testing.T) {
	t.Parallel()
	for _, credit := range []bool{false, true} {
		for _, f := range []Failure{
			{Kind: "one-way", Between: []string{"s0", "h1"}},
			{Kind: "one-way", Between: []string{"h1", "s0"}},
			{Kind: "one-way", Between: []string{"s0", "h0"}},
			{Kind: "one-way", Between: []string{"h0", "s0"}},
			{Kind: "host", Node: "h1"},
			{Kind: "host", Node: "h0"},
			{Kind: "rate", Between: []string{"h1", "s0"}, Rate: Gbps},
			{Kind: "down", Between: []string{"h0", "s0"}},
		} {
			for _, cores := range []int{1, 2} {
				f.At, f.Until = 20*us, 300*us
				s := Scenario{Cores: cores, Limit: 100_000 * us, Network: Network{Topology: "star", Hosts: 3, Switch: Switch{Credit: credit}}, Adapter: Adapter{Timeout: 6},
					Traffic:  []Traffic{{Kind: "incast", Senders: 2, Bytes: 2 << 20}},
					Failures: []Failure{f}}
				r, err := Run(t.Context(), s)
				if err != nil {
					where := ""
					for _, u := range r.Unfinished {
						where += "\n" + u.Where
					}
					t.Errorf("credit %v, %s %s%v, cores %d: %v%s", credit, f.Kind, f.Node, f.Between, cores, err, where)
				}
			}
		}
	}
}
