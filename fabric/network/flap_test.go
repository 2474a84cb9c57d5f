package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// A cable that fails and comes back again and again, while what came in by it
// still waits in the switch, does not bring more into the buffer than there is
// room for: the pause of a full ingress comes again with the cable.
func TestPauseComesAgainWithTheCable(t *testing.T) {
	t.Parallel()
	sw := Switch{Buffer: 400_000}
	sw.Classes[3] = Class{Lossless: true, Alpha: 16}
	n, hosts := build(t, star(4, sw, 100*gbit, event.Microsecond))
	for i := range 2 {
		clients(n, hosts, i, 2000, Packet{Dst: 3, Size: DefaultMTU, DSCP: 24})
	}
	n.Pause(3, 0, 1<<3)
	n.Run(100 * event.Microsecond)
	balance(t, n)
	for flap := range 40 {
		n.SetCable(0, false)
		n.SetCable(0, true)
		n.Run(n.Now() + 10*event.Microsecond)
		if err := n.Check(); err != nil {
			t.Fatalf("after %d failures: %v", flap+1, err)
		}
		if n.Port(0, 0).Paused()&(1<<3) == 0 {
			t.Fatalf("after %d failures the host is not paused, and the buffer is full", flap+1)
		}
	}
	n.Pause(3, 0, 0)
	finish(t, n)
}
