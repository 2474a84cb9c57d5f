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
	f.Add([]byte("[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1KB\"\n[output]\nports = \"s0.0-1 h0 all\"\nflows = \"0-3 9\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.Network.big() {
			return
		}
		s.Output.Record = len(text)%2 == 0
		r, err := newRun(&s, nil)
		if err != nil {
			return
		}
		s.Until, s.Warm = min(orDefault(s.Until, 20*us), 20*us), 0
		m := newSampler(r)
		m.step = max(m.step, us)
		r.play(t.Context(), m)
		res := r.result(m)
		res.Plots()
		res.Cables()
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
