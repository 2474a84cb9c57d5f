package world_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/pingpong"
	"github.com/gosoftroce/rocev2/verbs"
)

// The ping-pongs of rdma-core run in a world, and validate what comes.
func TestPingpong(t *testing.T) {
	t.Parallel()
	for _, service := range []pingpong.Service{pingpong.RC, pingpong.UC, pingpong.UD} {
		w := newWorld(t, world.Config{Network: star(2)})
		c := pingpong.Config{Service: service, Size: 1024, Iterations: 100, Validate: true}
		ln, err := w.Listen(0, interop.DefaultPort)
		must(t, err)
		var results [2]pingpong.Result
		must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) (err error) {
			results[0], err = pingpong.Serve(ctx, dev, ln, c)
			return err
		}))
		must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
			conn, err := w.Dial(ctx, 1, netip.AddrPortFrom(world.Addr(0), interop.DefaultPort))
			if err != nil {
				return err
			}
			results[1], err = pingpong.Run(ctx, dev, conn, interop.Client, c)
			return err
		}))
		must(t, w.Run())
		t.Logf("%v: %v and %v", service, results[0].Elapsed, results[1].Elapsed)
	}
}
