package uverbs

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
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
