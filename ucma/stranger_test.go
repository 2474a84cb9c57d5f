//go:build linux

package ucma_test

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/ucma"
	"github.com/gosoftroce/rocev2/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
	"github.com/gosoftroce/rocev2/verbs"
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

// What a user has in one open file he cannot have in another one, wherever his
// IDs go.
func TestQuotaOfAUser(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	user := quota.New("user 7", nil, quota.Limits{quota.IDs: 3})
	q := ucma.Quota{Account: user}
	p := &program{t: t, pid: 2000}
	p.c = p.open(q, h[0])
	other := &program{t: t, c: p.open(q, h[0])}
	id := p.create(cm.UDP, clientUID)
	p.do(abi.BindIP, 0, p.bindCmd(id, at(h[0], 0)))
	join1 := p.do(abi.JoinIPMulticast, 4, response, u64(9), in6(netip.MustParseAddrPort("239.1.2.3:0")), u32(id))
	p.fails("no such ID", uabi.ENOENT, abi.JoinIPMulticast, 4, response, u64(9), in6(at(h[0], 0)), u32(1<<20))
	second := other.create(cm.TCP, 2)
	for _, c := range []*program{p, other} {
		c.fails("one too many", uabi.ENOMEM, abi.CreateID, 4, u64(1), response, u16(uint16(cm.TCP)), make([]byte, 6))
	}
	other.do(abi.MigrateID, 4, response, u32(id), u32(0))
	must(t, p.c.Close())
	if n := user.Have(quota.IDs); n != 3 {
		t.Errorf("%d IDs and groups; want 3", n)
	}
	other.do(abi.LeaveMulticast, 4, response, join1, u32(0))
	other.destroy(second)
	if n := user.Have(quota.IDs); n != 1 {
		t.Errorf("%d IDs and groups; want 1", n)
	}
	must(t, other.c.Close())
	if !user.Empty() {
		t.Error("IDs are left without a file")
	}
}

// A request for which there is no room holds up nothing, and comes again.
func TestRequestsBeyondTheQuota(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1", "192.0.2.2")
	client, server := start(t, h[0]), &program{t: t, pid: 2001}
	server.c = server.open(ucma.Quota{IDs: 2}, h[1])
	_, port := server.listenOn(cm.TCP, listenerUID, at(h[1], 0), 5)
	for i := range uint64(2) {
		client.connect(client.resolved(cm.TCP, 200+i, at(h[1], port)), verbs.QPN(500+i), "")
	}
	first := server.want(cm.EventConnectRequest, listenerUID)
	if !readable(t, server.c, 60_000) {
		t.Fatal("the second request does not come")
	}
	server.idle()
	server.destroy(first.id())
	if e := server.want(cm.EventConnectRequest, listenerUID); e.qpn() == first.qpn() {
		t.Error("the first request comes again")
	}
}

// Events that a program does not take are no more than the daemon has room for.
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
	no, yes := func() bool { return false }, func() bool { return true }
	write := func(low func() bool, n abi.Number, body []byte) uabi.Errno {
		return p.c.CommandOf(low, join(u32(uint32(n)), u16(uint16(len(body))), u16(0), body)).Errno
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

// A program connects no queue pair of another user: the peer that this one is
// connected to would take it for one that has begun anew, and end it.
func TestQueuePairOfAnother(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1", "192.0.2.2")
	victim, server := start(t, h[0]), start(t, h[1])
	qv, qs := h[0].qp(verbs.RC), h[1].qp(verbs.RC)
	_, port := server.listenOn(cm.TCP, serverUID, at(h[1], 0), 5)
	cv := victim.resolved(cm.TCP, clientUID, at(h[1], port))
	victim.connect(cv, qv.QPN(), "")
	request := server.want(cm.EventConnectRequest, serverUID)
	server.accept(request.id(), serverUID, qs.QPN(), "")
	victim.want(cm.EventConnectResponse, clientUID)
	victim.establish(cv)
	server.want(cm.EventEstablished, serverUID)

	thief := &program{t: t, pid: 1002, uid: 1, owns: func(d *verbs.Device, n verbs.QPN) bool { return d == h[0].dev && n != qv.QPN() }}
	thief.c = thief.open(ucma.Quota{}, h[0])
	ct := thief.resolved(cm.TCP, clientUID, at(h[1], port))
	thief.fails("the queue pair of another", uabi.EINVAL, abi.Connect, 0, param(qv.QPN(), ""), u32(ct), u32(0), u64(0))
	thief.connect(ct, h[0].qp(verbs.RC).QPN(), "")
	server.want(cm.EventConnectRequest, serverUID) // and no DISCONNECTED before
	thief.fails("the same to accept", uabi.EINVAL, abi.Accept, 0, u64(1), param(qv.QPN(), ""), u32(ct), u32(0), u64(0))
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
