package lab

import "testing"

// A scenario of any content is played, or is refused: without a panic, and
// without more memory than machines have.
func FuzzScenario(f *testing.F) {
	for _, name := range Names() {
		text, _ := Text(name)
		f.Add(text)
	}
	f.Add([]byte("until = \"1us\"\n[network]\ntopology = \"fat-tree\"\nk = 4\n[[traffic]]\nkind = \"ring\"\nbytes = \"1B\"\n[[failure]]\ncable = 3\nat = \"10ns\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.Network.big() {
			return
		}
		r, err := newRun(&s, nil)
		if err != nil {
			return
		}
		s.Until, s.Warm = min(orDefault(s.Until, 20*us), 20*us), 0
		m := newSampler(r)
		m.step = max(m.step, us)
		r.play(t.Context(), m)
		r.result(m)
	})
}

// big reports whether a network is larger than what a fuzz target has time for.
func (n *Network) big() bool {
	for _, v := range []int{n.Hosts, n.Leaves, n.Spines, n.HostsPerLeaf, n.K, n.Switches, n.PerSwitch} {
		if v > 8 {
			return true
		}
	}
	return n.Topology == "hpcc"
}
