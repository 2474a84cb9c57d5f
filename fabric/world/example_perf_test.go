package world_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/verbs"
)

// `rocev2 perf write_bw` between two hosts of a simulated network. The two
// sides talk by connections of the world, where over sockets they have TCP; all
// else is what runs there.
func Example_perf() {
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
	defer w.Close()
	config := perftest.Config{Test: perftest.Test{Verb: perftest.Write, Kind: perftest.Bandwidth}, Iterations: 2000}
	listener, err := w.Listen(0, interop.DefaultPort)
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		_, err := perftest.Serve(ctx, dev, listener, config)
		return err
	})
	w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		conn, err := w.Dial(ctx, 1, netip.AddrPortFrom(world.Addr(0), interop.DefaultPort))
		if err != nil {
			return err
		}
		results, err := perftest.Run(ctx, dev, conn, interop.Client, config)
		for _, r := range results {
			fmt.Printf("%v: %d messages of %d bytes, %.1f Gb/s\n", r.Test, r.Iterations, r.Size, r.Gbps())
		}
		return err
	})
	if err := w.Run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// write_bw: 2000 messages of 65536 bytes, 97.6 Gb/s
}
