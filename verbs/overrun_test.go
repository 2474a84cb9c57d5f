package verbs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// BenchmarkSmallMessages sends from many queue pairs to a socket with the
// receive buffer that Linux grants by default, where packets are not coalesced,
// and tells how many of the packets it drops. The number does not depend on
// -benchtime.
func BenchmarkSmallMessages(b *testing.B) {
	for _, qps := range []int{1, 8, 32} {
		for _, size := range []int{8, 64, 512, 4096} {
			b.Run(fmt.Sprintf("qps=%d/size=%d", qps, size), func(b *testing.B) { smallMessages(b, qps, size) })
		}
	}
}

func smallMessages(b *testing.B, qps, size int) {
	const defaultBuffer, depth = 212992, 64
	open := func() *verbs.Device {
		addr := netip.AddrFrom4([4]byte{127, byte(2 + rand.IntN(200)), byte(rand.IntN(256)), byte(2 + rand.IntN(200))})
		l, err := udp.Open(addr, udp.Config{RecvBuffer: defaultBuffer, DisableGSO: true, DisableGRO: true})
		check(b, err)
		d, err := verbs.OpenLink(l, verbs.Config{})
		check(b, err)
		b.Cleanup(func() { d.Close() })
		return d
	}
	x, y := newSide(b, open(), size), newSide(b, open(), size)
	var wg sync.WaitGroup
	remote := verbs.RemoteAddr{Addr: y.mr.Addr(), RKey: y.mr.RKey()}
	for range qps {
		cq, err := x.dev.CreateCQ(2 * depth)
		check(b, err)
		from, err := x.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: depth})
		check(b, err)
		to := y.newQP(verbs.QPConfig{})
		connect(b, from, to, func(c *verbs.ConnectConfig) { c.PathMTU = rocev2.MTU4096 })
		wg.Go(func() {
			var wc [depth]verbs.WC
			inFlight := 0
			for sent, done := 0, 0; done < b.N; {
				for ; sent < b.N && inFlight < depth; sent, inFlight = sent+1, inFlight+1 {
					check(b, from.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{x.mr.Slice(0, size)}, Remote: remote, Signaled: true}))
				}
				n, err := cq.Wait(context.Background(), wc[:])
				check(b, err)
				for _, c := range wc[:n] {
					if c.Status != verbs.StatusSuccess {
						b.Errorf("completion %v", c.Status)
						return
					}
				}
				inFlight, done = inFlight-n, done+n
			}
		})
	}
	wg.Wait()
	st := y.dev.Stats().Link
	b.ReportMetric(100*float64(st.RxOverflow)/float64(st.RxPackets+st.RxOverflow), "%lost")
}
