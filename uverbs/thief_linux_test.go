package uverbs

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a program does to its doorbell, or after its end another one that has
// the same file, does not keep the client from its end.
func TestBellOfThief(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(fd int, a *app){
		"who reads it":                  func(fd int, _ *app) { unix.Read(fd, make([]byte, 8)) },
		"who fills it and has it block": fillBell,
	} {
		everywhere(t, name, func(t *testing.T, hosts func(testing.TB) (a, b *Device)) {
			d, _ := hosts(t)
			a := start(t, d)
			fd, err := unix.Dup(int(a.c.Bell().Fd()))
			a.must(err)
			begun, stop := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := 0; ; i++ {
					attack(fd, a)
					if i == 100 {
						close(begun)
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			<-begun
			a.must(a.c.Close())
			close(stop)
			wg.Wait()
			unix.Close(fd)
		})
	}
}

// fillBell fills a doorbell, has who writes and reads it wait, and keeps the
// client from reading it: it has always something to do.
func fillBell(fd int, a *app) {
	area := (*bellArea)(unsafe.Pointer(&a.mem[0]))
	area.bells[0].Or(1)
	area.summary[0].Or(1)
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, _ := unix.Poll(p, 0); n == 0 {
		return // it is full
	}
	unix.SetNonblock(fd, true)
	unix.Read(fd, make([]byte, 8))
	unix.Write(fd, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1))
	unix.SetNonblock(fd, false)
}

// everywhere runs a test with both ways to serve doorbells: beside the link,
// and on a goroutine of the client.
func everywhere(t *testing.T, name string, f func(t *testing.T, hosts func(testing.TB) (a, b *Device))) {
	for way, hosts := range map[string]func(testing.TB) (a, b *Device){"beside the link": hosts, "alone": simulated} {
		t.Run(name+", "+way, func(t *testing.T) {
			t.Parallel()
			f(t, hosts)
		})
	}
}
