package hca

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/transport"
)

// polled is a link for threads that wait by poll(2).
type polled struct{ *meddler }

func (polled) BeginPoll(fds []int) ([]int, time.Duration) { return append(fds, 0), 0 }
func (polled) EndPoll()                                   {}
func (polled) Files() []int                               { return nil }

// A thread that an acknowledgement has woken takes the answer, too, which comes
// right after.
func TestEndWaitTakesTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: fabric.PortConfig{Delay: testDelay}})
		m := &meddler{Link: la}
		a := &host{t: t, dev: New(Config{MinProbe: -1}, polled{m})}
		b := &host{t: t, dev: New(Config{}, lb)}
		a.equip()
		b.equip()
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		a.standBy()
		fds, _, receives := a.dev.Program().BeginWait(nil, nil)
		if !receives || len(fds) == 0 {
			t.Fatal("the thread does not receive")
		}
		a.dev.Program().Posts()
		a.write(qa, b, 8)
		deliver()
		deliver() // the acknowledgement
		answered := false
		m.received = func(batch *transport.RxBatch) {
			if batch.Len() > 0 && !answered {
				answered = true
				b.write(qb, a, 8)
				deliver()
			}
		}
		a.dev.Program().EndWait(true)
		m.received = nil
		if !answered {
			t.Fatal("no acknowledgement has come")
		}
		if !wake.Habit(a.shard().side.habit.Load()).Asked() {
			t.Error("the answer lies in the link")
		}
		a.waitOK(1)
		b.waitOK(1)
	})
}
