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
		Adapter: Adapter{MTU: 1024, Control: "dcqcn", Window: 1e6, Notify: 50 * us},
		Traffic: []Traffic{{Kind: "incast", Senders: k}},
	}
}

// wirePacket is what a packet of 1024 bytes takes of a cable.
const wirePacket = 1106

// payloadRate is what a cable of 40 Gb/s carries in such packets: 37.03 Gb/s.
const payloadRate = 40 * Gbps * 1024 / wirePacket

// Parameters of the paper, with rates in packets a second.
const (
	increase, interval = 55e-6, 50e-6
	counted            = 10e6 / wirePacket // bytes between stages
	stages             = 5.
	line, additive     = 40e9 / 8 / wirePacket, 40e6 / 8 / wirePacket
	kmin, kmax, pmax   = 5e3, 200e3, .01
)

// published is the queue at which the fluid model of DCQCN with the parameters
// of the paper stands still, as an approximation for few marks: Kmin + p/Pmax
// (Kmax-Kmin), with p the cube root of (Rai N^2/(t C^2)) (1/B + N/(T C))^2 (Zhu
// et al., "ECN or Delay", CoNEXT 2016, theorem 1).
func published(n int) float64 {
	N := float64(n)
	p := math.Cbrt(additive * N * N / (increase * line * line) * math.Pow(1/counted+N/(increase*line), 2))
	return kmin + p/pmax*(kmax-kmin)
}

// fixedPoint is that queue without the approximation, as far as the model goes:
// the p at which a flow with R = C/N is cut as fast as it grows. With q = 1-p,
// there are c = (1-q^(50 us R))/50 us cuts a second, alpha = 1-q^(55 us R), and
// b = R p/(q^-B - 1), t = R p/(q^(-T R) - 1) stages of bytes and of time. The
// target is above the rate by D, where Rai (b q^(F B) + t q^(F T R)) = c D, and
// the rate stands still where D/2 (b + t) = R alpha/2 c. For 2, 4, 8 flows p is
// 0.086, 0.209, 0.503 % and the queue 21.8, 45.7, 103 KB; for 16 and 20 it is
// above Pmax: there is none below Kmax, from where on every packet is marked.
func fixedPoint(n int) float64 {
	R := line / float64(n)
	grows := func(p float64) bool {
		q := 1 - p
		cuts, alpha := (1-math.Pow(q, interval*R))/interval, 1-math.Pow(q, increase*R)
		b, t := R*p/(math.Pow(q, -counted)-1), R*p/(math.Pow(q, -increase*R)-1)
		D := additive * (b*math.Pow(q, stages*counted) + t*math.Pow(q, stages*increase*R)) / cuts
		return D/2*(b+t) > R*alpha/2*cuts
	}
	low, high := 1e-6, .1
	for range 60 {
		if p := math.Sqrt(low * high); grows(p) {
			low = p
		} else {
			high = p
		}
	}
	return kmin + low/pmax*(kmax-kmin)
}

