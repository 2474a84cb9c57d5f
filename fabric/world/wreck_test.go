package world_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Programs have what they use closed by others, by seed: queue pairs with
// packets under way, memory that is being read, queues and channels that others
// wait for, whole devices, which others open again. Nothing panics or waits for
// ever, no packet is forgotten, and it is all the same the second time.
func TestWrecks(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if testing.Short() || race.Enabled {
		seeds = 5
	}
	for seed := range seeds {
		var first string
		for again := range 2 {
			if got := wreck(t, seed); again == 0 {
				first = got
			} else if got != first {
				t.Errorf("seed %d: %s, and before %s", seed, got, first)
			}
		}
	}
}

func wreck(t *testing.T, seed uint64) string {
	w := newWorld(t, world.Config{Network: clos(t, 1e6*uint32(seed%2), seed), Seed: seed, Device: verbs.Config{Loopback: seed%3 == 0}})
	for pair := range 10 {
		r := event.NewRand(seed, uint64(pair))
		a, b := boxesOf(simulated{w})
		for i, boxes := range []boxes{a, b} {
			must(t, w.Go(int(r.Uint64n(4)), func(ctx context.Context, dev *verbs.Device) error {
				doomed(ctx, w, dev, boxes, event.NewRand(seed, uint64(100+2*pair+i)))
				return nil // something is always closed
			}))
		}
	}
	for i := range 3 {
		r := event.NewRand(seed, uint64(200+i))
		must(t, w.Go(4+i, func(ctx context.Context, dev *verbs.Device) error {
			for range 5 {
				dials(ctx, w, dev, &r)
			}
			return nil
		}))
	}
	r := event.NewRand(seed, 300)
	must(t, w.Go(0, func(ctx context.Context, _ *verbs.Device) error {
		for range 4 {
			if err := w.Sleep(ctx, time.Duration(r.Uint64n(300_000))); err != nil {
				return err
			}
			dev, err := w.Device(int(r.Uint64n(6)))
			if err != nil {
				return err
			}
			if err := dev.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
	// Where no receive is left, a peer is asked for ever: so not by Run.
	if err := w.RunFor(200 * time.Millisecond); err != nil || w.Running() > 0 {
		t.Errorf("seed %d: %d programs are left: %v%s", seed, w.Running(), err, w.Waiting())
	}
	must(t, w.Check())
	return fmt.Sprintf("%x at %v", w.Digest(), w.Now())
}

// doomed posts what it can, and closes something of its own, while another one
// waits for its completions.
func doomed(ctx context.Context, w *world.World, dev *verbs.Device, b boxes, r event.Rand) {
	const size = 1 << 16
	ctx, cancel := w.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	s, err := newSide(dev, make([]byte, size))
	if err != nil {
		return
	}
	theirs, err := s.meet(ctx, b)
	if err != nil {
		return
	}
	tasks := verbs.HCA(dev).Tasks()
	over := tasks.NewEvent()
	tasks.Go(func() {
		defer over.Set()
		for s.await(ctx, 1) == nil {
		}
	})
	for range 1 + r.Uint64n(10) {
		for range 1 + r.Uint64n(5) {
			op := []verbs.Opcode{verbs.OpWrite, verbs.OpRead, verbs.OpSend}[r.Uint64n(3)]
			n := int(r.Uint64n(size))
			_ = s.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.Slice(0, size)}})
			_ = s.qp.PostSend(verbs.SendWR{Opcode: op, SGList: []verbs.SGE{s.mr.Slice(0, n)}, Remote: theirs.At(0), Signaled: true})
		}
		if w.Sleep(ctx, time.Duration(r.Uint64n(20_000))) != nil {
			return
		}
	}
	switch r.Uint64n(5) {
	case 0:
		s.qp.Close()
	case 1:
		s.mr.Close()
	case 2:
		s.cq.Close()
	case 3:
		s.mr.Close()
		s.qp.Close()
		s.cq.Close()
		s.pd.Close()
	}
	over.Wait(ctx)
}

// dials listens, or dials a host that may listen.
func dials(ctx context.Context, w *world.World, dev *verbs.Device, r *event.Rand) {
	ctx, cancel := w.WithTimeout(ctx, time.Duration(1+r.Uint64n(2_000_000)))
	defer cancel()
	s, err := newSide(dev, make([]byte, 64))
	if err != nil {
		return
	}
	defer s.qp.Close()
	var conn *cm.Conn
	if r.Uint64n(2) == 0 {
		ln, err := cm.Listen(dev, netip.AddrPortFrom(dev.Addr(), service), cm.ListenConfig{})
		if err != nil {
			return
		}
		defer ln.Close()
		q, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		if r.Uint64n(3) == 0 {
			q.Reject(nil)
			return
		}
		conn, err = q.Accept(ctx, s.qp, cm.AcceptConfig{})
		if err != nil {
			return
		}
	} else if conn, err = cm.Dial(ctx, s.qp, netip.AddrPortFrom(world.Addr(4+int(r.Uint64n(3))), service), cm.DialConfig{}); err != nil {
		return
	}
	if r.Uint64n(2) == 0 {
		conn.Wait(ctx)
	}
	if err := conn.Disconnect(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		conn.Close()
	}
}
