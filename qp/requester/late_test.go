package requester

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// selectiveAck hands a selective acknowledgement to the requester.
func (e *end) selectiveAck(now clock.Time, psn rocev2.PSN, kept []byte) {
	e.t.Helper()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.SelectiveAck, PSN: psn}, Payload: kept}
	p.AETH = rocev2.AETH{Syndrome: rocev2.ACKNoCredits}
	info, _ := p.BTH.Opcode.Info()
	e.r.HandleResponse(now, &p, info)
	if err := e.r.Check(); err != nil {
		e.t.Fatal(err)
	}
}

// TestForgedSelectiveAcks: whatever selective acknowledgements say, they change
// nothing but what is sent again, and only packets in flight are. Nothing
// completes before its own acknowledgement, and then all does.
func TestForgedSelectiveAcks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0xf04))
		e := newEnd(t, cc.NewWindow(cc.Config{MaxPSNs: 4096}))
		e.c.Pool = queue.NewPool(256)
		const packets = 200
		e.write(packets * 256)
		now := clock.Time(1)
		first := e.r.stream.una
		e.poll(now)
		for range 200 {
			now += clock.Time(rng.IntN(20000))
			kept := make([]byte, rng.IntN(28))
			for i := range kept {
				bits := rng.Uint32()
				kept[i] = byte(bits) | byte(bits>>8) // three of four are kept
			}
			e.selectiveAck(now, e.r.stream.una, kept)
			if at, ok := e.r.Deadline(); ok && at <= now && rng.IntN(2) == 0 {
				e.r.HandleTimeout(now)
			}
			for _, psn := range e.poll(now) {
				if psn.Ahead(first) >= packets {
					t.Fatalf("seed %d: %v is sent, of %d packets from %v on", seed, psn, packets, first)
				}
			}
		}
		if e.done != 0 || e.r.recovery.gaps.late.path.Window() > queue.MaxReordering {
			t.Fatalf("seed %d: %d are done, the reordering window is %d", seed, e.done, e.r.recovery.gaps.late.path.Window())
		}
		for range 100 {
			e.answer(now, e.r.stream.max.Add(-1), rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: 1})
			e.poll(now)
			if e.done == 1 {
				break
			}
			now += 100e6
			e.r.HandleTimeout(now)
			e.poll(now)
		}
		if e.done != 1 || e.r.stream.ring.Len() != 0 {
			t.Errorf("seed %d: %d are done, %d are left", seed, e.done, e.r.stream.ring.Len())
		}
	}
}
