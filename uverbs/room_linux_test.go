package uverbs

import (
	"encoding/binary"
	"math"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// sharedArea is the doorbell area as the program sees it.
func (a *app) sharedArea() *bellArea { return (*bellArea)(unsafe.Pointer(&a.mem[0])) }

// waitForCompletions waits as the library does after a poll in vain.
func (a *app) waitForCompletions(seen uint32) {
	area := a.sharedArea()
	area.waiting.Store(1)
	if area.sleeping.Load() != 0 {
		return
	}
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&area.completions)), 0, uintptr(seen), 0, 0, 0)
}

// A program that waits for completions is woken by one, and else by the daemon
// when that goes to sleep: there is no limit on its side here.
func TestWaitsAfterPoll(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(15), b.newCQ(15)
	qa, _ := connected(ib.RC, a, b, ca, cb)
	for id := range uint64(200) {
		seen := a.sharedArea().completions.Load()
		qa.sq.PostSend(fake.SendWR{ID: id, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{qa.a.sge(0, 8)},
			Remote: b.addr(0), RKey: uint32(b.mr.Rkey)})
		a.ringBell(qa.QpHandle)
		for now := seen; now-seen < 2; now = a.sharedArea().completions.Load() {
			a.waitForCompletions(now)
		}
		ca.expect(ib.StatusSuccess, id)
	}
	// A receive that nobody answers: the daemon has nothing to do.
	for range 3 {
		a.ringBell(qa.QpHandle) // it is awake then
		a.waitForCompletions(a.sharedArea().completions.Load())
	}
}

// The daemon says on which processor it is to those who have to know.
func TestToldProcessor(t *testing.T) {
	t.Parallel()
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("with one processor nobody stays awake for programs: run it with GOMAXPROCS=2 or more")
	}
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	if cpu := a.sharedArea().cpu.Load(); cpu != noCPU && cpu > 1<<16 {
		t.Errorf("processor %d", cpu)
	}
	ca, cb := a.newCQ(15), b.newCQ(15)
	qa, _ := connected(ib.RC, a, b, ca, cb)
	eventually(t, "the processor is not told", func() bool {
		a.sharedArea().polling.Store(1) // the daemon stays awake
		a.ringBell(qa.QpHandle)
		return a.sharedArea().cpu.Load() != noCPU
	})
}

// A link that ends is told to programs, and nobody waits for a daemon that does
// not look.
func TestLinkEnds(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	d, _ := devices(t, l, newLink(t))
	a := start(t, d)
	a.must(l.Close())
	a.wantAsync(ib.EventDeviceFatal, portNumber)
	if a.sharedArea().sleeping.Load() == 0 {
		t.Error("the program takes the daemon to be awake")
	}
}

// A doorbell that is in error for ever keeps nobody awake while nobody listens
// to it.
func TestBellInError(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	overflow(t, int(a.c.Bell().Fd()))
	r := d.room()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deafen(a.c, time.Hour)
	var list [1]unix.EpollEvent
	for range 3 { // once it may be told
		n, err := unix.EpollWait(r.fd, list[:], 0)
		if a.must(err); n == 0 {
			return
		}
	}
	t.Error("the link is not waited for")
}

// overflow has the counter of an eventfd be in error: filled, and then counted
// on by asynchronous I/O.
func overflow(t *testing.T, bell int) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var context uintptr
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0); e != 0 {
		t.Skipf("this system has no asynchronous I/O (CONFIG_AIO), or no room for more (sysctl fs.aio-max-nr): %v", e)
	}
	defer unix.Syscall(unix.SYS_IO_DESTROY, context, 0, 0)
	if _, err := unix.Write(bell, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	request := struct {
		data              uint64
		key, rw           uint32
		opcode            uint16
		priority          int16
		fd                uint32
		buf, n            uint64
		off, reserved     uint64
		flags, toldByBell uint32
	}{fd: uint32(f.Fd()), buf: uint64(uintptr(unsafe.Pointer(&buf[0]))), n: uint64(len(buf)), flags: 1, toldByBell: uint32(bell)}
	list := [1]uintptr{uintptr(unsafe.Pointer(&request))}
	if _, _, e := unix.Syscall(unix.SYS_IO_SUBMIT, context, 1, uintptr(unsafe.Pointer(&list))); e != 0 {
		t.Skipf("this system has no asynchronous I/O (CONFIG_AIO), or no room for more (sysctl fs.aio-max-nr): %v", e)
	}
	eventually(t, "the doorbell is not in error", func() bool {
		p := []unix.PollFd{{Fd: int32(bell)}}
		unix.Poll(p, 0)
		return p[0].Revents&unix.POLLERR != 0
	})
	runtime.KeepAlive(&request)
	runtime.KeepAlive(buf)
}

