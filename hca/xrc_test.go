package hca

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

func (h *host) newXRCD() *XRCD {
	h.t.Helper()
	x, err := h.owner.OpenXRCD()
	h.must(err)
	return x
}

// newXRCSRQ makes a shared receive queue of x that completes to cq.
func (h *host) newXRCSRQ(x *XRCD, cq *CQ, n int) *SRQ {
	h.t.Helper()
	s, err := h.pd.CreateSRQ(SRQConfig{MaxWR: n, MaxSGE: 1, XRCD: x, CQ: cq})
	h.must(err)
	return s
}

// newTarget makes a target of x, connected to a new initiator of far.
func (h *host) newTarget(x *XRCD, far *host) (target, initiator *QP) {
	h.t.Helper()
	target, err := h.owner.CreateQP(qp.Config{Type: ib.XRCTarget, Domain: x})
	h.must(err)
	initiator, err = far.owner.CreateQP(qp.Config{Type: ib.XRCInitiator, PD: far.pd.Core(), SendCQ: far.cq, MaxSendWR: 16})
	h.must(err)
	h.connectXRC(target, testAddrA, initiator.QPN())
	far.connectXRC(initiator, testAddrB, target.QPN())
	return target, initiator
}

func (h *host) connectXRC(q *QP, addr netip.Addr, qpn rocev2.QPN) {
	h.t.Helper()
	a := ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead, AV: ib.AddressVector{DGID: addr, HopLimit: 64},
		PathMTU: rocev2.MTU1024, DestQPN: qpn, MaxDestRdAtomic: 16, MinRNRTimer: h.rnr, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16}
	h.must(q.Modify(&a, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess))
	rtr, rts := ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN, ib.AttrTimeout|ib.AttrSQPSN
	if q.typ == ib.XRCTarget {
		rtr |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	} else {
		rts |= ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxRdAtomic
	}
	a.State = ib.StateRTR
	h.must(q.Modify(&a, ib.AttrState|rtr))
	a.State = ib.StateRTS
	h.must(q.Modify(&a, ib.AttrState|rts))
}

// sendXRC posts a SEND of n bytes to a shared receive queue.
func (h *host) sendXRC(q *QP, srqn uint32, at uint64, n uint32) error {
	_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpSend, RemoteSRQN: srqn, Signaled: true, SGList: []ib.SGE{h.mr.Region().SGE(at, n)}}})
	return err
}

// Many initiators send to the shared receive queues of one domain, whose
// targets are of all shards. Each message takes one receive of the queue that
// it names, in the order of its queue pair, and every queue pair finishes
// though there are fewer receives than messages.
func TestXRCOfManyShards(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newShardedHosts(t, fabric.Config{Port: fabric.PortConfig{Delay: 10 * time.Microsecond, Loss: 0.01 * float64(seed%2)}, Seed: seed})
			const pairs, queues, each, slots = 12, 3, 45, 6
			x := b.newXRCD()
			var mu sync.Mutex
			var srqs [queues]*SRQ
			var wg sync.WaitGroup
			from := map[uint32]int{}
			var initiators [pairs]*QP
			shards := map[*shard]bool{}
			for i := range initiators {
				var target *QP
				target, initiators[i] = b.newTarget(x, a)
				from[uint32(target.QPN())] = i
				shards[target.shard] = true
			}
			if len(shards) < 2 {
				t.Fatal("the targets are of one shard")
			}
			var got [queues][pairs]int
			for k := range srqs {
				cq, err := b.owner.CreateCQ(64, nil)
				b.must(err)
				srqs[k] = b.newXRCSRQ(x, cq, slots)
				for i := range slots {
					b.postShared(srqs[k], slots*k+i)
				}
				wg.Go(func() {
					var wc [slots]ib.WC
					for total := 0; total < pairs*each/queues; {
						n, err := cq.Wait(t.Context(), wc[:])
						if err != nil {
							t.Error(err)
							return
						}
						for _, c := range wc[:n] {
							var data [8]byte
							b.mr.Region().CopyOut(data[:], 4096*c.ID)
							i, want := from[uint32(c.QPN)], queues*got[k][from[uint32(c.QPN)]]+k
							if c.Status != ib.StatusSuccess || c.SrcQPN != initiators[i].QPN() || int(binary.BigEndian.Uint32(data[:])) != i ||
								int(binary.BigEndian.Uint32(data[4:])) != want || int(c.ID)/slots != k {
								t.Errorf("queue %d: %+v with %x, want message %d of %d", k, c, data, want, i)
							}
							got[k][i]++
							total++
							if _, err := srqs[k].PostRecv([]ib.RecvWR{b.sharedSlot(int(c.ID))}); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			for i, q := range initiators {
				wg.Go(func() {
					for n := range each {
						var data [8]byte
						binary.BigEndian.PutUint32(data[:], uint32(i))
						binary.BigEndian.PutUint32(data[4:], uint32(n))
						at := uint64(8 * (i*each + n))
						mu.Lock()
						a.mr.Region().CopyIn(at, data[:])
						mu.Unlock()
						for err := a.sendXRC(q, srqs[n%queues].Number(), at, 8); err != nil; err = a.sendXRC(q, srqs[n%queues].Number(), at, 8) {
							if !errors.Is(err, ib.ErrQueueFull) {
								t.Error(err)
								return
							}
							time.Sleep(50 * time.Microsecond)
						}
					}
				})
			}
			wg.Wait()
			a.waitOK(pairs * each)
			for k, s := range srqs {
				if n := s.Attr().Posted; n != slots {
					t.Errorf("queue %d has %d receives of %d", k, n, slots)
				}
			}
		})
	}
}

// A completion queue with a vector is driven by the shard of the vector alone,
// if only that completes into it. Targets of any shard complete into the one of
// a shared receive queue.
func TestXRCQueueWithVector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newShardedHosts(t)
		x := b.newXRCD()
		for v := range 4 {
			cq, err := b.owner.CreateCQ(64, nil, WithVector(v))
			b.must(err)
			s := b.newXRCSRQ(x, cq, 16)
			for i := range 8 {
				b.postShared(s, i)
				target, q := b.newTarget(x, a)
				// Nothing but the waiting program drives the
				// device.
				b.must(a.sendXRC(q, s.Number(), 0, 8))
				synctest.Wait()
				var wc [1]ib.WC
				for range 100 {
					if cq.PollProgress(wc[:]) > 0 {
						break
					}
				}
				if wc[0].QPN != target.QPN() || wc[0].Status != ib.StatusSuccess {
					t.Fatalf("vector %d: %+v", v, wc[0])
				}
				if !cq.foreign.Load() {
					t.Fatal("the queue is taken to be filled by its own shard alone")
				}
			}
		}
	})
}

