package lab

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/tcp"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// Result is what a scenario has come to. It is a fact of the code: equal
// scenarios have equal results on any machine.
type Result struct {
	Scenario Scenario
	Hosts    int
	End      Time
	Digest   uint64
	Totals   network.Totals
	Stats    qp.Stats   // of all queue pairs
	TCP      *tcp.Stats // of all connections of TCP; nil: there is none
	Flows    []*Flow    // in the order in which they have begun
	Queues   []Queue    // the longest first
	Still    Time       // since when the network stands still at the end, held up by pauses that do not end (a deadlock); 0: it does not

	Early      error        // what has ended the run before its end; nil: nothing
	Unfinished []Unfinished // then: flows that have an end and have not come to it, those that have begun

	Samples *Samples // of queues, rates and more

	// With Output.Record. LeftOut says what was not kept of it.
	Ports   []Port
	Pauses  []Pause
	LeftOut []string

	// GoBack says, where recovery is go-back-n, of which traffic the window
	// is larger than what it may have in flight; "" of none.
	GoBack string

	Unsent int // packets of Scenario.Losses and Marks that no flow has sent

	graph      *topology.Graph
	iterations [][]Iteration // by traffic
}

func (r *run) result(m *sampler) *Result {
	res := &Result{Scenario: *r.s, Hosts: int(r.g.Hosts()), End: Time(r.net.Now()), Digest: r.net.Digest(),
		Totals: r.net.Totals(), Stats: r.a.Stats(), Flows: r.flows, Queues: m.queues(), Still: m.still(), Samples: &m.samples, graph: r.g, Unsent: unsent(r.told), GoBack: r.tenants.goBack(r.mtu)}
	if r.tcp != nil {
		sum := r.tcp.Stats()
		res.TCP = &sum
	}
	res.iterations = make([][]Iteration, len(r.s.Traffic))
	for _, c := range r.collectives {
		res.iterations[c.t.traffic] = c.times()
	}
	for _, f := range r.flows {
		if f.Bytes == 0 {
			f.Measured = int64(f.received() - f.warm)
		}
	}
	r.rec.result(res)
	slices.SortStableFunc(res.Queues, func(a, b Queue) int { return cmp.Compare(b.Max, a.Max) })
	return res
}

// scaled returns n * by / of, rounded down.
func scaled(n, by, of uint64) int64 {
	hi, lo := bits.Mul64(n, by)
	q, _ := bits.Div64(hi%of, lo, of)
	return int64(q)
}

// Rate returns the payload rate of a flow without an end, since Warm.
func (r *Result) Rate(f *Flow) Rate {
	while := r.End - max(r.Scenario.Warm, f.Start)
	if while <= 0 {
		return 0
	}
	return Rate(scaled(uint64(f.Measured)*8, 1e12, uint64(while)))
}

// Op returns the operation by which the flow's bytes go: write, send, read, or
// tcp.
func (f *Flow) Op() string {
	if f.tenant != nil && f.tenant.tcp != nil {
		return "tcp"
	}
	return operations[f.op]
}

// Rates returns the payload rates of all flows without an end, their sum, and
// Jain's index of fairness: 1 if they are all equal, 1/n if one has all.
func (r *Result) Rates() (rates []Rate, sum Rate, jain float64) {
	squares := 0.0
	for _, f := range r.Flows {
		if f.Bytes == 0 {
			v := r.Rate(f)
			rates = append(rates, v)
			sum += v
			squares += float64(float64(v) * float64(v)) // not fused, as some processors would
		}
	}
	if squares > 0 {
		jain = float64(sum) * float64(sum) / (float64(len(rates)) * squares)
	}
	return rates, sum, jain
}

