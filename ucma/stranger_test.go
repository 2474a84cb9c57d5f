//go:build linux

package ucma_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/ucma"
	"github.com/gosoftroce/rocev2/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
)

// A user who takes all numbers of IDs that there are takes none of others'.
func TestNumbersOfUsers(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	greedy, other := &program{t: t, pid: 1000, uid: 4711}, &program{t: t, pid: 1001, uid: 4712}
	c := greedy.open(ucma.Quota{IDs: 1 << 20}, h[0])
	create := join(u64(1), response, u16(uint16(cm.TCP)), pad(nil, 6))
	n := 0
	for raw(c, abi.CreateID, 4, create).Errno == 0 {
		n++
	}
	if n != 1<<16 {
		t.Errorf("%d IDs", n)
	}
	if r := raw(other.open(ucma.Quota{}, h[0]), abi.CreateID, 4, create); r.Errno != 0 {
		t.Errorf("another user: errno %d", r.Errno)
	}
	if r := raw(greedy.open(ucma.Quota{}, h[0]), abi.CreateID, 4, create); r.Errno != uabi.ENOMEM {
		t.Errorf("the same user: errno %d", r.Errno)
	}
}

// A program that writes to the pipe that shows it events harms itself alone.
func TestPipeOfThief(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	fd, err := syscall.Open(fmt.Sprintf("/proc/self/fd/%d", p.c.Ready().Fd()), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	must(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for b := make([]byte, 1<<16); ; {
				syscall.Write(fd, b)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	id := p.create(cm.TCP, clientUID)
	for range 20 {
		p.do(abi.ResolveIP, 0, make([]byte, 28), in6(at(h[0], 1)), u32(id), u32(0))
		p.want(cm.EventAddrResolved, clientUID)
		p.destroy(id)
		id = p.create(cm.TCP, clientUID)
	}
	must(t, p.c.Close())
	close(stop)
	wg.Wait()
	syscall.Close(fd)
}
