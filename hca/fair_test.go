package hca

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// However many queue pairs always have something to send to a host, each goes
// on.
func TestLimitIsFair(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 8, 30} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			for _, mtu := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
				t.Run(fmt.Sprintf("%d %v %v", n, op, mtu), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { limitIsFair(t, n, op, mtu) })
				})
			}
		}
	}
}

func limitIsFair(t *testing.T, n int, op ib.Opcode, mtu rocev2.MTU) {
	const limit, size, messages = 106 << 10, 64 << 10, 12
	port := fabric.PortConfig{Rate: 10e9, Delay: 20 * time.Microsecond}
	a, b := newHosts(t, Config{Window: qp.WindowConfig{MaxBytes: limit}}, fabric.Config{Port: port})
	a.mtu, b.mtu = mtu, mtu
	byQPN := map[rocev2.QPN]*QP{}
	post := func(q *QP) {
		_, err := q.PostSend([]ib.SendWR{{Opcode: op, Signaled: true, SGList: []ib.SGE{a.mr.Region().SGE(0, size)},
			Remote: ib.RemoteAddr{Addr: b.mr.Region().Addr(), RKey: b.mr.Region().RKey()}}})
		a.must(err)
	}
	for range n {
		qa, qb := a.newQP(), b.newQP()
		a.connectVia(qa, ib.AddressVector{DGID: testAddrB, HopLimit: 64, Native: true}, qb.QPN())
		b.connectVia(qb, ib.AddressVector{DGID: testAddrA, HopLimit: 64, Native: true}, qa.QPN())
		byQPN[qa.QPN()] = qa
	}
	for _, q := range byQPN {
		for range 4 {
			post(q)
		}
	}
	done := map[rocev2.QPN]int{}
	var wc [16]ib.WC
	for total := 0; total < messages*n; {
		k, err := a.cq.Wait(t.Context(), wc[:])
		a.must(err)
		for _, c := range wc[:k] {
			if c.Status != ib.StatusSuccess {
				t.Fatalf("%v", c.Status)
			}
			done[c.QPN]++
			total++
			post(byQPN[c.QPN])
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
