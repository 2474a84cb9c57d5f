package network_test

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// greeter sends three packets to host 1, and prints what it receives.
type greeter struct{ left int }

func (g *greeter) Pull(_ event.Time, _ int, _ uint8, p *network.Packet) bool {
	if g.left == 0 {
		return false
	}
	g.left--
	p.Dst, p.Size = 1, uint16(network.WireSize(1000))
	return true
}

func (g *greeter) Receive(now event.Time, _ int, p *network.Packet) {
	fmt.Printf("%v: %d bytes from host %d\n", now, p.Size, p.Src)
}
func (g *greeter) Timer(event.Time)                      {}
func (g *greeter) Dropped(*network.Packet, network.Drop) {}

// Two hosts at a switch, with cables of 100 Gb/s and 1 us.
func Example() {
	n, err := network.New(network.Config{
		Hosts:    2,
		Switches: []network.Switch{{Buffer: 1 << 20}}, // node 2
		Cables: []network.Cable{
			{A: 0, B: 2, Rate: 100e9, Delay: event.Microsecond},
			{A: 1, B: 2, Rate: 100e9, Delay: event.Microsecond},
		},
		Tables: []network.Table{{Set: []uint16{0, 1}, Sets: [][]uint16{{0}, {1}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	n.Attach(0, &greeter{left: 3})
	n.Attach(1, &greeter{})
	n.Kick(0, 0)
	n.Run(event.Never)
	t := n.Totals()
	fmt.Printf("%d sent, %d delivered, %d dropped, %v\n", t.Sent, t.Delivered, t.Dropped(), n.Check())
	// Output:
	// 2.16608us: 1038 bytes from host 0
	// 2.24912us: 1038 bytes from host 0
	// 2.33216us: 1038 bytes from host 0
	// 3 sent, 3 delivered, 0 dropped, <nil>
}
