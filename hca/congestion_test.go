package hca

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
)

// A switch that marks packets before its queue is full loses none of them if
// they are ECN-capable: the receiver notifies the sender, which slows down (RFC
// 3168 5, IBTA A17.9).
func TestMarkedPackets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ect0 = 2
		plain, long := sendThroughBottleneck(t, 0)
		marked, short := sendThroughBottleneck(t, ect0)
		if plain == 0 || marked > 0 || short > long {
			t.Errorf("%d packets lost in %v, with marks %d in %v", plain, long, marked, short)
		}
	})
}

// sendThroughBottleneck writes some megabytes from a fast port to a slow one,
// and returns how many packets were lost and how long it took.
func sendThroughBottleneck(t *testing.T, class uint8) (drops uint64, elapsed time.Duration) {
	sw := fabric.NewSwitch(fabric.Config{})
	host := func(addr netip.Addr, c fabric.PortConfig) (*host, *fabric.Port) {
		p, err := sw.AttachPort(addr, c)
		if err != nil {
			t.Fatal(err)
		}
		h := &host{t: t, dev: New(Config{}, p)}
		h.equip()
		return h, p
	}
	a, pa := host(testAddrA, fabric.PortConfig{Rate: 10e9, Delay: 10 * time.Microsecond, ECNThreshold: 16 << 10})
	b, pb := host(testAddrB, fabric.PortConfig{Rate: 1e9, Delay: 10 * time.Microsecond, QueueBytes: 128 << 10, ECNThreshold: 16 << 10})
	qa, qb := a.newQP(), b.newQP()
	a.connectVia(qa, ib.AddressVector{DGID: testAddrB, HopLimit: 64, TrafficClass: class}, qb.QPN())
	b.connectVia(qb, ib.AddressVector{DGID: testAddrA, HopLimit: 64, TrafficClass: class}, qa.QPN())
	start := time.Now()
	for range 8 {
		for range 4 {
			a.write(qa, b, 256<<10)
		}
		a.waitOK(4)
	}
	elapsed = time.Since(start)
	sa, sb, c := qa.Stats(), qb.Stats(), pb.Counters()
	t.Logf("class %d: %v, %d packets marked, %d CNPs, %d cuts, %d packets lost", class, elapsed, c.Marked, sb.CNPsSent, sa.WindowCuts, c.TailDrops)
	if (c.Marked > 0) != (class != 0) || sb.ECNMarked > c.Marked || (sb.CNPsSent > 0) != (c.Marked > 0) ||
		sb.CNPsSent > 1+uint64(elapsed/(50*time.Microsecond)) || sa.CNPsReceived != sb.CNPsSent || pa.Counters().Marked > 0 {
		t.Errorf("class %d: %d packets marked, %d arrived, %d CNPs sent, %d arrived", class, c.Marked, sb.ECNMarked, sb.CNPsSent, sa.CNPsReceived)
	}
	return c.TailDrops, elapsed
}
