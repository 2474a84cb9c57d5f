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
	f.Add([]byte("until = \"9us\"\n[network]\ntopology = \"file\"\ntext = \"4 1 3\\n3\\n0 3 1Gbps 1us 0\\n1 3 1Gbps 1us 0.1\\n2 3 1Gbps 1us 0\\n\"\nber = 1e-6\nloss = 0.1\nburst = 4\n" +
		"[[traffic]]\nkind = \"all-to-all\"\nbytes = \"1kB\"\n[[failure]]\nkind = \"one-way\"\nbetween = [\"n1\", \"s0\"]\nevery = \"2us\"\nfor = \"1us\"\n"))
	f.Add([]byte("until = \"9us\"\n[network]\ntopology = \"links\"\nhosts = 3\nswitches = 2\n[[network.link]]\nfrom = \"h0-2\"\nto = \"s0-1\"\nber = 1e-6\n" +
		"[[traffic]]\nkind = \"permutation\"\n[[failure]]\nkind = \"pause-storm\"\nnode = \"h0\"\n[[failure]]\nkind = \"rate\"\nrate = \"1Gb/s\"\nat = \"2us\"\n"))
	f.Add([]byte(twoClasses))
	f.Add([]byte("[network]\ntopology = \"star\"\nhosts = 4\n[[traffic]]\nkind = \"hierarchical\"\ngroup = 2\nbytes = \"9KB\"\niterations = 3\ncompute = \"1us\"\nqueue_pairs = 3\nrate = \"1Gb/s\"\nhosts = \"3,0-2\"\n[[traffic]]\nkind = \"pairwise\"\nranks = 2\nlist = \"0,5\\n1KB,0\"\n"))
	f.Add([]byte("[network]\ntopology = \"star\"\nhosts = 4\n[[traffic]]\nkind = \"list\"\nformat = \"htsim\"\nlist = \"0->1 start 0 size 9 send_done_trigger 1\\n1->2 trigger 1 size 9\\ntrigger id 1 oneshot\"\n[[traffic]]\nkind = \"list\"\nformat = \"ns3\"\nrebase = true\nlist = \"1\\n0 3 3 1 9 2.5\"\n"))
	traces := packed(new(tracer).node(1, etCollective, 0, nil, "comm_size", 100), new(tracer).node(1, etCollective, 0, nil, "comm_size", 100))
	f.Add([]byte("[network]\ntopology = \"pair\"\n[[traffic]]\nkind = \"chakra\"\nlist = \"" + traces + "\"\n"))
	f.Add([]byte("[network]\ntopology = \"rails\"\nmachines = 2\ngpus = 2\nspines = 1\nscale_up_rate = \"1Tb/s\"\n[[traffic]]\nkind = \"permutation\"\nbytes = \"9KB\"\ntransport = \"tcp\"\ncontrol = \"dctcp\"\n" +
		"tcp = { mss = 536, initial_window = 1, min_rto = \"1us\", ack_every = 1, ecn = true }\n[[traffic]]\nkind = \"flow\"\nto = 3\nclass = \"26\"\nwindow = \"9KB\"\ntransport = \"tcp\"\n"))
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
	for _, v := range []int{n.Hosts, n.Leaves, n.Spines, n.HostsPerLeaf, n.K, n.Switches, n.PerSwitch, n.Machines, n.GPUs, n.MachinesPerLeaf} {
		if v > 8 {
			return true
		}
	}
	if n.Topology == "file" {
		g, err := n.graph()
		return err == nil && g.Nodes() > 64
	}
	return n.Topology == "hpcc"
}
