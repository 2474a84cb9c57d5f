package lab_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/lab"
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
