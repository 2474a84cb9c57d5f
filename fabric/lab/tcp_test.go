package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// besideTCP has RoCE in a lossless class, and TCP in one that drops.
const besideTCP = `
until = "20ms"
warm = "5ms"
[network]
topology = "star"
hosts = 3
[[traffic]]
name = "roce"
kind = "flow"
from = 1
[[traffic]]
name = "tcp"
kind = "flow"
from = 1
to = 2
transport = "tcp"
tcp = { min_rto = "5ms" }
`

// Two flows leave a host by the same cable, one of RoCE and one of TCP: each
// has half of it, in bytes on the wire. A packet of RoCE has 4096 bytes of
// payload in 4178, and one of TCP 1460 in 1538.
func TestTCPSharesTheHostsCable(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"", "26"} { // in one class, too
		s := parsed(t, besideTCP)
		s.Traffic[1].Class = class
		r := play(t, s)
		for i, want := range []float64{50e9 * 4096 / 4178, 50e9 * 1460 / 1538} {
			if got := float64(r.Traffics()[i].Rate); got < want*.97 || got > want*1.03 {
				t.Errorf("class %q, traffic %d: %.4g bit/s, want %.4g", class, i, got, want)
			}
		}
		if r.TCP == nil || r.TCP.Timeouts != 0 || r.Stats.Timeouts != 0 || r.Totals.Dropped() != 0 {
			t.Errorf("class %q: %+v, %+v", class, r.TCP, r.Totals.Drops)
		}
	}
}

// Alone a long flow takes as long as is said, but for slow start, which it
// comes out of within some round trips, and one that fits into the initial
// window takes exactly that long.
func TestTCPAlone(t *testing.T) {
	t.Parallel()
	for _, n := range []Bytes{1, 1460, 1461, 14600, 64 << 20} {
		s := parsed(t, besideTCP)
		s.Until, s.Warm, s.Limit = 0, 0, Time(event.Second)
		s.Traffic = s.Traffic[1:]
		s.Traffic[0].Bytes = n
		r := play(t, s)
		f := r.Flows[0]
		if took := f.End - f.Start; took < f.Ideal || n <= 14600 && took != f.Ideal || float64(took) > 1.01*float64(f.Ideal) {
			t.Errorf("%v take %v, alone they take %v", n, took, f.Ideal)
		}
		if f.Op() != "tcp" || f.Counters != nil {
			t.Errorf("%s, %+v", f.Op(), f)
		}
	}
}

// A full queue of a class that drops is answered by retransmissions of TCP
// alone: RoCE in its own class loses nothing. In one lossless class nothing is
// dropped, and TCP is paused as RoCE is.
func TestTCPInClasses(t *testing.T) {
	t.Parallel()
	s := parsed(t, besideTCP)
	for i := range s.Traffic {
		s.Traffic[i].Kind, s.Traffic[i].From, s.Traffic[i].To, s.Traffic[i].Senders = "incast", 0, 0, 2
	}
	s.Network.QueueMax = 200_000
	r := play(t, s)
	if r.Totals.ClassDrops[0] == 0 || r.Totals.ClassDrops[3] != 0 || r.TCP.Retransmits == 0 || r.Stats.Retransmits != 0 {
		t.Errorf("a class each: dropped %v, %+v, sent again %d", r.Totals.ClassDrops, r.TCP, r.Stats.Retransmits)
	}
	s.Traffic[1].Class, s.Network.RED = "26", &RED{}
	r = play(t, s)
	if r.Totals.ClassDrops[3] != 0 || r.TCP.Retransmits != 0 || r.Totals.XOFFs == 0 || r.Totals.Disobeyed != 0 {
		t.Errorf("one class: dropped %v, %+v, %d pauses", r.Totals.ClassDrops, r.TCP, r.Totals.XOFFs)
	}
	// With ECN it takes marks for what they are.
	s.Network.RED = nil
	for _, control := range []string{"reno", "dctcp", "cubic"} {
		s.Traffic[1].Control, s.Traffic[1].TCP.ECN = control, control != "dctcp"
		if r = play(t, s); r.TCP.Marked == 0 || r.TCP.Cuts == 0 || r.TCP.Retransmits != 0 {
			t.Errorf("%s: %+v", control, r.TCP)
		}
	}
}

