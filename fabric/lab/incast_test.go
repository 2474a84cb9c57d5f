package lab

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

const ms = 1000 * us

// incastOf is k hosts that write to one for ever, at 40 Gb/s with packets of
// 1024 bytes: the evaluation of the paper on DCQCN.
func incastOf(k int) Scenario {
	return Scenario{
		Name: fmt.Sprintf("incast %d:1", k), Seed: 1, Until: 200 * ms, Warm: 100 * ms, Every: 20 * us,
		Network: Network{Topology: "star", Hosts: k + 1, Rate: 40 * Gbps, Profile: "dcqcn-paper"},
		Adapter: Adapter{MTU: 1024, Control: "dcqcn-paper", Window: 1e6, Notify: 50 * us},
		Traffic: []Traffic{{Kind: "incast", Senders: k}},
	}
}

// wirePacket is what a packet of 1024 bytes takes of a cable.
const wirePacket = 1106

// payloadRate is what a cable of 40 Gb/s carries in such packets: 37.03 Gb/s.
const payloadRate = 40 * Gbps * 1024 / wirePacket

// fixedPoint is the queue at which the fluid model of DCQCN with the parameters
// of the paper stands still: Kmin + p/Pmax (Kmax-Kmin), with p the cube root of
// (Rai N^2/(t C^2)) (1/B + N/(T C))^2, of rates in packets (Zhu et al., "ECN or
// Delay", CoNEXT 2016, theorem 1). It is an approximation for small p. Above
// Kmax there is none.
func fixedPoint(n int) float64 {
	const seconds, packets, kmin, kmax, pmax = 55e-6, 10e6 / wirePacket, 5e3, 200e3, .01
	rate, rai, N := 40e9/8/wirePacket, 40e6/8/wirePacket, float64(n)
	p := math.Cbrt(rai * N * N / (seconds * rate * rate) * math.Pow(1/packets+N/(seconds*rate), 2))
	return kmin + p/pmax*(kmax-kmin)
}

// TestIncast: DCQCN with the parameters of the paper shares one cable fairly
// among 2 to 20 senders, fills it, and pauses nobody. The queue before it is
// that of the fixed point, as long as that is below Kmax.
func TestIncast(t *testing.T) {
	t.Parallel()
	cases := []struct {
		k     int
		share float64 // of the payload rate, at the least
	}{{2, .98}, {4, .98}, {8, .98}, {16, .95}, {20, .95}}
	lines := make([]string, len(cases))
	var all sync.WaitGroup
	for i, c := range cases {
		all.Go(func() {
			r, err := Run(t.Context(), incastOf(c.k))
			if err != nil {
				t.Error(err)
				return
			}
			_, sum, jain := r.Rates()
			share, queue, fixed := float64(sum)/float64(payloadRate), r.Queues[0], fixedPoint(c.k)
			lines[i] = fmt.Sprintf("%d\t%.2f\t%.1f %%\t%.4f\t%.1f KB\t%.1f KB\t%.0f KB\t%d\t%d\t%d\t%d\t%016x\t\n", c.k, float64(sum)/1e9, 100*share, jain,
				float64(queue.Mean)/1e3, min(fixed, 200e3)/1e3, float64(queue.Max)/1e3, r.Totals.XOFFs, r.Totals.Marks, r.Stats.CNPsReceived, r.Totals.Events, r.Digest)
			if share < c.share || share > 1 || jain < .99 {
				t.Errorf("%d:1: %.4f of the payload rate, Jain %.4f", c.k, share, jain)
			}
			if mean := float64(queue.Mean); fixed < 200e3 && (mean < fixed*.7 || mean > fixed*1.3) || mean > 200e3 {
				t.Errorf("%d:1: the mean queue is %.0f, and %.0f in the fixed point", c.k, mean, fixed)
			}
			if r.Totals.XOFFs > 0 || r.Stats.Retransmits > 0 || r.Stats.Probes > 0 {
				t.Errorf("%d:1: %d pauses, %d packets sent again, %d probes", c.k, r.Totals.XOFFs, r.Stats.Retransmits, r.Stats.Probes)
			}
		})
	}
	all.Wait()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "K:1\tsum Gb/s\tof payload rate\tJain\tmean queue\tfixed point\tlongest\tXOFF\tmarks\tCNPs\tevents\tdigest\t\n")
	fmt.Fprint(w, strings.Join(lines, ""))
	w.Flush()
	golden(t, "incast", b.String())
}

// TestIncastOfMessages: 16 hosts write 1 MiB each to one, at 100 Gb/s, which
// takes 1.37 ms at the least. Queues are bounded and lossy, and mark from a
// quarter on. Nobody may be late by much: not the window, nor DCQCN as adapters
// have it, which begins at the rate of the port.
func TestIncastOfMessages(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "control\tin flight at most\tqueue\tall have ended\tdropped\tsent again\tdigest\t\n")
	for _, c := range []struct {
		control string
		window  Bytes
	}{{"window", 128 << 10}, {"dcqcn-adapter", 512 << 10}} {
		for _, queue := range []Bytes{4 << 20, 1 << 20, 256 << 10} {
			r := play(t, Scenario{
				Seed:    1,
				Network: Network{Topology: "star", Hosts: 17, Lossy: true, QueueMax: queue, Buffer: 32e6, RED: &RED{Kmin: queue / 4, Kmax: queue / 4, Pmax: 1}},
				Adapter: Adapter{Control: c.control, Window: c.window},
				Traffic: []Traffic{{Kind: "incast", Senders: 16, Bytes: 1 << 20}},
			})
			done, failed, last := r.Done()
			var drops uint64
			for _, n := range r.Totals.Drops {
				drops += n
			}
			fmt.Fprintf(w, "%s\t%v\t%v\t%v\t%d\t%d\t%016x\t\n", c.control, c.window, queue, last, drops, r.Stats.Retransmits, r.Digest)
			if done != 16 || failed > 0 || last > 2*ms {
				t.Errorf("%s, %v of queue: %d of 16 by %v, %d failed", c.control, queue, done, last, failed)
			}
		}
	}
	w.Flush()
	golden(t, "incast-messages", b.String())
}
