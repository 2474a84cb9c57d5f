package world_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// One host writes into the memory of another one, through a switch. With
// devices of verbs.Open instead, and channels for boxes, the same two programs
// run over UDP.
func Example() {
	net, err := exampleNetwork()
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := world.New(world.Config{Network: net})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, b := world.NewBox[card](w), world.NewBox[card](w)
	w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		return transferTo(ctx, dev, boxes{mine: a, theirs: b})
	})
	w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		return target(ctx, dev, boxes{mine: b, theirs: a}, 1<<20)
	})
	if err := w.Run(); err != nil {
		fmt.Println(err)
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 MiB took 89µs of virtual time
}

// exampleNetwork is a star of two hosts, at 100 Gb/s.
func exampleNetwork() (network.Config, error) {
	g, err := topology.Star(2, topology.Cable{Rate: 100e9, Delay: 1e6 /* ps */})
	if err != nil {
		return network.Config{}, err
	}
	return g.Network(topology.Plan{Profile: topology.Spectrum()})
}

// transferTo writes 1 MiB into the memory of the peer.
func transferTo(ctx context.Context, dev *verbs.Device, b boxes) error {
	s, err := newSide(dev, make([]byte, 1<<20))
	if err != nil {
		return err
	}
	theirs, err := s.meet(ctx, b)
	if err != nil {
		return err
	}
	begun := dev.Now()
	err = s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, 1<<20)}, Remote: theirs.At(0), Signaled: true})
	if err != nil {
		return err
	}
	if err := s.await(ctx, 1); err != nil {
		return err
	}
	fmt.Printf("1 MiB took %dµs of virtual time\n", (dev.Now()-begun)/1000)
	_, err = b.swap(ctx, card{})
	return err
}