// What happens is the same with more parts, with failures of cables, switches
// and hosts, and the books balance.
func TestTCPInParts(t *testing.T) {
	t.Parallel()
	s := parsed(t, `
until = "3s" # a SYN that is lost goes again after 1 s
[network]
topology = "leaf-spine"
leaves = 4
spines = 2
hosts_per_leaf = 4
loss = 0.001
converge = "100us"
[[traffic]]
kind = "load"
sizes = "websearch"
load = 0.1
until = "400us"
[[traffic]]
kind = "load"
sizes = "hadoop"
load = 0.3
until = "400us"
transport = "tcp"
control = "dctcp"
tcp = { min_rto = "1ms" }
[[traffic]]
kind = "all-to-all"
bytes = "20KB"
transport = "tcp"
class = "26"
tcp = { min_rto = "1ms", mss = 4096, ack_every = 1 }
[[failure]]
cable = 17
at = "100us"
until = "300us"
[[failure]]
kind = "switch"
node = "s5"
at = "200us"
until = "400us"
[[failure]]
kind = "host"
node = "h3"
at = "100us"
until = "300us"
`)
	first := play(t, s)
	if first.TCP.Retransmits == 0 || first.TCP.Timeouts == 0 {
		t.Errorf("%+v", first.TCP)
	}
	for _, f := range first.Flows {
		if f.Bytes > 0 && f.End == 0 {
			t.Errorf("flow from %d to %d has not completed", f.Src, f.Dst)
		}
	}
	for cores := 2; cores <= 5; cores++ {
		s.Cores, s.Every = cores, Time(cores)*7000*us
		s.Output.Record = true
		r := play(t, s)
		if r.Digest != first.Digest || *r.TCP != *first.TCP || r.Totals != first.Totals {
			t.Errorf("%d cores: digest %x, with one %x; %+v, with one %+v", cores, r.Digest, first.Digest, *r.TCP, *first.TCP)
		}
		again := uint64(0)
		for _, f := range r.Flows {
			if f.Op() == "tcp" {
				again += f.Counters.Retransmits
			}
		}
		if again != r.TCP.Retransmits {
			t.Errorf("%d cores: flows have sent %d segments again, and all %d", cores, again, r.TCP.Retransmits)
		}
	}
}

// A flow that hangs says what it waits for, and its bytes.
func TestTCPUnfinished(t *testing.T) {
	t.Parallel()
	s := parsed(t, besideTCP+"[[failure]]\ncable = 2\nat = \"100us\"\n")
	s.Until, s.Warm, s.Limit = 0, 0, 50_000*us
	s.Traffic = s.Traffic[1:]
	s.Traffic[0].Bytes = 64 << 20
	r, err := Run(context.Background(), s)
	if err == nil || len(r.Unfinished) != 1 {
		t.Fatalf("%v", err)
	}
	// Timeouts begin 5 ms after the last acknowledgement, and double.
	if u := r.Unfinished[0]; u.Arrived < 500_000 || u.Arrived > 1_500_000 || !strings.Contains(u.Where, "TCP of host 1 waits for its timeout at 7") {
		t.Errorf("%d bytes, %s", u.Arrived, u.Where)
	}
}

// Shared connections of queue pairs do not keep those of TCP.
func TestTCPBesideShared(t *testing.T) {
	t.Parallel()
	s := parsed(t, besideTCP)
	s.Adapter.Shared, s.Traffic[0].Bytes, s.Traffic[1].Bytes = true, 100_000, 100_000
	s.Until, s.Warm = 0, 0
	r := play(t, s)
	for _, f := range r.Flows {
		if f.End == 0 {
			t.Errorf("flow %+v has not completed", f)
		}
	}
}

// The result tells of TCP in words and in numbers, and windows are sampled.
func TestTCPInResults(t *testing.T) {
	t.Parallel()
	s := parsed(t, besideTCP)
	s.Output.Record = true
	r := play(t, s)
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil || !strings.Contains(b.String(), "\ntcp ") {
		t.Errorf("%v\n%s", err, &b)
	}
	sum := r.Summary()
	text, err := json.Marshal(sum)
	if err != nil || sum.TCP == nil || sum.TCP.Bytes == 0 || !strings.Contains(string(text), `"tcp":{"segments_sent":`) {
		t.Errorf("%v, %s", err, text)
	}
	x := r.Samples.Find("f1", "window_bytes")
	if x == nil || x.Values[len(x.Values)/2] < 14600 {
		t.Errorf("the window of the flow: %+v", x)
	}
	s.Traffic = s.Traffic[:1]
	if sum := play(t, s).Summary(); sum.TCP != nil {
		t.Errorf("without TCP: %+v", sum.TCP)
	}
}