// However many threads wait, a completion wakes some.
func TestCrowdWaits(t *testing.T) {
	t.Parallel()
	area, err := newArea(1<<12, nil)
	if err != nil {
		t.Fatal(err)
	}
	const threads = 3 * mostWoken
	var begun atomic.Int32
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			begun.Add(1)
			unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&area.completions)), 0, 0, 0, 0, 0)
		})
	}
	eventually(t, "threads do not wait", func() bool { return begun.Load() == threads })
	for woken := 0; woken < threads; {
		n := area.wake()
		if n > mostWoken {
			t.Errorf("%d threads are woken at once", n)
		}
		woken += n
	}
	wg.Wait()
	if err := area.close(); err != nil {
		t.Error(err)
	}
}

// A program with many queue pairs has others have their turn, and each of its
// queue pairs has one.
func TestTurnsOfQueuePairs(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := open(t, d, Quota{RingBytes: 64 << 20})
	a.getContext()
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	cq := a.newCQ(15)
	for range 256 {
		a.newQP(ib.RC, cq, nil)
	}
	area := a.sharedArea()
	d.room().mu.Lock()
	defer d.room().mu.Unlock()
	ring := func(words ...int) {
		for _, w := range words {
			area.bells[w].Store(^uint64(0))
			area.summary[0].Or(1 << w)
		}
	}
	rung := func() (n int) {
		for w := range 4 {
			n += bits.OnesCount64(area.bells[w].Load())
		}
		return n
	}
	ring(0, 1, 2, 3)
	for range 3 {
		before := rung()
		if !a.c.serveOnce() || before-rung() > 64+servedAtOnce {
			t.Fatalf("%d queue pairs are served at once", before-rung())
		}
		ring(0)
	}
	for w := 1; w < 3; w++ {
		if area.bells[w].Load() != 0 {
			t.Errorf("word %d has no turn", w)
		}
	}
	for range 3 {
		a.c.serveOnce()
	}
	if a.c.serveOnce() || a.c.rung() || rung() != 0 {
		t.Errorf("%d queue pairs were not served", rung())
	}
}

// Who reads its events into memory that does not come holds its pipe, and who
// writes there. A program of another user does so to nobody but itself.
func TestEventsOfAnotherUser(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	own, other, b := start(t, da), startAs(t, da, os.Geteuid()+1), start(t, db)
	co, cs, cb := own.newCQ(15), other.newCQ(15), b.newCQ(15)
	qo, _ := connected(ib.RC, own, b, co, cb)
	qs, _ := connected(ib.RC, other, b, cs, cb)
	write := func(q *appQP, id uint64) {
		q.sq.PostSend(fake.SendWR{ID: id, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{q.a.sge(0, 8)},
			Remote: b.addr(0), RKey: uint32(b.mr.Rkey)})
		q.a.ringBell(q.QpHandle)
	}
	var held *pipe
	for _, p := range other.c.channels.all() {
		held = p
	}
	held.mu.Lock()
	release := sync.OnceFunc(held.mu.Unlock)
	defer release()
	cs.arm()
	write(qs, 1)
	eventually(t, "the program has no completion", func() bool { return cs.Producer() != cs.Consumer() })
	for id := range uint64(50) {
		co.arm()
		write(qo, id)
		own.readEvent(co.channel, abi.CompEventLen)
		co.expect(ib.StatusSuccess, id)
	}
	release()
	other.readEvent(cs.channel, abi.CompEventLen)
	cs.expect(ib.StatusSuccess, 1)
}