// Spread are statistics of numbers.
type Spread struct {
	N    int     `json:"flows"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Slowdowns returns the spread of the slowdowns of completed flows with more
// than from bytes, and up to to.
func (r *Result) Slowdowns(from, to int64) Spread {
	return r.slowdowns(func(f *Flow) bool { return f.Bytes > from && f.Bytes <= to })
}

func (r *Result) slowdowns(of func(*Flow) bool) Spread {
	var all []float64
	for _, f := range r.Flows {
		if of(f) && f.Slowdown() > 0 {
			all = append(all, f.Slowdown())
		}
	}
	return spreadOf(all)
}

func spreadOf(v []float64) (s Spread) {
	if s.N = len(v); s.N == 0 {
		return s
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	at := func(percent int) float64 { return v[min((len(v)*percent+99)/100, len(v))-1] }
	s.Mean, s.P50, s.P95, s.P99, s.Max = sum/float64(len(v)), at(50), at(95), at(99), v[len(v)-1]
	return s
}

// Done returns how many flows with an end have completed, how many have
// failed, and when the last one had.
func (r *Result) Done() (done, failed int, last Time) {
	for _, f := range r.Flows {
		switch {
		case f.Status != ib.StatusSuccess:
			failed++
		case f.End > 0:
			done++
			last = max(last, f.End)
		}
	}
	return done, failed, last
}

// WriteTo writes the result as a table.
func (r *Result) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	t := &r.Totals
	fmt.Fprintf(&b, "%s: %d hosts, seed %d\n", orDefault(r.Scenario.Name, "scenario"), r.Hosts, r.Scenario.Seed)
	fmt.Fprintf(&b, "%v of virtual time, %d events, digest %016x\n", r.End, t.Events, r.Digest)
	if r.Early != nil {
		fmt.Fprintf(&b, "ended early: %v\n", r.Early)
	}
	b.WriteByte('\n')
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	r.writeFlows(tab)
	r.writeRates(tab)
	r.writeTraffics(tab)
	fmt.Fprintf(tab, "packets\t%d sent\t%d delivered\t%d dropped%s\n", t.Sent, t.Delivered, t.Dropped(), dropNames(t))
	fmt.Fprintf(tab, "switches\t%d hops\t%d marked\t%d pauses\n", t.Hops, t.Marks, t.XOFFs)
	if r.Still > 0 {
		fmt.Fprintf(tab, "deadlock\tthe network stands still since %v\t%d packets inside\n", r.Still, t.Inside())
	}
	if t.Trimmed+t.Frames+t.Unnoted > 0 {
		fmt.Fprintf(tab, "programs\t%d trimmed\t%d frames\t%d hops without room\n", t.Trimmed, t.Frames, t.Unnoted)
	}
	if t.Storms > 0 {
		fmt.Fprintf(tab, "watchdog\t%d storms ended\n", t.Storms)
	}
	if r.GoBack != "" {
		fmt.Fprintf(tab, "window\t%s\n", r.GoBack)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(tab, "[[loss]], [[mark]]\t%d packets were never sent\n", r.Unsent)
	}
	s := &r.Stats
	fmt.Fprintf(tab, "recovery\t%d sent again\t%d repairs\t%d probes\t%d timeouts\n", s.Retransmits, s.Repairs, s.Probes, s.Timeouts)
	fmt.Fprintf(tab, "congestion\t%d notifications\t%d window cuts\t%d rate cuts\n", s.CNPsReceived, s.WindowCuts, s.RateCuts)
	if t := r.TCP; t != nil {
		fmt.Fprintf(tab, "tcp\t%d segments\t%d sent again\t%d fast recoveries\t%d timeouts\t%d cuts by marks\n", t.Segments, t.Retransmits, t.Recoveries, t.Timeouts, t.Cuts)
	}
	for i, q := range r.Queues {
		if i < 3 {
			fmt.Fprintf(tab, "queue of switch %d, port %d\tmean %v\tmost %v\n", q.Node-r.Hosts, q.Port, Bytes(q.Mean), Bytes(q.Max))
		}
	}
	r.writeFailed(tab)
	r.writeUnfinished(tab)
	tab.Flush()
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// dropNames says why packets were dropped, and of which classes they were.
func dropNames(t *network.Totals) (s string) {
	for why, n := range t.Drops {
		if n > 0 {
			s += fmt.Sprintf(", %d %v", n, network.Drop(why))
		}
	}
	for class, n := range t.ClassDrops {
		if n > 0 {
			s += fmt.Sprintf(", %d of class %d", n, class)
		}
	}
	return s
}

// bands are sizes of flows that are looked at apart.
var bands = []struct {
	name     string
	from, to int64
}{{"up to 10 KB", 0, 10_000}, {"up to 100 KB", 10_000, 100_000}, {"up to 1 MB", 100_000, 1_000_000}, {"above 1 MB", 1_000_000, 1 << 62}}

func (r *Result) writeFlows(w io.Writer) {
	done, failed, last := r.Done()
	if done+failed == 0 {
		return
	}
	fmt.Fprintf(w, "flows\t%d completed\t%d failed\tthe last at %v\n", done, failed, last)
	for _, band := range bands {
		if s := r.Slowdowns(band.from, band.to); s.N > 0 {
			fmt.Fprintf(w, "slowdown, %s\t%d flows\tmean %.3f\tp50 %.3f\tp95 %.3f\tp99 %.3f\tmost %.3f\n", band.name, s.N, s.Mean, s.P50, s.P95, s.P99, s.Max)
		}
	}
}

func (r *Result) writeRates(w io.Writer) {
	rates, sum, jain := r.Rates()
	if len(rates) == 0 {
		return
	}
	fmt.Fprintf(w, "payload\t%v together\t%d flows\tJain %.4f\n", sum, len(rates), jain)
	if len(rates) <= mostLines {
		i := 0
		for _, f := range r.Flows {
			if f.Bytes == 0 {
				fmt.Fprintf(w, "  host %d to %d\t%v\n", f.Src, f.Dst, rates[i])
				i++
			}
		}
	}
}
