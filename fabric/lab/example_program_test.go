package lab_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// phantom is a switch program of one's own: a phantom queue at each port (HULL:
// Alizadeh et al., NSDI 2012, section 3.1). It is a counter that takes the
// bytes that leave, and drains at 95 % of the port's rate. Packets are marked
// by its length, as RED does by that of a real queue. So senders slow down
// before a real queue begins.
func phantom(red network.RED) network.Program {
	type queue struct {
		bytes int64
		at    network.Time
	}
	return func(v *network.View) network.Hooks {
		ports := make([]queue, v.Ports())
		return network.Hooks{
			Dequeue: func(p *network.Packet, at network.Place) network.Verdict {
				if p.ECN == network.NotECT {
					return network.Default
				}
				q := &ports[at.Out]
				perByte := 8 * event.Second / network.Time(v.Rate(at.Out)) * 100 / 95
				drained := (v.Now() - q.at) / perByte
				q.bytes = max(q.bytes-int64(drained), 0) + int64(p.Size)
				q.at = v.Now()
				if over := q.bytes - red.Kmin; over > 0 && v.Rand().Uint64n(1e6*uint64(red.Kmax-red.Kmin)) < uint64(red.Pmax)*uint64(over) || q.bytes > red.Kmax {
					p.ECN = network.CE
				}
				return network.Default
			},
		}
	}
}

// A scenario with a switch feature that this repository does not have: the
// phantom queues give up 5 % of the cable, and the queue is all but gone.
func Example_program() {
	for _, program := range []network.Program{nil, phantom(network.RED{Kmin: 5000, Kmax: 200_000, Pmax: 10_000})} {
		s := lab.Scenario{
			Until: 20_000 * lab.Microsecond, Warm: 10_000 * lab.Microsecond,
			Network: lab.Network{Topology: "star", Hosts: 9, Rate: 40 * lab.Gbps, Profile: "dcqcn-paper"},
			Adapter: lab.Adapter{MTU: 1024, Control: "dcqcn", Notify: 50 * lab.Microsecond},
			Traffic: []lab.Traffic{{Kind: "incast", Senders: 8}},
		}
		s.Network.Switch.Program = program
		if program != nil {
			s.Network.RED = &lab.RED{} // the program marks alone
		}
		r, err := lab.Run(context.Background(), s)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, sum, _ := r.Rates()
		fmt.Printf("%.1f Gb/s, mean queue %d KB\n", float64(sum)/1e9, r.Queues[0].Mean/1000)
	}
	// Output:
	// 37.0 Gb/s, mean queue 68 KB
	// 35.3 Gb/s, mean queue 2 KB
}
