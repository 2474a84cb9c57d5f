package world_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/verbs"
)

// allReduce runs a ring in a world and returns when the last rank was done.
func allReduce(t *testing.T, c network.Config, ranks, part int, seed uint64) (w *world.World, took time.Duration) {
	t.Helper()
	w = newWorld(t, world.Config{Network: c, Seed: seed})
	times := startRing(simulated{w}, ranks, part)
	must(t, w.Run())
	for _, d := range times {
		took = max(took, d)
	}
	return w, took
}

// A ring of 128 ranks gets the right sums, in the time that it takes adapters
// that are driven by events, to the nanosecond.
func TestAllReduceTakesWhatAdaptersTake(t *testing.T) {
	t.Parallel()
	ranks, part := 128, 1<<10
	if testing.Short() {
		ranks = 16
	}
	_, got := allReduce(t, star(ranks), ranks, part, 1)
	want := ringOfAdapters(t, star(ranks), ranks, part)
	if got != want {
		t.Errorf("%d ranks take %v, and adapters %v", ranks, got, want)
	}
}

// ringOfAdapters is the same ring without programs and bytes.
func ringOfAdapters(t *testing.T, c network.Config, ranks, part int) time.Duration {
	t.Helper()
	n, err := network.New(c)
	must(t, err)
	a, err := adapter.New(n, ranks, adapter.Config{})
	must(t, err)
	to, sent, came, rounds := make([]*adapter.QP, ranks), make([]int, ranks), make([]int, ranks), make([]int, ranks)
	var end event.Time
	var step func(rank int)
	step = func(rank int) {
		if sent[rank] < rounds[rank] || came[rank] < rounds[rank] {
			return
		}
		if rounds[rank]++; rounds[rank] > 2*(ranks-1) {
			end = max(end, n.Now())
			return
		}
		must(t, to[rank].Post(adapter.Request{Op: ib.OpSend, Bytes: uint32(part), Done: func(adapter.Completion) {
			sent[rank]++
			step(rank)
		}}))
	}
	for rank := range ranks {
		next := (rank + 1) % ranks
		x, y, err := a.Connect(rank, next, adapter.Connection{})
		must(t, err)
		to[rank] = x
		y.Received = func(adapter.Message) {
			came[next]++
			step(next)
		}
	}
	for rank := range ranks {
		step(rank)
	}
	for n.Run(n.Now() + event.Microsecond); !n.Idle() && end == 0; {
		n.Run(n.Now() + event.Microsecond)
	}
	n.Run(n.Now() + 100*event.Microsecond) // of the others
	for rank := range ranks {
		if came[rank] < 2*(ranks-1) {
			t.Errorf("rank %d has got %d messages", rank, came[rank])
		}
	}
	return end.Duration()
}

// A transfer takes what it takes adapters that are driven by events, to the
// nanosecond, whatever is lost on the way.
func TestTransferTakesWhatAdaptersTake(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64, 4096, 100000, 4 << 20} {
		for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
			c := star(2)
			got := transfer(t, c, op, size)
			n, err := network.New(c)
			must(t, err)
			a, err := adapter.New(n, 2, adapter.Config{})
			must(t, err)
			x, _, err := a.Connect(0, 1, adapter.Connection{})
			must(t, err)
			var want time.Duration
			must(t, x.Post(adapter.Request{Op: ib.Opcode(op), Bytes: uint32(size), Done: func(c adapter.Completion) {
				want = (c.End - c.Start).Duration()
			}}))
			n.Run(event.Second)
			if d := got - want; d > want/100 || -d > want/100 {
				t.Errorf("%v of %d bytes takes %v, and with adapters %v", op, size, got, want)
			} else {
				t.Logf("%v of %d bytes: %v, %v", op, size, got, want)
			}
		}
	}
}

// transfer returns how long one request takes in a world.
func transfer(t *testing.T, c network.Config, op verbs.Opcode, size int) (took time.Duration) {
	t.Helper()
	w := newWorld(t, world.Config{Network: c})
	a, b := boxesOf(simulated{w})
	memory := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
	peer := make([]byte, size)
	if op == verbs.OpRead {
		memory, peer = peer, memory
	}
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, memory)
		if err != nil {
			return err
		}
		theirs, err := s.meet(ctx, a)
		if err != nil {
			return err
		}
		begun := w.Now()
		wr := verbs.SendWR{Opcode: op, SGList: []verbs.SGE{s.mr.Slice(0, size)}, Remote: theirs.At(0), Signaled: true}
		if err := s.qp.PostSend(wr); err != nil {
			return err
		}
		err = s.await(ctx, 1)
		took = w.Now() - begun
		return err
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, peer)
		if err != nil {
			return err
		}
		_, err = s.meet(ctx, b)
		return err
	}))
	must(t, w.Run())
	if !bytes.Equal(memory, peer) {
		t.Errorf("%v of %d bytes: the bytes have not arrived", op, size)
	}
	return took
}

