package adapter_test

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/ib"
)

// A message of a megabyte from one host to another, by way of two switches.
func Example() {
	cable := topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond}
	n, err := newNetwork(topology.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 1, Host: cable, Up: cable})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := adapter.New(n, 2, adapter.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, y, err := a.Connect(0, 1, adapter.Connection{})
	if err != nil {
		fmt.Println(err)
		return
	}
	y.Received = func(m adapter.Message) { fmt.Println(m.Bytes, "bytes have arrived") }
	done := func(c adapter.Completion) {
		fmt.Println(c.Status, "within 100 µs:", c.End-c.Start < 100*event.Microsecond)
	}
	if err := x.Post(adapter.Request{Op: ib.OpSend, Bytes: 1 << 20, Done: done}); err != nil {
		fmt.Println(err)
		return
	}
	n.Run(event.Never)
	// Output:
	// 1048576 bytes have arrived
	// SUCCESS within 100 µs: true
}

func newNetwork(t topology.LeafSpine) (*network.Network, error) {
	g, err := t.Graph()
	if err != nil {
		return nil, err
	}
	c, err := g.Network(topology.Plan{Profile: topology.Spectrum()})
	if err != nil {
		return nil, err
	}
	return network.New(c)
}
