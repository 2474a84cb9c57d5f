package verbs_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/race"
	format "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/psp"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// ledger has what a side has put on the cable. Sealed packets must open with
// the key of their generation, and each key must have initialization vectors
// from 1 on, one after the other, none of them twice.
type ledger struct {
	chain   *format.Chain
	key     *format.Key
	first   uint32 // SPI of the first key
	iv      uint64
	packets int
}

func newLedger(t testing.TB, q *verbs.QP) *ledger {
	t.Helper()
	spi := sealing(t, q).SPI(0)
	c, err := format.NewChain(verbs.SealGCM128, keyOf(spi, verbs.SealGCM128))
	check(t, err)
	return &ledger{chain: c, key: c.Key(spi), first: spi}
}

// take reads packets in the order in which they were sealed. Those that are not
// to the association it passes over if they are in clear.
func (l *ledger) take(t testing.TB, all [][]byte) {
	t.Helper()
	for _, p := range all {
		if !transport.IsSealed(p) {
			continue
		}
		h, _, err := format.Parse(p)
		check(t, err)
		for d := format.Between(h.SPI, format.Later(l.first, l.chain.Generation())); d > 0; d-- {
			l.chain.Next()
			l.key, l.iv = l.chain.Key(l.first), 0
		}
		if _, _, err := l.key.Open(nil, p); err != nil {
			t.Fatalf("a packet with SPI %08x and IV %d after %d others, generation %d: %v", h.SPI, h.IV, l.packets, l.chain.Generation(), err)
		}
		if h.IV != l.iv+1 {
			t.Fatalf("generation %d: IV %d after %d", l.chain.Generation(), h.IV, l.iv)
		}
		l.iv, l.packets = h.IV, l.packets+1
	}
}

// worker has a side do operations of all kinds, each of which shows whether it
// was done once.
type worker struct {
	*sealedSide
	peer   *sealedSide
	ledger *ledger
	ops    int

	posted, done  int
	sent, arrived uint64 // SENDs
	added         uint64
}

const (
	workSlots = 64
	slotSize  = 2048
	localAt   = 128 << 10 // of what a side writes, and reads back
	remoteAt  = 512 << 10 // of what the peer writes
	recvAt    = 8 << 10
)

func newWorker(t testing.TB, own, peer *sealedSide, ops int) *worker {
	t.Helper()
	w := &worker{sealedSide: own, peer: peer, ledger: newLedger(t, peer.QP), ops: ops}
	for i := range workSlots {
		check(t, own.QP.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: sgl(own.MR, recvAt+8*i, 8)}))
	}
	return w
}

// of returns the bytes of a WRITE.
func (w *worker) of(op int) []byte {
	b := make([]byte, slotSize)
	rand.NewChaCha8([32]byte{byte(op), byte(op >> 8), byte(op >> 16), byte(w.QP.QPN())}).Read(b)
	return b
}

func (w *worker) post(t testing.TB) error {
	op := w.posted
	w.posted++
	slot := op % workSlots
	local := localAt + slot*slotSize
	wr := verbs.SendWR{ID: uint64(op), Signaled: true, SGList: sgl(w.MR, local, slotSize), Remote: w.peer.MR.RemoteAt(remoteAt + slot/4*slotSize)}
	switch op % 4 {
	case 0:
		wr.Opcode = verbs.OpWrite
		copy(w.MR.Bytes()[local:], w.of(op))
	case 1:
		wr.Opcode = verbs.OpRead
	case 2:
		wr.Opcode, wr.SGList, wr.Remote, wr.CompareAdd = verbs.OpFetchAdd, sgl(w.MR, local, 8), w.peer.MR.RemoteAt(0), 1
	case 3:
		wr.Opcode, wr.SGList = verbs.OpSend, sgl(w.MR, local, 8)
		binary.BigEndian.PutUint64(w.MR.Bytes()[local:], w.sent)
		w.sent++
	}
	return w.QP.PostSend(wr)
}

// complete takes a completion, and looks at what was done.
func (w *worker) complete(wc *verbs.WC) error {
	if err := wc.Err(); err != nil {
		return err
	}
	if wc.Opcode == verbs.WCRecv {
		at := recvAt + 8*int(wc.ID)
		if got := binary.BigEndian.Uint64(w.MR.Bytes()[at:]); got != w.arrived {
			return fmt.Errorf("SEND %d has come, and %d is due", got, w.arrived)
		}
		w.arrived++
		return w.QP.PostRecv(verbs.RecvWR{ID: wc.ID, SGList: sgl(w.MR, at, 8)})
	}
	op := int(wc.ID)
	if op != w.done {
		return fmt.Errorf("operation %d is done, and %d is due", op, w.done)
	}
	w.done++
	local := w.MR.Bytes()[localAt+op%workSlots*slotSize:]
	switch op % 4 {
	case 1:
		if !bytes.Equal(local[:slotSize], w.of(op-1)) {
			return fmt.Errorf("READ %d has other bytes than what was written", op)
		}
	case 2:
		if got := binary.NativeEndian.Uint64(local); got != w.added {
			return fmt.Errorf("FETCH ADD %d finds %d, and %d is due", op, got, w.added)
		}
		w.added++
	}
	return nil
}