// incast: DCQCN with the parameters of the paper shares one cable fairly among
// 2 to 20 senders, fills it, and causes no pauses. The queue before it is below
// 100 KB, and near the fixed point as long as there is one below Kmax. With
// more senders it goes up and down between almost nothing and above Kmax, where
// all of them are cut at once: so it is shorter in the mean, and a little of
// the rate is lost.
func incast(t *testing.T) {
	t.Parallel()
	cases := []struct {
		k     int
		share float64 // of the payload rate, at least
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
			share, queue, fixed := float64(sum)/float64(payloadRate), r.Queues[0], [2]float64{fixedPoint(c.k), published(c.k)}
			lines[i] = fmt.Sprintf("%d\t%.2f\t%.1f %%\t%.4f\t%.1f KB\t%s\t%s\t%.0f KB\t%d\t%d\t%d\t%d\t%016x\t\n", c.k, float64(sum)/1e9, 100*share, jain,
				float64(queue.Mean)/1e3, below(fixed[0]), below(fixed[1]), float64(queue.Max)/1e3, r.Totals.XOFFs, r.Totals.Marks, r.Stats.CNPsReceived, r.Totals.Events, r.Digest)
			if share < c.share || share > 1 || jain < .99 {
				t.Errorf("%d:1: %.4f of the payload rate, Jain %.4f", c.k, share, jain)
			}
			mean := float64(queue.Mean)
			if mean > 100e3 {
				t.Errorf("%d:1: the mean queue is %.0f", c.k, mean)
			}
			for i, f := range fixed {
				if (c.k <= 4 || i == 0 && f < kmax) && (mean < f*.7 || mean > f*1.3) {
					t.Errorf("%d:1: the mean queue is %.0f, and %.0f in the fixed point", c.k, mean, f)
				}
			}
			if r.Totals.XOFFs > 0 || r.Stats.Retransmits > 0 || r.Stats.Probes > 0 {
				t.Errorf("%d:1: %d pauses, %d packets sent again, %d probes", c.k, r.Totals.XOFFs, r.Stats.Retransmits, r.Stats.Probes)
			}
		})
	}
	all.Wait()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "K:1\tsum Gb/s\tof payload rate\tJain\tmean queue\tfixed point\tpublished\tlongest\tXOFF\tmarks\tCNPs\tevents\tdigest\t\n")
	fmt.Fprint(w, strings.Join(lines, ""))
	w.Flush()
	golden(t, "incast", b.String())
}

// below writes a queue, if there is one below Kmax.
func below(queue float64) string {
	if queue > kmax {
		return "none"
	}
	return fmt.Sprintf("%.1f KB", queue/1e3)
}

// TestIncastOfMessages: 16 hosts write 1 MiB each to one, at 100 Gb/s, which
// takes at least 1.37 ms. Queues are bounded and lossy, and mark from a quarter
// on. No control may be late by much: neither the window, nor DCQCN as adapters
// have it, which begins at the rate of the port. With a notification every 4
// us, DCQCN goes down faster than the queue: to its least value, and for all
// senders alike, so that they come back together 300 us later. That takes
// longer than with one every 50 us, or with one every 4 us for all queue pairs
// of the port.
func TestIncastOfMessages(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "control\tin flight at most\tnotifications\tqueue\tall have ended\tdropped\tsent again\tdigest\t\n")
	for _, c := range []struct {
		control string
		window  Bytes
		notify  Time
		scope   string
		most    Time
	}{
		{"window", 128 << 10, 50 * us, "qp", 2 * ms},
		{"dcqcn-adapter", 512 << 10, 50 * us, "qp", 2 * ms},
		{"dcqcn-adapter", 512 << 10, 4 * us, "qp", 2500 * us}, // what is the default with it
		{"dcqcn-adapter", 512 << 10, 4 * us, "port", 2100 * us},
	} {
		for _, queue := range []Bytes{4 << 20, 1 << 20, 256 << 10} {
			r := play(t, Scenario{
				Seed:    1,
				Network: Network{Topology: "star", Hosts: 17, Lossy: true, QueueMax: queue, Buffer: 32e6, RED: &RED{Kmin: queue / 4, Kmax: queue / 4, Pmax: 1}},
				Adapter: Adapter{Control: c.control, Window: c.window, Notify: c.notify, NotifyScope: c.scope},
				Traffic: []Traffic{{Kind: "incast", Senders: 16, Bytes: 1 << 20}},
			})
			done, failed, last := r.Done()
			var drops uint64
			for _, n := range r.Totals.Drops {
				drops += n
			}
			fmt.Fprintf(w, "%s\t%v\t%v a %s\t%v\t%v\t%d\t%d\t%016x\t\n", c.control, c.window, c.notify, c.scope, queue, last, drops, r.Stats.Retransmits, r.Digest)
			if done != 16 || failed > 0 || last > c.most {
				t.Errorf("%s, %v of queue: %d of 16 by %v, %d failed", c.control, queue, done, last, failed)
			}
		}
	}
	w.Flush()
	golden(t, "incast-messages", b.String())
}
