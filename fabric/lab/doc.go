// Package lab runs experiments on simulated networks: a Scenario says which
// network, which adapters and which traffic, and Run plays it in virtual time
// with the code that runs over sockets. The Result has each flow with its
// times, what queues and rates were like meanwhile, all counters, and a digest
// over every event: a scenario and a seed give the same one on any machine.
//
//	s := lab.Scenario{Until: 20 * lab.Millisecond}
//	s.Network = lab.Network{Topology: "star", Hosts: 9, Rate: 40 * lab.Gbps}
//	s.Traffic = []lab.Traffic{{Kind: "incast", Senders: 8}}
//	r, err := lab.Run(ctx, s)
//
// The tests of the package are the experiments that docs/fabric.md tells of.
// Each has a table in testdata that its results are compared with exactly, and
// beside it what they must show.
package lab