// run has up to 24 operations under way until all are done, and the peer's,
// too.
func (w *worker) run(t testing.TB) error {
	for w.done < w.ops || w.arrived < uint64(w.ops/4) {
		for w.posted < w.ops && w.posted < w.done+24 {
			if err := w.post(t); err != nil {
				return err
			}
		}
		wc := w.Next(t)
		if err := w.complete(&wc); err != nil {
			return err
		}
		if w.done%1000 == 0 {
			w.ledger.take(t, w.cable.Take())
		}
	}
	return nil
}

// work has both sides do operations.
func work(t *testing.T, a, b *sealedSide, ops int) (wa, wb *worker) {
	t.Helper()
	wa, wb = newWorker(t, a, b, ops), newWorker(t, b, a, ops)
	a.cable.Take()
	b.cable.Take()
	var both sync.WaitGroup
	for _, w := range []*worker{wa, wb} {
		both.Go(func() {
			if err := w.run(t); err != nil {
				t.Errorf("queue pair %v: %v", w.QP.QPN(), err)
				w.Dev.Close()
				w.peer.Dev.Close()
			}
		})
	}
	both.Wait()
	for _, w := range []*worker{wa, wb} {
		w.ledger.take(t, w.cable.Take())
	}
	return wa, wb
}

// TestRekeyUnderWay has 100,000 operations of all kinds, of both sides, with
// new keys after 100 packets, while packets are lost, overtaken and doubled.
// Each is done once, in its order. No key seals two packets with the same
// initialization vector.
func TestRekeyUnderWay(t *testing.T) {
	t.Parallel()
	ops := 50_000
	if testing.Short() || race.Enabled {
		ops = 2_000
	}
	for name, port := range map[string]fabric.PortConfig{
		"good path": {},
		"bad path":  {Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, Corrupt: 0.005, Delay: 20 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := sealedPairOf(t, fabric.Config{Seed: 5, Port: port}, verbs.Config{Sealing: true, RekeyPackets: 100, Spin: -1})
				seal(t, a.QP, b.QP, verbs.SealGCM128)
				wa, wb := work(t, a, b, ops)
				ga, gb := sealing(t, a.QP).Generation(), sealing(t, b.QP).Generation()
				if max(ga, gb)-min(ga, gb) > 1 || ga < uint64(wa.ledger.packets)/200 {
					t.Errorf("generations %d and %d after %d and %d packets", ga, gb, wa.ledger.packets, wb.ledger.packets)
				}
				for _, s := range []*sealedSide{a, b} {
					c := s.Dev.SealCounters()
					odd := c.Unknown + c.Peer + c.Format + c.Stale + c.Ended + c.Forged // all of them packets with a changed bit
					if c.NoKey != 0 || c.Rekeys < ga-1 || float64(odd) > 1.2*port.Corrupt*float64(c.Opened) {
						t.Errorf("%+v", c)
					}
				}
			})
		})
	}
}

// TestRekeyByAge has a queue pair with hardly any traffic, in virtual time: its
// keys are used for a day at most, or for as long as the program says.
func TestRekeyByAge(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { rekeyByAge(t, after) })
		})
	}
}

func rekeyByAge(t *testing.T, after time.Duration) {
	a, b := sealedPairOf(t, fabric.Config{}, verbs.Config{Sealing: true, RekeyAfter: after})
	seal(t, a.QP, b.QP, verbs.SealGCM128)
	l := newLedger(t, b.QP)
	a.cable.Take()
	longest := cmp.Or(after, 24*time.Hour)
	var last uint64
	begun, first := time.Now(), true
	for range 300 {
		time.Sleep(longest * 7 / 24)
		check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 8), Remote: b.MR.RemoteAt(0)}))
		wc := a.Next(t)
		check(t, wc.Err())
		l.take(t, a.cable.Take())
		if g := l.chain.Generation(); g != last || first {
			last, begun, first = g, time.Now(), false
		} else if age := time.Since(begun); age > longest {
			t.Fatalf("the key of generation %d is used for %v", g, age)
		}
	}
	if c := a.Dev.SealCounters(); last < 80 || last > 200 || a.QP.Stats().Retransmits != 0 || c.Ended+c.Unknown+c.NoKey != 0 {
		t.Errorf("%d keys in 300 * 7/24 times %v: %+v", last, longest, c)
	}
	check(t, a.QP.Close())
	time.Sleep(5 * longest)
	if got := sealing(t, b.QP).Generation(); got > last+2 {
		t.Errorf("generation %d, and no packet has come since %d", got, last)
	}
}

