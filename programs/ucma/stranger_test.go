//go:build linux

package ucma_test

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// Events that a program does not take are bounded.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	id := p.create(cm.TCP, clientUID)
	resolve := join(make([]byte, 28), in6(netip.MustParseAddrPort("[2001:db8::1]:9")), u32(id), u32(0))
	n := 0
	for ; n < 10000; n++ {
		if r := raw(p.c, abi.ResolveIP, 0, resolve); r.Errno == uabi.ENOMEM {
			break
		} else if r.Errno != 0 {
			t.Fatal(r.Errno)
		}
	}
	if n < 16 || n == 10000 {
		t.Errorf("%d events wait", n)
	}
	for range n {
		p.want(cm.EventAddrError, clientUID)
	}
	p.do(abi.ResolveIP, 0, resolve)
}

// Ports below 1024 are for processes with the right to them, as in the kernel.
func TestLowPorts(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	const no, yes = true, false
	write := func(low bool, n abi.Number, body []byte) uabi.Errno {
		p.low.Store(low)
		return p.c.Command(join(u32(uint32(n)), u16(uint16(len(body))), u16(0), body)).Errno
	}
	for port, want := range map[uint16]uabi.Errno{0: 0, 1: uabi.EACCES, 1023: uabi.EACCES, 1024: 0} {
		for _, a := range []netip.AddrPort{at(h[0], port), netip.AddrPortFrom(netip.IPv4Unspecified(), port)} {
			id := p.create(cm.TCP, 1)
			if got := write(no, abi.BindIP, p.bindCmd(id, a)); got != want {
				t.Errorf("%v: %v; want %v", a, got, want)
			}
			if want != 0 {
				if got := write(no, abi.ResolveIP, join(in6(a), in6(at(h[0], 5000)), u32(id), u32(0))); got != want {
					t.Errorf("resolve from %v: %v; want %v", a, got, want)
				}
				if got := write(yes, abi.BindIP, p.bindCmd(id, a)); got != 0 {
					t.Errorf("%v, with the right to it: %v", a, got)
				}
			}
			p.destroy(id)
		}
	}
}

// A program that writes to the pipe that shows it events harms itself alone.
func TestPipeOfThief(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	fd, err := syscall.Open(fmt.Sprintf("/proc/self/fd/%d", p.c.Ready()), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
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
