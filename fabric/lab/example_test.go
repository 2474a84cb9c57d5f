package lab_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

// Four hosts write a megabyte each to one, whose cable is what they share.
func Example() {
	s := lab.Scenario{
		Network: lab.Network{Topology: "star", Hosts: 5, Rate: 40 * lab.Gbps},
		Traffic: []lab.Traffic{{Kind: "incast", Senders: 4, Bytes: 1_000_000}},
	}
	r, err := lab.Run(context.Background(), s)
	if err != nil {
		fmt.Println(err)
		return
	}
	done, _, _ := r.Done()
	fmt.Printf("%d flows, %d packets dropped\n", done, r.Totals.Dropped())
	fmt.Println("each took at least three times as long as alone:", r.Slowdowns(0, 1<<30).P50 > 3)
	// Output:
	// 4 flows, 0 packets dropped
	// each took at least three times as long as alone: true
}

// A program builds its own network: two switches with a long cable between
// them, and a host at each.
func ExampleRun_network() {
	b := topology.NewBuilder(2)
	left, right := b.Switch(1), b.Switch(1)
	short := topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond}
	b.Link(0, left, short)
	b.Link(1, right, short)
	b.Link(left, right, topology.Cable{Rate: 400 * topology.Gbps, Delay: 500 * topology.Microsecond}) // 100 km
	g, err := b.Graph()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := lab.Run(context.Background(), lab.Scenario{
		Network: lab.Network{Graph: g},
		Traffic: []lab.Traffic{{Kind: "flow", From: 0, To: 1, Bytes: 1000}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("there and back it took more than a millisecond:", r.Flows[0].End > lab.Millisecond)
	// Output: there and back it took more than a millisecond: true
}
