package world_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// The programs of this file know nothing of what they run on. Tests run them
// over UDP sockets, and in a world.

// card is what a program tells another one before they are connected.
type card struct {
	verbs.Endpoint
	Memory verbs.RemoteMemory
}

// box hands cards on: a world.Box, or a channel.
type box interface {
	Put(card)
	Take(context.Context) (card, error)
}

// boxes are a box to each of two programs.
type boxes struct{ mine, theirs box }

func (b boxes) swap(ctx context.Context, c card) (card, error) {
	b.theirs.Put(c)
	return b.mine.Take(ctx)
}

// side is a queue pair and what belongs to it.
type side struct {
	pd *verbs.PD
	mr *verbs.MR
	cq *verbs.CQ
	qp *verbs.QP
}

func newSide(dev *verbs.Device, memory []byte) (s side, err error) {
	if s.pd, err = dev.AllocPD(); err != nil {
		return s, err
	}
	if s.mr, err = s.pd.RegisterMemory(memory, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
		return s, err
	}
	if s.cq, err = dev.CreateCQ(256); err != nil {
		return s, err
	}
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 128, MaxRecvWR: 16})
	return s, err
}

// ect0 says that packets may be marked.
const ect0 = 2

// meet connects with the program at the other side of b, and returns when that
// has done so too.
func (s *side) meet(ctx context.Context, b boxes) (theirs verbs.RemoteMemory, err error) {
	c, err := b.swap(ctx, card{s.qp.Endpoint(), s.mr.Remote()})
	if err != nil {
		return theirs, err
	}
	if err := s.qp.Connect(ctx, c.Endpoint, verbs.WithConfig(verbs.ConnectConfig{TrafficClass: ect0})); err != nil {
		return theirs, err
	}
	_, err = b.swap(ctx, card{})
	return c.Memory, err
}

// await takes n completions, which are successful.
func (s *side) await(ctx context.Context, n int) error {
	var wc [16]verbs.WC
	for n > 0 {
		k, err := s.cq.Wait(ctx, wc[:min(n, len(wc))])
		if err != nil {
			return err
		}
		for i := range wc[:k] {
			if err := wc[i].Err(); err != nil {
				return err
			}
		}
		n -= k
	}
	return nil
}

// guide is what docs/guide.md has: a WRITE, an atomic and a READ.
func guide(ctx context.Context, dev *verbs.Device, b boxes) error {
	s, err := newSide(dev, make([]byte, 4096))
	if err != nil {
		return err
	}
	theirs, err := s.meet(ctx, b)
	if err != nil {
		return err
	}
	copy(s.mr.Bytes(), "hello")
	err = s.qp.PostSend(
		verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, 5)}, Remote: theirs.At(64)},
		verbs.SendWR{ID: 2, Opcode: verbs.OpFetchAdd, CompareAdd: 1, SGList: []verbs.SGE{s.mr.Slice(8, 8)}, Remote: theirs.At(128)},
		verbs.SendWR{ID: 3, Opcode: verbs.OpRead, SGList: []verbs.SGE{s.mr.Slice(16, 5)}, Remote: theirs.At(64), Signaled: true},
	)
	if err != nil {
		return err
	}
	if err := s.await(ctx, 1); err != nil {
		return err
	}
	if got := s.mr.Bytes()[16:21]; !bytes.Equal(got, []byte("hello")) {
		return fmt.Errorf("the memory of the peer says %q", got)
	}
	if _, err := b.swap(ctx, card{}); err != nil {
		return err
	}
	if n, err := s.mr.Load64(128); n != 1 || err != nil {
		return fmt.Errorf("the peer has counted to %d: %w", n, err)
	}
	return s.qp.Close()
}

// bandwidth writes into the memory of the peer for a number of times, depth of
// them at once, as ib_write_bw does. It returns what that came to, in bits per
// second by the clock of the device.
func bandwidth(ctx context.Context, dev *verbs.Device, b boxes, size, times, depth int) (rate float64, err error) {
	s, err := newSide(dev, make([]byte, size))
	if err != nil {
		return 0, err
	}
	theirs, err := s.meet(ctx, b)
	if err != nil {
		return 0, err
	}
	begun := dev.Now()
	for posted, done := 0, 0; done < times; {
		for ; posted < times && posted < done+depth; posted++ {
			wr := verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, size)}, Remote: theirs.At(0), Signaled: true}
			if err := s.qp.PostSend(wr); err != nil {
				return 0, err
			}
		}
		if err := s.await(ctx, 1); err != nil {
			return 0, err
		}
		done++
	}
	rate = float64(size) * float64(times) * 8e9 / float64(dev.Now()-begun)
	_, err = b.swap(ctx, card{})
	return rate, err
}

