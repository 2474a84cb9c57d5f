package lab

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
)

// gapCase is flows over a path that is long for its rate, or that many share,
// so that many packets are in flight when one is lost.
type gapCase struct {
	from   int   // hosts that send to one
	pairs  int   // queue pairs of each
	mtu    int   // path MTU
	window Bytes // 0: what engines have
	rtt    Time
	until  Time
	op     string
}

func (c *gapCase) scenario(loss float64, seed uint64) Scenario {
	s := Scenario{Seed: seed, Warm: c.until / 5, Until: c.until}
	s.Network = Network{Topology: "pair", Delay: c.rtt / 2, Loss: loss}
	if c.from > 1 {
		s.Network.Topology, s.Network.Hosts, s.Network.Delay = "star", c.from+1, c.rtt/4
	}
	s.Adapter = Adapter{MTU: c.mtu, Window: c.window}
	for from := range c.from {
		to := c.from
		if c.op == "read" {
			from, to = to, from
		}
		for range c.pairs {
			s.Traffic = append(s.Traffic, Traffic{Kind: "flow", From: from, To: to, Op: c.op})
		}
	}
	return s
}

// gaps: what is in flight when a packet is lost is kept, however much that is,
// so a loss now and then costs next to nothing. A READ is asked for again in
// one piece.
func gaps(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintln(&b, "Flows to one host at 100 Gb/s, of which cables lose 1 packet of 100,000.")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "hosts\tQPs\tMTU\twindow\tround trip\toperation\twithout loss\twith\tshare\tlost\tsent again\t\n")
	for _, c := range []gapCase{
		{1, 1, 1024, 4 << 20, 200 * us, 60_000 * us, "write"},
		{1, 1, 1024, 4 << 20, 200 * us, 60_000 * us, "send"},
		{1, 1, 1024, 4 << 20, 200 * us, 60_000 * us, "read"},
		{1, 16, 1024, 4 << 20, 200 * us, 60_000 * us, "write"},
		{1, 16, 1024, 4 << 20, 200 * us, 60_000 * us, "read"},
		{1, 1, 1024, 16 << 20, 20_000 * us, 1_000_000 * us, "write"},
		{1, 1, 1024, 16 << 20, 20_000 * us, 1_000_000 * us, "send"},
		{1, 1, 1024, 16 << 20, 20_000 * us, 1_000_000 * us, "read"},
		{1, 4, 4096, 16 << 20, 2_000 * us, 60_000 * us, "write"},
		{1, 4, 4096, 16 << 20, 2_000 * us, 60_000 * us, "read"},
		{1, 1, 256, 0, 500 * us, 150_000 * us, "write"},
		{1, 1, 256, 0, 500 * us, 150_000 * us, "send"},
		{1, 1, 256, 0, 500 * us, 150_000 * us, "read"},
		{1, 16, 256, 0, 500 * us, 150_000 * us, "write"},
		{1, 1, 256, 4 << 20, 20 * us, 30_000 * us, "write"},
		{1, 1, 1024, 4 << 20, 20 * us, 30_000 * us, "write"},
		{1, 1, 4096, 0, 200 * us, 60_000 * us, "write"},
		{1, 1, 4096, 0, 200 * us, 60_000 * us, "read"},
		{8, 1, 1024, 0, 200 * us, 60_000 * us, "write"},
		{8, 1, 4096, 0, 200 * us, 60_000 * us, "write"},
		{8, 2, 256, 0, 200 * us, 60_000 * us, "send"},
	} {
		rate := func(loss float64) (float64, *Result) {
			r := play(t, c.scenario(loss, 1))
			sum := Rate(0)
			for _, f := range r.Flows {
				sum += r.Rate(f)
			}
			return float64(sum) / 1e9, r
		}
		without, _ := rate(0)
		with, r := rate(1e-5)
		window := "default"
		if c.window > 0 {
			window = fmt.Sprintf("%d MiB", c.window>>20)
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%v\t%s\t%.1f Gb/s\t%.1f\t%.2f\t%d\t%d\t\n", c.from, c.pairs, c.mtu, window, c.rtt, c.op,
			without, with, with/without, r.Totals.Dropped(), r.Stats.Retransmits)
		if with < 0.9*without {
			t.Errorf("%+v: %.1f Gb/s, without loss %.1f", c, with, without)
		}
		if again, lost := r.Stats.Retransmits, r.Totals.Dropped(); again > 64*lost || c.op != "read" && again > 16*lost {
			t.Errorf("%+v: %d packets were sent again, and %d lost", c, again, lost)
		}
	}
	w.Flush()
	golden(t, "gaps", b.String())
}
