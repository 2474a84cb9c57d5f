package server_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// A reload beside the end of the daemon, and two ends beside each other: all
// return, and no region is exported in memory that is gone.
func TestReloadBesideShutdown(t *testing.T) {
	t.Parallel()
	for range 5 {
		d := withRegions(t, config.Region{Name: "first", Size: 4096, Access: config.ReadWrite})
		reload := func(size int64) error {
			next := settings(d.addr)
			next.Devices[0].Regions = config.DefaultRegionsPort
			next.Regions = []config.Region{{Name: "first", Size: size, Access: config.ReadWrite}, {Name: "second", Size: 4096, Access: config.ReadOnly}}
			_, err := d.Reload(next)
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for i := range int64(4) {
			wg.Go(func() {
				for n := int64(1); reload(4096*(n+i)) == nil; n++ {
				}
			})
		}
		for range 2 {
			wg.Go(func() { d.Shutdown(ctx) })
		}
		wg.Wait()
		cancel()
		if reload(4096) == nil {
			t.Error("a daemon that has ended exports regions")
		}
	}
}
