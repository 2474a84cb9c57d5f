package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// However many queue pairs always have something to send to a host, each goes
// on, also where a batch arrives at once and one acknowledgement frees all that
// a queue pair has in flight.
func TestLimitIsFair(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 8, 30} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			for _, mtu := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
				t.Run(fmt.Sprintf("%d %v %v", n, op, mtu), func(t *testing.T) {
					t.Parallel()
					limitIsFair(t, n, op, mtu)
				})
			}
		}
	}
}

func limitIsFair(t *testing.T, n int, op ib.Opcode, mtu rocev2.MTU) {
	const limit, size, messages = 106 << 10, 64 << 10, 12
	w := newWorld(t, 1)
	w.rate, w.delay = 10e9, 20*time.Microsecond
	a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: limit}})
	a.mtu, b.mtu = mtu, mtu
	byQPN := map[rocev2.QPN]*QP{}
	var order []*QP
	for range n {
		q, _ := connectPair(a, b, true)
		byQPN[q.QPN()] = q
		order = append(order, q)
	}
	for _, q := range order {
		for range 4 {
			a.post(q, op, b, size)
		}
	}
	done := map[rocev2.QPN]int{}
	for total := 0; total < messages*n; {
		a.wait(1)
		for _, c := range a.done {
			if c.Status != ib.StatusSuccess {
				t.Fatalf("%v", c)
			}
			done[c.QPN]++
			total++
		}
		again := a.done
		a.done = nil
		for _, c := range again {
			a.post(byQPN[c.QPN], op, b, size)
		}
	}
	least, most := 1<<30, 0
	for qpn := range byQPN {
		least, most = min(least, done[qpn]), max(most, done[qpn])
	}
	if least < most/3 {
		t.Errorf("one queue pair has sent %d messages, another one %d", least, most)
	}
}