// target is the peer of bandwidth.
func target(ctx context.Context, dev *verbs.Device, b boxes, size int) error {
	s, err := newSide(dev, make([]byte, size))
	if err != nil {
		return err
	}
	if _, err := s.meet(ctx, b); err != nil {
		return err
	}
	_, err = b.swap(ctx, card{})
	return err
}

// ring is an all-reduce: every rank has a vector, and all get the sum. In each
// of 2(n-1) rounds a rank sends a part of the vector to the next one. In the
// first half it adds what it receives to its own, in the second it takes it.
type ring struct {
	rank, ranks int
	part        int // bytes
	next, prev  boxes
}

// value is element i of the vector of a rank.
func value(rank, i int) uint32 { return uint32(1000003*rank + i*i) }

// run returns how long it took by the clock of the device.
func (r ring) run(ctx context.Context, dev *verbs.Device) (time.Duration, error) {
	vector := make([]byte, r.ranks*r.part)
	for i := range len(vector) / 4 {
		binary.LittleEndian.PutUint32(vector[4*i:], value(r.rank, i))
	}
	out, err := newSide(dev, vector)
	if err != nil {
		return 0, err
	}
	in, err := newSide(dev, make([]byte, 2*r.part))
	if err != nil {
		return 0, err
	}
	if err := in.qp.Init(); err != nil {
		return 0, err
	}
	for round := range 2 {
		if err := r.expect(&in, round); err != nil {
			return 0, err
		}
	}
	if err := r.connect(ctx, &out, &in); err != nil {
		return 0, err
	}
	begun := dev.Now()
	for round := range 2 * (r.ranks - 1) {
		if err := r.round(ctx, &out, &in, round); err != nil {
			return 0, err
		}
	}
	took := time.Duration(dev.Now() - begun)
	return took, r.check(vector)
}

// connect connects with both neighbours: cards to both, then from both.
func (r ring) connect(ctx context.Context, out, in *side) error {
	for range 2 { // the second says that the first was used
		r.next.theirs.Put(card{Endpoint: out.qp.Endpoint()})
		r.prev.theirs.Put(card{Endpoint: in.qp.Endpoint()})
		next, err := r.next.mine.Take(ctx)
		if err != nil {
			return err
		}
		prev, err := r.prev.mine.Take(ctx)
		if err != nil {
			return err
		}
		if out.qp.State() == verbs.StateRTS {
			continue
		}
		if err := out.qp.Connect(ctx, next.Endpoint); err != nil {
			return err
		}
		if err := in.qp.Connect(ctx, prev.Endpoint); err != nil {
			return err
		}
	}
	return nil
}

func (r ring) expect(in *side, round int) error {
	return in.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{in.mr.Slice(round%2*r.part, r.part)}})
}

func (r ring) round(ctx context.Context, out, in *side, round int) error {
	at := func(back int) int { return (r.rank - back + 2*r.ranks) % r.ranks * r.part }
	wr := verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{out.mr.Slice(at(round), r.part)}, Signaled: true}
	if err := out.qp.PostSend(wr); err != nil {
		return err
	}
	if err := in.await(ctx, 1); err != nil {
		return err
	}
	got, own := in.mr.Bytes()[round%2*r.part:][:r.part], out.mr.Bytes()[at(round+1):][:r.part]
	if round >= r.ranks-1 {
		copy(own, got)
	} else {
		for i := 0; i < len(got); i += 4 {
			binary.LittleEndian.PutUint32(own[i:], binary.LittleEndian.Uint32(own[i:])+binary.LittleEndian.Uint32(got[i:]))
		}
	}
	if err := r.expect(in, round); err != nil {
		return err
	}
	return out.await(ctx, 1)
}

func (r ring) check(vector []byte) error {
	for i := range len(vector) / 4 {
		want := uint32(1000003*(r.ranks*(r.ranks-1)/2) + r.ranks*i*i)
		if got := binary.LittleEndian.Uint32(vector[4*i:]); got != want {
			return fmt.Errorf("rank %d, element %d is %d, and the sum is %d", r.rank, i, got, want)
		}
	}
	return nil
}

// channel is a box between goroutines.
type channel chan card

func (c channel) Put(v card) { c <- v }

func (c channel) Take(ctx context.Context) (card, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		return card{}, ctx.Err()
	}
}