// The receive in hand belongs to the target: on its way to ERR it completes
// with WR_FLUSH_ERR, once, and with RESET or Close it is gone. The others stay
// in the queue, and are there for other targets.
func TestXRCReceiveInHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(b *host, q *QP) error
		want int
	}{
		"ERR":   {func(_ *host, q *QP) error { return q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState) }, 1},
		"RESET": {func(_ *host, q *QP) error { return q.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState) }, 0},
		"Close": {func(_ *host, q *QP) error { return q.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := newShardedHosts(t)
				x := b.newXRCD()
				s := b.newXRCSRQ(x, b.cq, 4)
				far := newFarMemory()
				farMR, err := b.pd.Register(far, memreg.Options{Access: ib.LocalWrite, Base: memreg.BaseZero}, nil)
				b.must(err)
				_, err = s.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{farMR.Region().SGE(0, 8)}}, b.sharedSlot(1)})
				b.must(err)
				q, initiator := b.newTarget(x, a)
				_, other := b.newTarget(x, a)
				b.must(a.sendXRC(initiator, s.Number(), 0, 8))
				<-far.asked // the message cannot be finished
				for range 2 {
					b.must(c.end(b, q))
				}
				synctest.Wait()
				var wc [4]ib.WC
				n := b.cq.PollProgress(wc[:])
				if n != c.want || n == 1 && (wc[0].ID != 0 || wc[0].Status != ib.StatusWRFlushErr || wc[0].QPN != q.QPN()) {
					t.Errorf("%d completions, %+v", n, wc[0])
				}
				if e, ok := b.nextEvent(); ok != (c.want == 1) || ok && (e.Kind != ib.EventLastWQEReached || e.QP != q) {
					t.Errorf("event %v %+v", ok, e)
				}
				if n := s.Attr().Posted; n != 1 {
					t.Errorf("%d receives are left", n)
				}
				close(far.come)
				b.must(a.sendXRC(other, s.Number(), 0, 8))
				b.waitOK(1)
			})
		})
	}
}

