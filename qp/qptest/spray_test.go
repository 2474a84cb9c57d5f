package qptest

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// sprayed is what a flood over several ways came to.
type sprayed struct {
	rate  float64 // of payload, bits per second
	again float64 // packets with data that were sent beyond those that there are, of all
	other float64 // packets of the other direction, for each of these
	cuts  uint64
}

// spray runs a flood between native peers with the probe timer of adapters in
// virtual time.
func spray(t *testing.T, op ib.Opcode, p floodParams) sprayed {
	t.Helper()
	p.probe, p.own = 80*time.Microsecond, true
	f, err := newFlood(op, rocev2.MTU4096, p)
	if err != nil {
		t.Fatal(err)
	}
	var sent [2]int
	f.hooks.sent = func(q *simQP, _ []byte, _, _ bool) {
		if q == f.endpoint[0] {
			sent[0]++
		} else {
			sent[1]++
		}
	}
	var r sprayed
	if r.rate, err = f.run(); err != nil {
		t.Errorf("%v, %+v: %v", op, p, err)
	}
	data, total := 0, f.messages*f.size/rocev2.MTU4096.Bytes()
	if op == ib.OpRead {
		data = 1
	}
	acks := f.endpoint[data].Stats().AcksSent
	r.again = float64(sent[data]-total-int(acks)) / float64(total)
	r.other, r.cuts = float64(sent[1-data])/float64(total), f.endpoint[0].Stats().WindowCuts
	return r
}

// TestSpray: packets take any of several ways, of which one is up to 16 packet
// times longer than another, and none is lost. Hardly any is sent twice, and
// the rate is that of one way, in both directions.
func TestSpray(t *testing.T) {
	t.Parallel()
	for op, most := range map[ib.Opcode]float64{ib.OpSend: 0.001, ib.OpWrite: 0.001, ib.OpRead: 0.005} {
		one := spray(t, op, floodParams{})
		for _, ways := range []int{4, 8, 16} {
			r := spray(t, op, floodParams{ways: ways})
			if r.again > most || r.rate < 0.95*one.rate || r.cuts > 5 || r.other > 0.45 {
				t.Errorf("%v over %d ways: %.0f Mb/s, %.0f over one, %.3f %% sent again, %.2f answers a packet, %d cuts",
					op, ways, r.rate/1e6, one.rate/1e6, 100*r.again, r.other, r.cuts)
			}
		}
	}
}

// TestSprayWithLoss: where packets are lost as well, they are repaired, and the
// others are not sent again.
func TestSprayWithLoss(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
		for _, loss := range []float64{0.0001, 0.001, 0.01} {
			r := spray(t, op, floodParams{ways: 16, loss: loss})
			if r.again > 1.1*loss+0.005 || r.rate < 9.2e9 || r.other > 0.45 {
				t.Errorf("%v, loss of %g %%: %.0f Mb/s, %.3f %% sent again, %.2f answers a packet, %d cuts",
					op, 100*loss, r.rate/1e6, 100*r.again, r.other, r.cuts)
			}
		}
	}
}
