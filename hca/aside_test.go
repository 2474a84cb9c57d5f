package hca

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/ib"
)

// The handler of a queue that is closed while it is to be called learns of that
// once, and nothing more.
func TestHandlerOfAClosedQueue(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	var ends atomic.Int32
	cq, err := o.CreateCQ(4, nil, WithHandler(func(open bool) {
		if !open {
			ends.Add(1)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	s := o.dev.shards[0]
	s.lock()
	cq.Complete(&ib.WC{ID: 1})
	unlockBriefly(s) // the handler is to be called
	cq.Close()
	s.lock()
	s.unlock()
	o.dev.Close()
	if n := ends.Load(); n != 1 {
		t.Errorf("the handler learned of the end %d times", n)
	}
}

// Who waits on a channel receives for the device, in place of a program that
// waits for a completion. On a channel that is aside it does not.
func TestChannelAside(t *testing.T) {
	t.Parallel()
	for _, aside := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := newTestOwner(t)
			ch, err := o.CreateCompChannel(aside)
			if err != nil {
				t.Fatal(err)
			}
			cq, err := o.CreateCQ(4, ch)
			if err != nil {
				t.Fatal(err)
			}
			cq.Arm(false)
			got := make(chan *CQ)
			go func() {
				cq, _ := ch.Get(t.Context())
				got <- cq
			}()
			synctest.Wait()
			if none := ch.parker.shard == nil; none != aside {
				t.Errorf("aside %v: who waits has a link to wait in: %v", aside, !none)
			}
			complete(cq, ib.WC{ID: 1})
			if <-got != cq {
				t.Errorf("aside %v: no notification", aside)
			}
			o.dev.Close()
		})
	}
}
