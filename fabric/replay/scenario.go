package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/rocev2"
)

// speeds are those of ports, in Gb/s.
var speeds = []int64{1, 10, 25, 40, 50, 100, 200, 400, 800}

// guess is what a capture suggests of its network, and in words from what.
type guess struct {
	mtu   int
	rate  int64         // Gb/s
	delay time.Duration // of a cable
	why   []string
}

func (r *Replay) guess() guess {
	g := guess{rate: 100, delay: time.Microsecond, mtu: rocev2.MTU4096.Bytes()}
	for _, m := range []rocev2.MTU{rocev2.MTU2048, rocev2.MTU1024, rocev2.MTU512, rocev2.MTU256} {
		if r.mtu <= m.Bytes() {
			g.mtu = m.Bytes()
		}
	}
	g.why = append(g.why, fmt.Sprintf("mtu: the longest payload has %d bytes", r.mtu))
	if r.rate > 0 {
		g.rate = speeds[len(speeds)-1]
		for _, s := range slices.Backward(speeds) {
			if r.rate <= s*1e9+s*1e9/50 { // timestamps are not exact
				g.rate = s
			}
		}
		g.why = append(g.why, fmt.Sprintf("rate: %d KiB have left a host, or come to one, with %.3g Gb/s", meterSpan>>10, float64(r.rate)/1e9))
	} else {
		g.why = append(g.why, "rate: the default, because too little was sent to measure one")
	}
	// A packet and its answer cross two cables each, and are stored by the
	// switch.
	wire := time.Duration(int64(g.mtu+perPacket+40) * 8 / g.rate)
	if rtt := r.shortest(2*wire + 3); rtt > 0 {
		g.delay = (rtt - 2*wire) / 4
		g.why = append(g.why, fmt.Sprintf("delay: a quarter of the shortest round trip, %v, less what a packet takes", rtt))
	} else {
		g.why = append(g.why, "delay: the default, because the capture has no round trips, or is from where answers come from")
	}
	g.why = append(g.why, "control and window: those of the simulator, because a capture does not show them: say them in [adapter]")
	return g
}

// Scenario returns a scenario with what the packets so far have told, as TOML.
// It is an error if there was no WRITE, SEND or READ of RC.
func (r *Replay) Scenario(name string) ([]byte, error) {
	if len(r.flows) == 0 {
		return nil, errors.New("the capture has no WRITE, SEND or READ between two hosts by RC: there is nothing to play")
	}
	g := r.guess()
	flows := slices.Clone(r.flows)
	slices.SortStableFunc(flows, func(a, b *flow) int { return cmp.Compare(a.start, b.start) })
	var b strings.Builder
	r.comment(&b, &g)
	fmt.Fprintf(&b, "name = %q\n", plain(name))
	if last := flows[len(flows)-1].start; last > 0 {
		fmt.Fprintf(&b, "limit = \"%ds\"\n", int64(last/time.Second)+10)
	}
	fmt.Fprintf(&b, "\n[network]\ntopology = \"star\"\nhosts = %d\nrate = \"%dGb/s\"\ndelay = \"%dns\"\nred = { kmax = \"0B\" } # marks are those below\n", max(len(r.list), 2), g.rate, g.delay.Nanoseconds())
	recovery := "go-back-n"
	if r.native {
		recovery = "selective"
	}
	fmt.Fprintf(&b, "\n[adapter]\nmtu = %d\nrecovery = %q\n", g.mtu, recovery)
	if !r.ecn {
		b.WriteString("no_ecn = true\n")
	}
	b.WriteString("\n[[traffic]]\nkind = \"list\"\nlist = \"\"\"\nstart,from,to,bytes,op\n")
	for _, f := range flows {
		fmt.Fprintf(&b, "%d.%03dus,%d,%d,%d,%s\n", f.start.Microseconds(), f.start.Nanoseconds()%1000, f.from, f.to, f.bytes(g.mtu), f.op)
	}
	b.WriteString("\"\"\"\n")
	for i, f := range flows {
		writeTold(&b, "loss", i, f.losses())
		writeTold(&b, "mark", i, f.marks)
	}
	text := []byte(b.String())
	s, err := lab.Parse(text)
	if err == nil {
		err = lab.Check(s)
	}
	if err != nil {
		return nil, fmt.Errorf("what the capture has cannot be played: %w", err)
	}
	return text, nil
}

// plain returns a name with the letters that any reader of TOML takes.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '_'
		}
		return c
	}, name)
}

// bytes is how long a flow is: whole packets but for the last one, so that its
// packets are as many, and in their places. An empty one has a byte.
func (f *flow) bytes(mtu int) int64 { return int64(f.packets-1)*int64(mtu) + int64(max(f.last, 1)) }

// losses are packets that were lost in front of the place of the capture, if
// some were, and else those that went again, and so were lost after it.
func (f *flow) losses() []int {
	if f.gaps {
		return f.lost
	}
	return f.again
}

// writeTold writes what becomes of packets of a flow.
func writeTold(b *strings.Builder, kind string, flow int, packets []int) {
	if len(packets) == 0 {
		return
	}
	list := slices.Clone(packets)
	slices.Sort(list)
	list = slices.Compact(list)
	fmt.Fprintf(b, "\n[[%s]]\nflow = %d\npackets = \"", kind, flow)
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		if i == j {
			fmt.Fprint(b, list[i])
		} else {
			fmt.Fprintf(b, "%d-%d", list[i], list[j])
		}
		i = j + 1
	}
	b.WriteString("\"\n")
}

const mostNamed = 256 // hosts in comments

// comment says what the scenario is made from.
func (r *Replay) comment(b *strings.Builder, g *guess) {
	unclear := r.unclear + r.missing
	fmt.Fprintf(b, "# Made from a capture of %d packets: %d flows, %d losses, %d marks.\n", r.packets, len(r.flows), r.scripted(), r.marks)
	for _, why := range g.why {
		fmt.Fprintf(b, "# %s\n", why)
	}
	if unclear > 0 {
		fmt.Fprintf(b, "# %d packets were missing and never came: they are not taken for lost, but for not captured\n", unclear)
	}
	if r.others > 0 {
		fmt.Fprintf(b, "# left out: %d packets of other operations and services\n", r.others)
	}
	if r.leftOut > 0 {
		fmt.Fprintf(b, "# left out: %d packets, losses or marks beyond what a scenario has\n", r.leftOut)
	}
	for i, a := range r.list[:min(len(r.list), mostNamed)] {
		fmt.Fprintf(b, "# host %d is %v\n", i, a)
	}
	if n := len(r.list) - mostNamed; n > 0 {
		fmt.Fprintf(b, "# and %d more\n", n)
	}
	b.WriteByte('\n')
}

// scripted is how many losses the scenario has.
func (r *Replay) scripted() (n int) {
	for _, f := range r.flows {
		n += len(f.losses())
	}
	return n
}
