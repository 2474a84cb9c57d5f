package hca

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// late is a link whose Wait ends with Wake only: as where another goroutine
// always takes the packets before the one that waits has woken up.
type late struct {
	transport.Link
	wake   chan struct{}
	closed chan struct{}
	once   *sync.Once
}

func newLate(l transport.Link) late {
	return late{l, make(chan struct{}, 1), make(chan struct{}), new(sync.Once)}
}

func (l late) Wait() error {
	select {
	case <-l.wake:
		return nil
	case <-l.closed:
		return transport.ErrClosed
	}
}

func (l late) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l late) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Link.Close()
}

// A program polls once and takes a message while another goroutine has long
// been waiting in the link. The acknowledgement leaves though neither looks.
func TestAckLeavesBesideAWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: fabric.PortConfig{Delay: testDelay}})
		a := &host{t: t, dev: New(Config{MinProbe: -1}, la)}
		b := &host{t: t, dev: New(Config{}, newLate(lb))}
		a.equip()
		b.equip()
		a.slow = true
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		b.standBy()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		other, err := b.owner.CreateCQ(4, nil)
		b.must(err)
		go other.Wait(ctx, make([]ib.WC, 1))
		time.Sleep(10 * wake.MaxStandbyTick)
		synctest.Wait()
		if !b.shard().side.has(wake.Dormant) {
			t.Fatal("the receiver does not sleep")
		}
		for range 3 {
			before := b.txPackets()
			a.write(qa, b, 8)
			deliver()
			if !b.dev.Progress() {
				t.Fatal("nothing came")
			}
			b.wantSent("the acknowledgement waits", before, 0)
			time.Sleep(2 * wake.MaxStandbyTick)
			synctest.Wait()
			b.wantSent("nothing looks", before, 1)
			deliver()
			a.waitOK(1)
			time.Sleep(10 * wake.MaxStandbyTick)
		}
	})
}

// What a program posts that was told of a message takes the acknowledgement
// along, which waits for that.
func TestToldProgramTakesAckAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, qb := connected(t, Config{})
		b.takeSide()
		before := b.txPackets()
		a.write(qa, b, 8)
		deliver()
		if !b.dev.Progress() {
			t.Fatal("nothing came")
		}
		b.dev.Program().Tell()
		b.wantSent("the program is told", before, 0)
		b.write(qb, a, 8)
		b.wantSent("it posts", before, 2)
		deliver()
		a.waitOK(1)
	})
}