// platform is what programs run on.
type platform interface {
	box() box
	start(number int, program func(ctx context.Context, dev *verbs.Device) error)
	finish(t *testing.T)
}

// sockets runs programs over UDP, each a goroutine with a device of its own.
type sockets struct {
	t     *testing.T
	devs  []*verbs.Device
	tasks sync.WaitGroup
}

func newSockets(t *testing.T, hosts int) *sockets {
	s := &sockets{t: t}
	r := rand.N(uint32(1 << 16)) // other tests use other addresses of 127.0.0.0/8
	for i := range hosts {
		dev, err := verbs.OpenAddr(netip.AddrFrom4([4]byte{127, byte(64 + r>>8&63), byte(r), byte(1 + i)}), verbs.Config{})
		must(t, err)
		t.Cleanup(func() { must(t, dev.Close()) })
		s.devs = append(s.devs, dev)
	}
	return s
}

func (s *sockets) box() box { return make(channel, 2) }

func (s *sockets) start(number int, program func(ctx context.Context, dev *verbs.Device) error) {
	s.tasks.Go(func() {
		if err := program(s.t.Context(), s.devs[number]); err != nil {
			s.t.Errorf("host %d: %v", number, err)
		}
	})
}

func (s *sockets) finish(*testing.T) { s.tasks.Wait() }

// simulated runs programs in a world.
type simulated struct{ *world.World }

func (s simulated) box() box { return world.NewBox[card](s.World) }

func (s simulated) start(number int, program func(ctx context.Context, dev *verbs.Device) error) {
	if err := s.Go(number, program); err != nil {
		panic(err)
	}
}

func (s simulated) finish(t *testing.T) { must(t, s.Run()) }

// everywhere runs a test over sockets, and in a world.
func everywhere(t *testing.T, hosts int, test func(t *testing.T, p platform)) {
	t.Run("sockets", func(t *testing.T) {
		t.Parallel()
		test(t, newSockets(t, hosts))
	})
	t.Run("world", func(t *testing.T) {
		t.Parallel()
		test(t, simulated{newWorld(t, world.Config{Network: star(hosts)})})
	})
}

func boxesOf(p platform) (a, b boxes) {
	x, y := p.box(), p.box()
	return boxes{x, y}, boxes{y, x}
}

func TestGuideEverywhere(t *testing.T) {
	t.Parallel()
	everywhere(t, 2, func(t *testing.T, p platform) {
		a, b := boxesOf(p)
		p.start(0, func(ctx context.Context, dev *verbs.Device) error { return guide(ctx, dev, a) })
		p.start(1, func(ctx context.Context, dev *verbs.Device) error { return guide(ctx, dev, b) })
		p.finish(t)
	})
}

func TestBandwidthEverywhere(t *testing.T) {
	t.Parallel()
	everywhere(t, 2, func(t *testing.T, p platform) {
		const size, times, depth = 64 << 10, 200, 16
		var rate float64
		a, b := boxesOf(p)
		p.start(0, func(ctx context.Context, dev *verbs.Device) (err error) {
			rate, err = bandwidth(ctx, dev, a, size, times, depth)
			return err
		})
		p.start(1, func(ctx context.Context, dev *verbs.Device) error { return target(ctx, dev, b, size) })
		p.finish(t)
		t.Logf("%.2f Gb/s", rate/1e9)
		if _, ok := p.(simulated); !ok {
			return
		}
		if rate < 96.5e9 || rate > 98.5e9 { // 4096 of 4192 bytes on the wire are payload
			t.Errorf("%.2f Gb/s of payload over a cable of 100 Gb/s, want about 97.7", rate/1e9)
		}
	})
}

// startRing has all ranks run, and returns where their times will be.
func startRing(p platform, ranks, part int) []time.Duration {
	took := make([]time.Duration, ranks)
	rings := make([]ring, ranks)
	for i := range rings {
		rings[i] = ring{rank: i, ranks: ranks, part: part, prev: rings[i].prev}
		var other boxes
		rings[i].next, other = boxesOf(p)
		rings[(i+1)%ranks].prev = other
	}
	for i, r := range rings {
		p.start(i, func(ctx context.Context, dev *verbs.Device) (err error) {
			took[i], err = r.run(ctx, dev)
			return err
		})
	}
	return took
}

func TestAllReduceEverywhere(t *testing.T) {
	t.Parallel()
	everywhere(t, 6, func(t *testing.T, p platform) {
		took := startRing(p, 6, 10000)
		p.finish(t)
		t.Log(took)
	})
}
