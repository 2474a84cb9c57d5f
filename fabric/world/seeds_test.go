package world_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// Pairs of programs do by seed what comes into their mind, over a network that
// loses packets and whose cables fail now and then. What they have written and
// read is right, none is left waiting, no packet is forgotten, and it is all
// the same the second time.
func TestSeeds(t *testing.T) {
	t.Parallel()
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		var first string
		for again := range 2 {
			w := newWorld(t, world.Config{Network: clos(t, 1e6*uint32(seed%3), seed), Seed: seed,
				Device: verbs.Config{Loopback: seed%2 == 0, MinProbe: 320 * time.Microsecond}})
			for pair := range 12 {
				r := event.NewRand(seed, uint64(pair))
				from, to := int(r.Uint64n(16)), int(r.Uint64n(16))
				a, b := boxesOf(simulated{w})
				must(t, w.Go(from, func(ctx context.Context, dev *verbs.Device) error { return moody(ctx, w, dev, a, r) }))
				must(t, w.Go(to, func(ctx context.Context, dev *verbs.Device) error { return target(ctx, dev, b, 1<<16) }))
			}
			for cut := range time.Duration(seed % 4) {
				cable := int(3 * (seed + uint64(cut)) % 16)
				w.At(cut*200*time.Microsecond, func() { w.Network().SetCable(cable, false) })
				w.At(cut*200*time.Microsecond+3*time.Millisecond, func() { w.Network().SetCable(cable, true) })
			}
			if err := w.Run(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			got := fmt.Sprintf("%x at %v", w.Digest(), w.Now())
			if again == 0 {
				first = got
			} else if got != first {
				t.Errorf("seed %d: %s, and before %s", seed, got, first)
			}
		}
	}
}

// moody writes, reads and waits in some way or other.
func moody(ctx context.Context, w *world.World, dev *verbs.Device, b boxes, r event.Rand) error {
	const half = 1 << 15
	s, err := newSide(dev, make([]byte, 2*half))
	if err != nil {
		return err
	}
	theirs, err := s.meet(ctx, b)
	if err != nil {
		return err
	}
	want := make([]byte, half) // the memory of the peer
	for range 30 {
		at := int(r.Uint64n(half))
		n := int(r.Uint64n(uint64(half - at)))
		if r.Uint64n(2) == 0 {
			n = min(n, 100)
		}
		mine := s.mr.Bytes()
		for i := range n {
			mine[at+i] = byte(r.Uint64())
		}
		copy(want[at:], mine[at:at+n])
		err := s.qp.PostSend(
			verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(at, n)}, Remote: theirs.At(uint64(at))},
			verbs.SendWR{Opcode: verbs.OpRead, SGList: []verbs.SGE{s.mr.Slice(half, half)}, Remote: theirs.At(0), Signaled: true})
		if err != nil {
			return err
		}
		if err := s.awaitSomehow(ctx, w, &r); err != nil {
			return err
		}
		if !bytes.Equal(mine[half:], want) {
			return fmt.Errorf("the memory of the peer is not what was written there")
		}
	}
	if r.Uint64n(2) == 0 {
		if err := s.qp.Close(); err != nil {
			return err
		}
	}
	b.theirs.Put(card{})
	_, err = b.mine.Take(ctx)
	return err
}

// awaitSomehow takes one completion.
func (s *side) awaitSomehow(ctx context.Context, w *world.World, r *event.Rand) error {
	var wc [1]verbs.WC
	switch r.Uint64n(3) {
	case 0: // poll
		for s.cq.Poll(wc[:]) == 0 {
		}
		return wc[0].Err()
	case 1: // for a short while first
		for {
			short, cancel := w.WithTimeout(ctx, time.Duration(1+r.Uint64n(20000)))
			n, err := s.cq.Wait(short, wc[:])
			cancel()
			if n > 0 {
				return wc[0].Err()
			}
			if short.Err() == nil {
				return err
			}
		}
	}
	if err := w.Sleep(ctx, time.Duration(r.Uint64n(10000))); err != nil {
		return err
	}
	return s.await(ctx, 1)
}
