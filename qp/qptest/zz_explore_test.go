package qptest

import (
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

func TestZZExplore(t *testing.T) {
	for _, mtu := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
		for _, op := range []qp.WROpcode{qp.OpWrite, qp.OpRead} {
			for _, loss := range []float64{0.001, 0.01, 0.05} {
				f, err := newFlood(op, mtu, loss, time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				rate, err := f.run()
				s := f.endpoint[0].Stats()
				fmt.Printf("%v %d %g: %.0f  ms=%.0f rtx=%d to=%d probes=%d restarts=%d cuts=%d nakrx=%d replays=%d %v\n", op, mtu.Bytes(), loss, rate/1e6, float64(f.now)/1e6, s.Retransmits, s.Timeouts, s.Probes, s.Restarts, s.WindowCuts, s.NAKSeqReceived, f.endpoint[1].Stats().ReadReplays, err)
			}
		}
	}
}
