package hca

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/transport"
)

// pollable is a link that threads can wait for by poll(2). The test says when
// there is something.
type pollable struct {
	transport.Link
	begun int // BeginPoll without EndPoll
	files []int
	most  time.Duration
}

func (p *pollable) BeginPoll(fds []int) ([]int, time.Duration) {
	p.begun++
	return append(fds, p.files...), p.most
}

func (p *pollable) EndPoll()     { p.begun-- }
func (p *pollable) Files() []int { return p.files }

// waiter returns two connected hosts, of which the first has a pollable link,
// and a receiver that stands by.
func waiter(t *testing.T) (a, b *host, qa, qb *QP, link *pollable) {
	t.Helper()
	la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: fabric.PortConfig{Delay: testDelay}})
	link = &pollable{Link: la, files: []int{7, 8}, most: time.Millisecond}
	a, b = &host{t: t, dev: New(Config{MinProbe: -1}, link)}, &host{t: t, dev: New(Config{MinProbe: -1}, lb)}
	a.slow, b.slow = true, true
	a.equip()
	b.equip()
	qa, qb = a.newQP(), b.newQP()
	a.connect(qa, testAddrB, qb.QPN())
	b.connect(qb, testAddrA, qa.QPN())
	a.standBy()
	return a, b, qa, qb, link
}

// received returns how many packets the host's link has received.
func received(h *host) uint64 { return h.shard().link.Stats().RxPackets }

// A thread that waits receives when it comes back, and nothing before does.
func TestThreadReceives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, _, link := waiter(t)
		fds, most, receives := a.dev.Program().BeginWait([]int{3}, nil)
		if len(fds) != 3 || fds[0] != 3 || fds[1] != 7 || fds[2] != 8 || most != time.Millisecond || !receives || link.begun != 1 {
			t.Fatalf("files %v, for %v, receives: %v", fds, most, receives)
		}
		before := received(a)
		a.write(qa, b, 8)
		deliver()
		deliver()
		if received(a) != before {
			t.Error("something has received beside the thread")
		}
		a.dev.Program().EndWait(receives)
		if link.begun != 0 || received(a) != before+1 {
			t.Error("the thread has received nothing")
		}
		a.write(qa, b, 8) // the receiver takes over when no thread waits
		time.Sleep(time.Second)
		synctest.Wait()
		if received(a) != before+2 {
			t.Error("nothing receives after the thread")
		}
		a.waitOK(2)
	})
}

// Of two threads that wait one receives. The other one may come back first.
func TestOneThreadReceives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, _, link := waiter(t)
		_, _, first := a.dev.Program().BeginWait(nil, nil)
		fds, most, second := a.dev.Program().BeginWait(nil, nil)
		if !first || second || len(fds) != 0 || most != 0 || link.begun != 1 {
			t.Fatalf("the first receives: %v; the second: %v, with %v", first, second, fds)
		}
		a.dev.Program().EndWait(second)
		if link.begun != 1 {
			t.Error("the second has ended the wait of the first")
		}
		a.dev.Program().EndWait(first)
		if n := a.shard().side.now().Threads(); n != 0 || link.begun != 0 {
			t.Errorf("%d threads wait", n)
		}
		_, _, again := a.dev.Program().BeginWait(nil, nil)
		_, _, beside := a.dev.Program().BeginWait(nil, nil)
		a.dev.Program().EndWait(again) // then the receiver receives for the one that is left
		before := received(a)
		a.write(qa, b, 8)
		deliver()
		deliver()
		if received(a) != before+1 {
			t.Error("nothing receives for the thread that is left")
		}
		a.dev.Program().EndWait(beside)
	})
}

// A thread does not sleep where what it waits for has come, or where another
// one has just left an answer for the next call.
func TestThreadDoesNotSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _, _, _, link := waiter(t)
		for what, over := range map[string]func() bool{
			"it has come": func() bool { return true },
			"an answer waits": func() bool {
				s := a.shard()
				s.lock()
				s.side.on(wake.Defers)
				s.unlock()
				return false
			},
		} {
			fds, most, receives := a.dev.Program().BeginWait(nil, over)
			if len(fds) != 0 || most != 0 || !receives || link.begun != 0 {
				t.Errorf("%s: files %v, for %v, receives: %v", what, fds, most, receives)
			}
			link.begun++ // EndPoll may come without BeginPoll
			a.dev.Program().EndWait(receives)
			a.standBy()
		}
	})
}

// What waits for the program's next call leaves before a thread sleeps.
func TestAckLeavesBeforeThreadSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, _, qb, _ := waiter(t)
		b.write(qb, a, 8)
		for range 20 { // the program polls all the time
			if time.Sleep(testDelay / 10); a.dev.Program().Poll() {
				break
			}
		}
		before := a.txPackets()
		if !a.shard().side.has(wake.Late) {
			t.Fatal("no acknowledgement waits")
		}
		fds, _, receives := a.dev.Program().BeginWait(nil, nil)
		if len(fds) != 2 || !receives {
			t.Errorf("files %v, receives: %v", fds, receives)
		}
		a.wantSent("the acknowledgement", before, 1)
		a.dev.Program().EndWait(receives)
		deliver()
		b.waitOK(1)
	})
}

// For a link without files the receiver receives.
func TestThreadOfLinkWithoutFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newMeddled(t, Config{}, &meddler{})
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		fds, most, receives := a.dev.Program().BeginWait(nil, nil)
		if len(fds) != 0 || most != 0 || receives {
			t.Errorf("files %v, for %v, receives: %v", fds, most, receives)
		}
		before := received(a)
		a.write(qa, b, 8)
		time.Sleep(time.Second)
		synctest.Wait()
		if received(a) != before+1 {
			t.Error("nothing receives")
		}
		a.dev.Program().EndWait(receives)
	})
}

// Later calls when the lock of the shard is given up, each once.
func TestLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := newMeddled(t, Config{}, &meddler{})
		s := a.shard()
		calls := 0
		s.lock()
		for range 3 {
			a.dev.Later(func() {
				if !s.mu.TryLock() {
					t.Error("the lock is held")
					return
				}
				s.mu.Unlock()
				calls++
				if calls == 3 { // what it brings itself is called, too
					s.lock()
					a.dev.Later(func() { calls++ })
					s.unlock()
				}
			})
		}
		if calls != 0 {
			t.Error("it is called at once")
		}
		s.unlock()
		if calls != 4 {
			t.Errorf("%d calls, not 4", calls)
		}
		s.lock()
		s.unlock() //nolint:staticcheck // nothing is left
		if calls != 4 {
			t.Errorf("%d calls, not 4", calls)
		}
	})
}