// What a target stands on is closed under it, while messages come. A domain
// with targets is refused; a shared receive queue, a completion queue and a
// protection domain go, and then the peer's request is refused. Nothing hangs,
// and the device has nothing left.
func TestXRCClosedUnderTraffic(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *host, s *SRQ, cq *CQ, pd *PD) error{
		"SRQ": func(_ *host, s *SRQ, _ *CQ, _ *PD) error { return s.Close() },
		"CQ":  func(_ *host, _ *SRQ, cq *CQ, _ *PD) error { return cq.Close() },
		"PD":  func(_ *host, _ *SRQ, _ *CQ, pd *PD) error { return pd.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := newShardedHosts(t, fabric.Config{Port: fabric.PortConfig{Delay: 10 * time.Microsecond}})
				x := b.newXRCD()
				pd, err := b.owner.AllocPD()
				b.must(err)
				mr, err := pd.Register(memreg.Local(make([]byte, 1<<16)), memreg.Options{Access: ib.LocalWrite}, nil)
				b.must(err)
				cq, err := b.owner.CreateCQ(256, nil)
				b.must(err)
				s, err := pd.CreateSRQ(SRQConfig{MaxWR: 256, MaxSGE: 1, XRCD: x, CQ: cq})
				b.must(err)
				target, q := b.newTarget(x, a)
				for i := range 256 {
					_, err := s.PostRecv([]ib.RecvWR{{ID: uint64(i), SGList: []ib.SGE{mr.Region().SGE(0, 4096)}}})
					b.must(err)
				}
				for range 16 {
					b.must(a.sendXRC(q, s.Number(), 0, 4000))
				}
				time.Sleep(35 * time.Microsecond)
				b.must(end(b, s, cq, pd))
				if err := x.Close(); !errors.Is(err, ErrInUse) {
					t.Errorf("a domain with a target was closed: %v", err)
				}
				for range 16 { // until one is refused
					if err := a.sendXRC(q, s.Number(), 0, 4000); err != nil && !errors.Is(err, ib.ErrQueueFull) {
						t.Error(err)
					}
				}
				time.Sleep(time.Second)
				if target.State() != ib.StateErr || q.State() != ib.StateErr {
					t.Errorf("target is in %v, initiator in %v", target.State(), q.State())
				}
				b.must(target.Close())
				b.must(s.Close())
				b.must(x.Close())
				b.must(b.owner.Close())
				if b.owner.count != (objects{}) || len(b.dev.srqNumbers.taken) != 0 {
					t.Errorf("left are %v and %d numbers", b.owner.count, len(b.dev.srqNumbers.taken))
				}
			})
		})
	}
}

// Whatever is done beside the traffic of several shards, a receive of XRC
// completes at most once, and none is lost but with a queue that was closed, or
// a target that was closed in the middle of a message.
func TestXRCStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newShardedHosts(t, fabric.Config{Port: fabric.PortConfig{Delay: 10 * time.Microsecond, Loss: 0.01}, Seed: seed})
			x := b.newXRCD()
			var srqs [4]atomic.Pointer[SRQ]
			var mu sync.Mutex
			posted, lost, left := 0, 0, 0
			done := map[uint64]bool{}
			fill := func(s *SRQ, n int) {
				mu.Lock()
				defer mu.Unlock()
				for range n {
					wr := b.sharedSlot(posted % 200)
					wr.ID = uint64(posted)
					switch _, err := s.PostRecv([]ib.RecvWR{wr}); {
					case err == nil:
						posted++
					case !errors.Is(err, ib.ErrQueueFull) && !errors.Is(err, ErrClosed):
						t.Error(err)
					}
				}
			}
			for i := range srqs {
				srqs[i].Store(b.newXRCSRQ(x, b.cq, 32))
			}
			var wg, beside sync.WaitGroup
			for g := range uint64(6) {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, g))
					for range 15 {
						target, q := b.newTarget(x, a)
						for range rng.IntN(20) {
							err := a.sendXRC(q, srqs[rng.IntN(len(srqs))].Load().Number(), 0, uint32(1+rng.IntN(4096)))
							if err != nil && !errors.Is(err, ib.ErrQueueFull) {
								t.Error(err)
							}
						}
						time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
						if rng.IntN(3) == 0 {
							b.must(target.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
						} else {
							mu.Lock()
							lost++ // the one in hand
							mu.Unlock()
						}
						b.must(target.Close())
						b.must(q.Close())
					}
				})
			}
			stop := make(chan struct{})
			take := func(wc []ib.WC) {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range wc {
					if done[c.ID] || c.ID >= uint64(posted) {
						t.Errorf("completed twice, or not posted: %+v", c)
					}
					done[c.ID] = true
				}
			}
			beside.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 100))
				var wc [16]ib.WC
				for {
					select {
					case <-stop:
						return
					default:
					}
					take(wc[:b.cq.PollProgress(wc[:])])
					i := rng.IntN(len(srqs))
					s := srqs[i].Load()
					fill(s, rng.IntN(4))
					if rng.IntN(40) == 0 { // another in its place, under another number
						mu.Lock()
						lost += 32
						mu.Unlock()
						b.must(s.Close())
						srqs[i].Store(b.newXRCSRQ(x, b.cq, 32))
					}
					if err := x.Close(); !errors.Is(err, ErrInUse) {
						t.Errorf("a domain in use was closed: %v", err)
					}
					time.Sleep(20 * time.Microsecond)
				}
			})
			wg.Wait()
			close(stop)
			beside.Wait()
			var wc [64]ib.WC
			for n := b.cq.PollProgress(wc[:]); n > 0; n = b.cq.PollProgress(wc[:]) {
				take(wc[:n])
			}
			for i := range srqs {
				left += srqs[i].Load().Attr().Posted
				b.must(srqs[i].Load().Close())
			}
			if n := posted - len(done) - left; n < 0 || n > lost {
				t.Errorf("%d posted, %d completed, %d left, at most %d lost", posted, len(done), left, lost)
			}
			if len(done) < 60 {
				t.Errorf("only %d messages", len(done))
			}
			b.must(x.Close())
			if len(b.dev.srqNumbers.taken) != 0 {
				t.Errorf("%d numbers are left", len(b.dev.srqNumbers.taken))
			}
		})
	}
}
