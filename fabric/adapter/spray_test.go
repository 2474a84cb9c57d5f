package adapter

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/qp"
)

// permuted is what a permutation of WRITEs came to: of 8 MiB, among 128 hosts,
// over 16 equal ways, at 100 Gb/s, without loss.
type permuted struct {
	slowdown float64 // over what the packets take on one cable, on average
	again    float64 // what part of the packets was sent again
	cuts     uint64
}

func permute(t *testing.T, by network.Routing, c Connection) (r permuted) {
	t.Helper()
	const hosts, bytes = 128, 8 << 20
	a := leafSpineBy(t, 8, 16, 16, Config{Seed: 1, MinProbe: 80 * time.Microsecond,
		Window: qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10, MaxPSNs: 4096}}, by)
	var sum event.Time
	done := 0
	for i := range hosts {
		x, _ := mustConnect(t, a, i, (i+hosts/2)%hosts, c)
		if err := x.Post(Request{Op: ib.OpWrite, Bytes: bytes, Done: func(Completion) {
			done++
			sum += a.Now()
		}}); err != nil {
			t.Fatal(err)
		}
	}
	a.Network().Run(event.Second)
	if done != hosts {
		t.Fatalf("%d of %d WRITEs are done", done, hosts)
	}
	const packets = bytes / 4096
	alone := packets * float64(network.WireSize(20+8+12+16+4096+4)*8) / 100e9 // seconds
	s := a.Stats()
	r.slowdown = float64(sum) / hosts / float64(event.Second) / alone
	r.again, r.cuts = float64(s.Retransmits)/(hosts*packets), s.WindowCuts
	return r
}

// TestSpray: switches send each packet over another way. Between native peers
// hardly any is sent twice, and all have the rate of their cable. Where flows
// keep to one way by chance, and with go-back-N, they do not.
func TestSpray(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("the race detector makes it minutes long: TestSeeds has what it could find (run it without -race)")
	}
	if r := permute(t, network.Spray, Connection{}); r.slowdown > 1/0.95 || r.again >= 0.001 {
		t.Errorf("spraying: slowdown %.3f, %.3f %% sent again, %d cuts", r.slowdown, 100*r.again, r.cuts)
	}
	if r := permute(t, network.ECMP, Connection{}); r.slowdown < 1.8 || r.again != 0 {
		t.Errorf("ECMP: slowdown %.3f, %.3f %% sent again, %d cuts", r.slowdown, 100*r.again, r.cuts)
	}
	if r := permute(t, network.Spray, Connection{Foreign: true}); r.slowdown < 2 || r.again < 0.1 {
		t.Errorf("go-back-N: slowdown %.3f, %.3f %% sent again, %d cuts", r.slowdown, 100*r.again, r.cuts)
	}
}