// clos returns a network of two stages with ECMP, that loses packets.
func clos(t *testing.T, lossOfBillion uint32, seed uint64) network.Config {
	t.Helper()
	g, err := topology.LeafSpine{Leaves: 4, Spines: 4, HostsPerLeaf: 4,
		Host: topology.Cable{Rate: 25e9, Delay: int64(event.Microsecond)}, Up: topology.Cable{Rate: 25e9, Delay: int64(event.Microsecond)}}.Graph()
	must(t, err)
	c, err := g.Network(topology.Plan{Profile: topology.Spectrum().Lossy(), Loss: lossOfBillion, Seed: seed})
	must(t, err)
	return c
}

// The same seed gives the same run, another one another.
func TestSameSeedSameRun(t *testing.T) { // not parallel: it sets GOMAXPROCS
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	type result struct {
		digest uint64
		now    time.Duration
	}
	run := func(seed uint64) (r result) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, world.Config{Network: clos(t, 2e6, seed), Seed: seed})
			startRing(simulated{w}, 16, 3000)
			addPollers(t, w)
			must(t, w.Run())
			r = result{w.Digest(), w.Now()}
		})
		return r
	}
	first := run(1)
	for _, procs := range []int{1, 2, before} {
		runtime.GOMAXPROCS(procs)
		if got := run(1); got != first {
			t.Errorf("with %d processors the run is %+v, and before %+v", procs, got, first)
		}
	}
	if other := run(2); other.digest == first.digest {
		t.Error("another seed gives the same run")
	}
	t.Logf("%+v", first)
}

// addPollers adds programs that poll, sleep, wait for events and channels, and
// close what they have in the middle.
func addPollers(t *testing.T, w *world.World) {
	t.Helper()
	for pair := range 4 {
		a, b := boxesOf(simulated{w})
		must(t, w.Go(pair, func(ctx context.Context, dev *verbs.Device) error {
			s, err := newSide(dev, make([]byte, 1<<16))
			if err != nil {
				return err
			}
			theirs, err := s.meet(ctx, a)
			if err != nil {
				return err
			}
			for i := range 20 {
				wr := verbs.SendWR{Opcode: verbs.OpWriteImm, Imm: uint32(i), SGList: []verbs.SGE{s.mr.Slice(0, 3000*i)}, Remote: theirs.At(0), Signaled: true}
				if err := s.qp.PostSend(wr); err != nil {
					return err
				}
				var wc [1]verbs.WC
				for s.cq.Poll(wc[:]) == 0 {
				}
				if err := wc[0].Err(); err != nil {
					return err
				}
				if err := w.Sleep(ctx, time.Duration(i)*time.Microsecond); err != nil {
					return err
				}
			}
			return s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("bye")})
		}))
		must(t, w.Go(15-pair, func(ctx context.Context, dev *verbs.Device) error { return notified(ctx, dev, b, 21) }))
	}
}

// notified takes that many messages by a completion channel.
func notified(ctx context.Context, dev *verbs.Device, b boxes, messages int) error {
	ch, err := dev.CreateCompChannel()
	if err != nil {
		return err
	}
	s, err := newSide(dev, make([]byte, 1<<16))
	if err != nil {
		return err
	}
	if s.cq, err = dev.CreateCQ(16, verbs.WithChannel(ch)); err != nil {
		return err
	}
	if s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq}); err != nil {
		return err
	}
	if err := s.cq.SetModeration(3, 20*time.Microsecond); err != nil {
		return err
	}
	if err := s.qp.Init(); err != nil {
		return err
	}
	for range 16 {
		if err := s.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.Slice(0, 16)}}); err != nil {
			return err
		}
	}
	if _, err := s.meet(ctx, b); err != nil {
		return err
	}
	for got := 0; got < messages; {
		s.cq.Arm(false)
		var wc [4]verbs.WC
		for n := s.cq.Poll(wc[:]); n > 0; n = s.cq.Poll(wc[:]) {
			for i := range wc[:n] {
				if err := wc[i].Err(); err != nil {
					return err
				}
				if err := s.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.Slice(0, 16)}}); err != nil {
					return err
				}
			}
			got += n
		}
		if got == messages {
			break
		}
		if _, err := ch.Get(ctx); err != nil {
			return err
		}
	}
	return s.qp.Close()
}
