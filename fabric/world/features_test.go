package world_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// What a program has posted goes out though it closes the queue pair, or the
// device, at once.
func TestClosingSendsWhatWasPosted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why   string
		close func(*verbs.Device, *side) error
	}{
		{"the queue pair", func(_ *verbs.Device, s *side) error { return s.qp.Close() }},
		{"the device", func(dev *verbs.Device, _ *side) error { return dev.Close() }},
	} {
		w := newWorld(t, world.Config{Network: star(2)})
		a, b := boxesOf(simulated{w})
		must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
			s, err := newSide(dev, make([]byte, 20000))
			if err != nil {
				return err
			}
			if _, err := s.meet(ctx, a); err != nil {
				return err
			}
			if err := s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{s.mr.Slice(0, 20000)}}); err != nil {
				return err
			}
			return c.close(dev, &s)
		}))
		var got int
		must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
			s, err := newSide(dev, make([]byte, 20000))
			if err != nil {
				return err
			}
			if err := s.qp.Init(); err != nil {
				return err
			}
			if err := s.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.Slice(0, 20000)}}); err != nil {
				return err
			}
			if _, err := s.meet(ctx, b); err != nil {
				return err
			}
			var wc [1]verbs.WC
			_, err = s.cq.Wait(ctx, wc[:])
			got = int(wc[0].ByteLen)
			return err
		}))
		must(t, w.Run())
		if got != 20000 {
			t.Errorf("after Close of %s %d bytes have come", c.why, got)
		}
	}
}

// A program waits for an event of its device, and for what a handler finds.
func TestEventsAndHandlers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	a, b := boxesOf(simulated{w})
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, make([]byte, 4096))
		if err != nil {
			return err
		}
		theirs, err := s.meet(ctx, a)
		if err != nil {
			return err
		}
		for i, op := range []verbs.Opcode{verbs.OpWriteImm, verbs.OpWrite} { // the second is outside
			at := 4096 * i
			r := theirs
			r.Addr += uint64(at)
			wr := verbs.SendWR{Opcode: op, SGList: []verbs.SGE{s.mr.Slice(0, 64)}, Remote: r.At(0), Signaled: true}
			if err := s.qp.PostSend(wr); err != nil {
				return err
			}
			if err := s.await(ctx, 1); (err != nil) != (at > 0) {
				t.Errorf("a WRITE at %d: %v", at, err)
			}
		}
		return nil
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, make([]byte, 4096))
		if err != nil {
			return err
		}
		var found []verbs.WC
		ready := make(chan struct{}, 1)
		s.cq, err = dev.CreateCQ(16, verbs.WithHandler(func(open bool) {
			var wc [4]verbs.WC
			for n := s.cq.Poll(wc[:]); n > 0 && open; n = s.cq.Poll(wc[:]) {
				found = append(found, wc[:n]...)
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
		if err := s.qp.Init(); err != nil {
			return err
		}
		if err := s.qp.PostRecv(verbs.RecvWR{ID: 7}); err != nil {
			return err
		}
		if _, err := s.meet(ctx, b); err != nil {
			return err
		}
		if err := s.cq.Await(ctx, ready); err != nil {
			return err
		}
		if len(found) != 1 || found[0].ID != 7 {
			t.Errorf("the handler has found %+v", found)
		}
		e, err := dev.AsyncEvent(ctx)
		for err == nil && e.Event == verbs.EventCommEstablished {
			e, err = dev.AsyncEvent(ctx)
		}
		if err == nil && e.Event != verbs.EventQPAccessError {
			t.Errorf("the event is %v", e)
		}
		return err
	}))
	must(t, w.Run())
}

// A cut cable ends a connection in virtual time.
func TestCutCable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	a, b := boxesOf(simulated{w})
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, make([]byte, 64))
		if err != nil {
			return err
		}
		theirs, err := s.meet(ctx, a)
		if err != nil {
			return err
		}
		w.Network().SetCable(1, false)
		begun := w.Now()
		wr := verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, 64)}, Remote: theirs.At(0), Signaled: true}
		if err := s.qp.PostSend(wr); err != nil {
			return err
		}
		if err := s.await(ctx, 1); !errors.Is(err, verbs.StatusRetryExcErr) {
			t.Errorf("over a cable that is cut: %v", err)
		}
		if d := w.Now() - begun; d < 500*time.Millisecond || d > 2*time.Second {
			t.Errorf("noticed after %v", d)
		}
		return nil
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		return target(ctx, dev, boxes{b.mine, b.theirs}, 64)
	}))
	if err := w.Run(); !errors.Is(err, world.ErrStuck) { // the target waits for a farewell
		t.Errorf("Run says %v", err)
	}
}

// Two queue pairs of one device reach each other, by the cable or inside.
func TestLoopback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(1), Device: verbs.Config{Loopback: true}})
	a, b := boxesOf(simulated{w})
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error { return guide(ctx, dev, a) }))
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error { return guide(ctx, dev, b) }))
	must(t, w.Run())
	dev, err := w.Device(0)
	must(t, err)
	if st := dev.Stats(); st.LoopPackets == 0 || st.Link.TxPackets != 0 {
		t.Errorf("%d packets passed inside, and %d on the cable", st.LoopPackets, st.Link.TxPackets)
	}
}

// Close ends programs that wait, and those that poll for ever.
func TestCloseEndsPrograms(t *testing.T) {
	t.Parallel()
	w, err := world.New(world.Config{Network: star(2)})
	must(t, err)
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		cq, err := dev.CreateCQ(1)
		must(t, err)
		for cq.Poll(make([]verbs.WC, 1)) == 0 {
		}
		return nil
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error { return w.Sleep(ctx, time.Hour) }))
	must(t, w.RunFor(time.Millisecond))
	if n := w.Running(); n != 2 {
		t.Errorf("%d programs run, want 2", n)
	}
	if err := w.Close(); !errors.Is(err, world.ErrEnded) {
		t.Errorf("Close says %v", err)
	}
	if _, err := w.Device(0); !errors.Is(err, world.ErrEnded) {
		t.Errorf("a closed world has devices: %v", err)
	}
}

// What is asked for wrongly is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	if _, err := world.New(world.Config{}); err == nil {
		t.Error("a world without hosts")
	}
	c := star(2)
	c.Hosts, c.Cables[1].A = 3, 0 // hosts 1 and 2 have no cable
	c.Cables[1].B = 3
	c.Cables[0].B = 3
	c.Tables[0].Set = make([]uint16, 3)
	w := newWorld(t, world.Config{Network: c})
	for _, host := range []int{-1, 1, 3} {
		if err := w.Go(host, nil); err == nil {
			t.Errorf("a program on host %d", host)
		}
	}
	dev, err := w.Device(0)
	must(t, err)
	cq, err := dev.CreateCQ(1)
	must(t, err)
	if _, err := cq.Wait(t.Context(), make([]verbs.WC, 1)); err == nil {
		t.Error("who is no program waits")
	}
	if err := w.Sleep(t.Context(), 1); err == nil {
		t.Error("who is no program sleeps")
	}
}
