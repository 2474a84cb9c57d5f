package world_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// A notification that moderation holds back comes when its time is over, to the
// nanosecond.
func TestModerationInVirtualTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	a, b := boxesOf(simulated{w})
	const period = 50 * time.Microsecond
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		ch, err := dev.CreateCompChannel()
		if err != nil {
			return err
		}
		s, err := newSide(dev, make([]byte, 64))
		if err != nil {
			return err
		}
		if s.cq, err = dev.CreateCQ(16, verbs.WithChannel(ch), verbs.WithTimestamps()); err != nil {
			return err
		}
		if s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq}); err != nil {
			return err
		}
		if err := s.cq.SetModeration(100, period); err != nil {
			return err
		}
		theirs, err := s.meet(ctx, a)
		if err != nil {
			return err
		}
		s.cq.Arm(false)
		if err := s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: theirs.At(0), Signaled: true}); err != nil {
			return err
		}
		if _, err := ch.Get(ctx); err != nil {
			return err
		}
		var wc [1]verbs.WC
		s.cq.Poll(wc[:])
		if d := time.Duration(dev.Now() - wc[0].Timestamp); d != period {
			t.Errorf("the notification came %v after the completion, want %v", d, period)
		}
		_, err = a.swap(ctx, card{})
		return err
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error { return target(ctx, dev, b, 64) }))
	must(t, w.Run())
}

// A handler is called for what has completed inside of the device, when its
// port asks for a packet, and what it posts goes out.
func TestHandlerOfLoopback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(1), Device: verbs.Config{Loopback: true}})
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, make([]byte, 64))
		if err != nil {
			return err
		}
		write := verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: s.mr.RemoteAt(0), Signaled: true}
		found, ready := 0, make(chan struct{}, 1)
		s.cq, err = dev.CreateCQ(16, verbs.WithHandler(func(bool) {
			var wc [1]verbs.WC
			for s.cq.Poll(wc[:]) > 0 {
				if found++; found < 10 {
					must(t, s.qp.PostSend(write))
					continue
				}
				ready <- struct{}{}
				s.cq.Nudge()
			}
		}))
		if err != nil {
			return err
		}
		if s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq}); err != nil {
			return err
		}
		if err := s.qp.Connect(ctx, s.qp.Endpoint()); err != nil {
			return err
		}
		if err := s.qp.PostSend(write); err != nil {
			return err
		}
		err = s.cq.Await(ctx, ready)
		if w.Now() > 0 {
			t.Errorf("inside of the device it took %v", w.Now())
		}
		return err
	}))
	must(t, w.Run())
}

// Programs that wait for queues of a device that another one closes go on in
// the order in which the queues were made.
func TestOrderOfClosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(1)})
	dev, err := w.Device(0)
	must(t, err)
	var order []int
	const n = 20
	for i := range n {
		cq, err := dev.CreateCQ(1)
		must(t, err)
		must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
			if err := w.Sleep(ctx, time.Duration(n-i)); err != nil {
				return err
			}
			if _, err := cq.Wait(ctx, make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("queue %d: %v", i, err)
			}
			order = append(order, i)
			return nil
		}))
	}
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		if err := w.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return dev.Close()
	}))
	must(t, w.Run())
	if len(order) != n || !slices.IsSorted(order) {
		t.Errorf("the programs went on in the order %v", order)
	}
}