// TestSilentPeerEndsSealing has a peer that says nothing any more, while much
// is to be sent to it: the key seals as many packets as it may, and the queue
// pair ends.
func TestSilentPeerEndsSealing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		for _, s := range []*sealedSide{a, b} {
			verbs.LimitKeys(s.Dev, psp.Limits{Packets: 50, Most: 100})
		}
		seal(t, a.QP, b.QP, verbs.SealGCM128)
		l := newLedger(t, b.QP)
		a.cable.Take()
		write := func(n int) error {
			check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, n), Remote: b.MR.RemoteAt(0)}))
			wc := a.Next(t)
			return wc.Err()
		}
		for range 300 {
			check(t, write(8))
		}
		l.take(t, a.cable.Take())
		g := l.chain.Generation()
		b.Port.Cut()
		if err := write(1 << 20); !errors.Is(err, verbs.StatusRetryExcErr) {
			t.Errorf("to a peer that is silent: %v", err)
		}
		l.take(t, a.cable.Take())
		if c := a.Dev.SealCounters(); l.chain.Generation() > g+1 || l.iv != 100 || c.NoKey == 0 {
			t.Errorf("generation %d after %d, of which %d packets are sealed: %+v", l.chain.Generation(), g, l.iv, c)
		}
	})
}

// TestGoodputWhileSealed compares the time that operations take over a bad
// path, in clear and sealed with new keys each 100 packets: they do as many.
func TestGoodputWhileSealed(t *testing.T) {
	t.Parallel()
	ops := 5_000
	if testing.Short() || race.Enabled {
		ops = 1_000
	}
	var took [2]time.Duration
	for seed := range uint64(3) {
		for i := range took {
			synctest.Test(t, func(t *testing.T) {
				port := fabric.PortConfig{Rate: 10e9, Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, Delay: 20 * time.Microsecond}
				a, b := sealedPairOf(t, fabric.Config{Seed: seed, Port: port}, verbs.Config{Sealing: true, RekeyPackets: 100, Spin: -1})
				if i == 1 {
					seal(t, a.QP, b.QP, verbs.SealGCM128)
				}
				begun := time.Now()
				work(t, a, b, ops)
				took[i] += time.Since(begun)
			})
		}
	}
	t.Logf("in clear %v, sealed %v", took[0], took[1])
	if ratio := float64(took[1]) / float64(took[0]); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("operations take %.3f of the time when they are sealed", ratio)
	}
}

// TestRekeyBesideClose has programs that want new keys all the time, from
// goroutines of their own, while there is traffic, and while queue pairs go
// back to RESET, have other keys, and are closed.
func TestRekeyBesideClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPairOf(t, fabric.Config{}, verbs.Config{Sealing: true, RekeyPackets: 7})
		ctx, cancel := context.WithCancel(t.Context())
		var wishes sync.WaitGroup
		for _, s := range []*sealedSide{a, b} {
			own := sealing(t, s.QP)
			wishes.Go(func() {
				for ctx.Err() == nil {
					own.Rekey()
					own.Generation()
					time.Sleep(time.Microsecond)
				}
			})
		}
		for round := range 10 {
			sa, sb := sealing(t, a.QP), sealing(t, b.QP)
			into := [2]verbs.Association{{SPI: sa.SPI(uint8(round)), Key: make([]byte, 16)}, {SPI: sb.SPI(uint8(round)), Key: make([]byte, 16)}}
			into[0].Key[0], into[1].Key[0], into[1].Key[1] = byte(round), byte(round), 1
			check(t, errors.Join(sa.Accept(into[0]), sb.Accept(into[1]), sa.Seal(into[1]), sb.Seal(into[0])))
			for _, s := range []*verbs.Sealing{sa, sb} {
				wishes.Go(func() {
					for range 100 {
						s.Rekey()
						time.Sleep(time.Microsecond)
					}
				})
			}
			for range 20 {
				check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 9000), Remote: b.MR.RemoteAt(0)}))
				wc := a.Next(t)
				check(t, wc.Err())
			}
			if g := sa.Generation(); g < 8 {
				t.Errorf("round %d: %d new keys", round, g)
			}
			reset := &verbs.Attr{State: verbs.StateReset}
			check(t, errors.Join(a.QP.Modify(reset, verbs.AttrState), b.QP.Modify(reset, verbs.AttrState)))
			verbstest.Connect(t, a.QP, b.QP)
		}
		check(t, errors.Join(a.QP.Close(), b.QP.Close()))
		cancel()
		wishes.Wait()
	})
}

// TestRekeySettings has values that cannot be.
func TestRekeySettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  verbs.Config
		want string
	}{
		{verbs.Config{RekeyPackets: 100}, "without Sealing"},
		{verbs.Config{RekeyAfter: time.Hour}, "without Sealing"},
		{verbs.Config{Sealing: true, RekeyAfter: -1}, "RekeyAfter is -1ns"},
		{verbs.Config{Sealing: true, RekeyPackets: 1<<26 + 1}, "at most 67108864"},
	} {
		port, err := fabric.NewSwitch(fabric.Config{}).Attach(addrsOfSealed[0])
		check(t, err)
		if _, err := verbs.OpenLink(port, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}