// What TCP has not, and what is out of bounds, is refused with its name and
// line.
func TestTCPRefuses(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`transport = "udp"`:                                               `transport is "udp": there are roce, tcp`,
		`transport = "tcp", op = "read"`:                                  "op is of queue pairs",
		`transport = "tcp", queue_pairs = 2`:                              "queue_pairs is a setting of queue pairs",
		`transport = "tcp", recovery = "selective"`:                       "recovery is a setting",
		`transport = "tcp", rate = "1Gb/s"`:                               "rate is a setting",
		`transport = "tcp", control = "dcqcn"`:                            `control of transport = "tcp" is "dcqcn": there are reno, dctcp, cubic`,
		`transport = "tcp", control = "DCTCP"`:                            "do you mean dctcp",
		`transport = "tcp", window = "2000B"`:                             "at least two segments",
		`transport = "tcp", window = "2GiB"`:                              "at most 1GiB",
		`transport = "tcp", class = "gold"`:                               "class \"gold\" is no DSCP",
		`transport = "tcp", dscp = 64`:                                    "there are 0 to 63",
		`tcp = { mss = 1000 }`:                                            "transport = \"tcp\" works",
		`transport = "tcp", tcp.mss = 9000`:                               "tcp.mss is 9000: it is 536 to 4096",
		`transport = "tcp", tcp.mss = -1`:                                 "tcp.mss is -1",
		`transport = "tcp", tcp.mss = 0`:                                  "traffic.tcp.mss is 0: it is 536",
		`transport = "tcp", tcp = { mss = 536; ack_every = 0 }`:           "traffic.tcp.ack_every is 0: it is 1 to 64",
		`transport = "tcp", tcp.initial_window = -4`:                      "tcp.initial_window is -4",
		`transport = "tcp", tcp.initial_window = 9223372036854775807`:     "1 to 1000 segments",
		`transport = "tcp", tcp.min_rto = "61s"`:                          "at most 60s",
		`transport = "tcp", tcp.min_rto = "20ms", tcp.ack_delay = "20ms"`: "less than min_rto",
		`transport = "tcp", tcp.ack_every = 65`:                           "1 to 64 segments",
		`transport = "tcp", tcp.ecn = 1`:                                  "true or false",
		`transport = "tcp", tcp.cubic = true`:                             "[traffic.tcp] has mss, initial_window, min_rto, ack_every, ack_delay, ecn",
		`transport = "tcp", kind = "ring", bytes = "1KB"`:                 "its messages need queue pairs",
	} {
		kind := "kind = \"flow\"\nto = 1\n"
		if strings.Contains(change, "kind") {
			kind = ""
		}
		text := "until = \"1ms\"\n[network]\ntopology = \"star\"\nhosts = 3\n[[traffic]]\n" + kind + strings.ReplaceAll(strings.ReplaceAll(change, ", ", "\n"), ";", ",")
		s, err := Parse([]byte(text))
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v; it should say %q, and a line", change, err, want)
		}
	}
	for _, more := range []string{"[[loss]]\nflow = 1\npackets = \"3\"\n", "[[mark]]\nflow = 1\npackets = \"3\"\n"} {
		if _, err := Run(context.Background(), parsed(t, besideTCP+more)); err == nil || !strings.Contains(err.Error(), "flow 1 goes by TCP") {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// Lists may go by TCP, also with triggers: one starts when all bytes have come,
// the other when they are acknowledged.
func TestTCPLists(t *testing.T) {
	t.Parallel()
	s := parsed(t, `
[network]
topology = "star"
hosts = 4
[[traffic]]
kind = "list"
transport = "tcp"
format = "htsim"
list = "0->1 start 0 size 100000 send_done_trigger 1\n1->2 trigger 1 size 5000 recv_done_trigger 2\n2->3 trigger 2 size 9\ntrigger id 1 oneshot\ntrigger id 2 oneshot"
[[traffic]]
kind = "list"
transport = "tcp"
list = "from,to,bytes,class,src_port\n3,1,1000,10,50000\n3,1,1000,10,50000"
`)
	r := play(t, s)
	if len(r.Flows) != 5 {
		t.Fatalf("%d flows", len(r.Flows))
	}
	for _, f := range r.Flows {
		if f.End == 0 || f.Op() != "tcp" {
			t.Errorf("%+v", f)
		}
	}
	first, second, third := r.Flows[0], r.Flows[3], r.Flows[4]
	if second.Start != first.End || third.Start >= second.End || third.Start <= second.Start {
		t.Errorf("they started at %v, %v and %v, and ended at %v and %v", first.Start, second.Start, third.Start, first.End, second.End)
	}
	s.Traffic[1].List = "from,to,bytes,op\n3,1,1000,read"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "line 2: op is of queue pairs") {
		t.Errorf("a read by TCP: %v", err)
	}
}

// RoCE and TCP of one host share its cable by the weights of their classes, and
// have half of it each in one class.
func TestTCPSharesAHost(t *testing.T) {
	t.Parallel()
	const text = `
until = "6ms"
warm = "2ms"
[network]
topology = "star"
hosts = 3
[[network.class]]
dscp = 0
[[traffic]]
kind = "flow"
to = 1
[[traffic]]
kind = "flow"
to = 2
transport = "tcp"
control = "dctcp"
`
	for _, c := range []struct {
		weight, dscp int
		want         float64 // of what both have, for TCP
	}{{5, 0, 5. / 55}, {50, 0, .5}, {100, 0, 2. / 3}, {5, 26, .5}} {
		s := parsed(t, text)
		s.Network.Classes[0].Weight, s.Traffic[1].DSCP = c.weight, c.dscp
		all := play(t, s).Traffics()
		roce, tcp := float64(all[0].Rate)/1e9, float64(all[1].Rate)/1e9
		if d := tcp/(roce+tcp) - c.want; d < -.02 || d > .02 || roce+tcp < 95 {
			t.Errorf("%+v: RoCE has %.1f Gb/s, and TCP %.1f", c, roce, tcp)
		}
	}
}
