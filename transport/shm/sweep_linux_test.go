//go:build !portable

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// A sweep that has the lock of the directory may take a socket for one of a
// process that has ended, when that cannot be connected to yet. The socket is
// made again.
func TestListenBesideSweeps(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	var sweeps sync.WaitGroup
	var over atomic.Bool
	for range 4 {
		d, err := openDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		sweeps.Go(func() {
			defer d.close()
			for !over.Load() {
				d.sweep()
			}
		})
	}
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		l, err := d.listen(fmt.Sprint(socketPrefix, i))
		if err != nil {
			t.Error(err)
			break
		}
		l.remove()
	}
	over.Store(true)
	sweeps.Wait()
	d.close()
}
