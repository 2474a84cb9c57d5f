package network

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
)

var rewrite = flag.Bool("rewrite", false, "write what scripts print into their files")

// A script is blocks of commands, "----", and what they print. In the first
// block the network, one switch and its hosts, is described:
//
//	star hosts=3 gbps=100 delay=1us buffer=100000 mtu=1000
//	class 3 lossless reserve=0 alpha=-1 xonoffset=2000 headroom=0
//
// (cutthrough, detect=10us and restore=10us may follow star.)
//
// Then there are
//
//	send 0 2 class=3 size=1000 count=5    host 0 has 5 packets for host 2
//	pause 2 3                             host 2 pauses class 3 (none: nothing)
//	run 10us
//	stored 0 3     what the switch has of host 0's packets in class 3
//	queued 2 3     what the switch has for host 2 in class 3
//	free           of the shared buffer
//	count          sent, delivered, dropped by name
//	end            run to the end; books and buffers are checked
//
// Pause frames of the switch are printed when they leave, with the time.
type script struct {
	t     *testing.T
	c     Config
	rate  int64
	delay Time
	sw    Switch
	n     *Network
	hosts []*source
	out   strings.Builder
}

func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if got == string(text) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s prints otherwise (-rewrite accepts it):\n%s", file, got)
		})
	}
}

// runScript returns the script with what it prints now.
func runScript(t *testing.T, text string) string {
	s := &script{t: t}
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "----")
		commands = strings.TrimSpace(commands)
		s.out.Reset()
		for line := range strings.SplitSeq(commands, "\n") {
			if !strings.HasPrefix(line, "#") {
				s.do(line)
			}
		}
		out = append(out, commands+"\n----\n"+s.out.String())
	}
	return strings.Join(out, "\n")
}

// settings returns what a line says: bare words, and numbers by key.
func (s *script) settings(line string) (words []string, set map[string]int64) {
	set = map[string]int64{}
	for _, f := range strings.Fields(line) {
		key, value, ok := strings.Cut(f, "=")
		if !ok {
			words = append(words, f)
			continue
		}
		if d, err := time.ParseDuration(value); err == nil && value != "0" {
			set[key] = int64(event.Of(d))
			continue
		}
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		set[key] = v
	}
	return words, set
}

func (s *script) do(line string) {
	words, set := s.settings(line)
	num := func(i int) int {
		v, err := strconv.Atoi(words[i])
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		return v
	}
	switch words[0] {
	case "star":
		s.rate, s.delay = set["gbps"]*gbit, Time(set["delay"])
		s.c = Config{MTU: int(set["mtu"]), Hosts: int(set["hosts"])}
		s.sw = Switch{Buffer: set["buffer"], CutThrough: len(words) > 1, Watchdog: WatchdogConfig{Time(set["detect"]), Time(set["restore"])}}
		return
	case "class":
		s.sw.Classes[num(1)] = Class{
			Lossless: len(words) > 2, Reserve: set["reserve"], Headroom: set["headroom"], Alpha: int8(set["alpha"]), XONOffset: set["xonoffset"],
			EgressAlpha: int8(set["egressalpha"]), EgressMax: set["egressmax"], RED: RED{set["kmin"], set["kmax"], uint32(set["pmax"])},
		}
		return
	}
	if s.n == nil {
		plain := star(s.c.Hosts, s.sw, s.rate, s.delay)
		plain.MTU = s.c.MTU
		s.n, s.hosts = build(s.t, plain)
		s.n.Tap(s.tap)
	}
	n, sw := s.n, s.c.Hosts
	switch words[0] {
	case "send":
		p := Packet{Dst: uint16(num(2)), Size: uint16(set["size"]), DSCP: uint8(8 * set["class"]), ECN: uint8(set["ecn"])}
		s.hosts[num(1)].packets = append(s.hosts[num(1)].packets, repeat(p, int(max(set["count"], 1)))...)
		n.Kick(num(1), 0)
	case "pause":
		var classes uint8
		for i := range words[2:] {
			classes |= 1 << num(i+2)
		}
		n.Pause(num(1), 0, classes)
	case "run":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		n.Run(n.Now() + event.Of(d))
		balance(s.t, n)
	case "stored":
		used, headroom, xoff := n.Port(sw, num(1)).Stored(num(2))
		fmt.Fprintf(&s.out, "%d, headroom %d, paused %v\n", used, headroom, xoff)
	case "queued":
		fmt.Fprintf(&s.out, "%d\n", n.Port(sw, num(1)).Queued(num(2)))
	case "free":
		fmt.Fprintf(&s.out, "%d\n", n.SharedFree(0))
	case "count":
		s.count()
	case "end":
		finish(s.t, n)
		s.count()
	default:
		s.t.Fatalf("%q is not known", line)
	}
}

func (s *script) count() {
	totals := s.n.Totals()
	fmt.Fprintf(&s.out, "sent %d, delivered %d", totals.Sent, totals.Delivered)
	for why, count := range totals.Drops {
		if count != 0 {
			fmt.Fprintf(&s.out, ", %v %d", Drop(why), count)
		}
	}
	if totals.Marks != 0 {
		fmt.Fprintf(&s.out, ", marked %d", totals.Marks)
	}
	s.out.WriteByte('\n')
}

func (s *script) tap(x Sight) {
	if !x.Pause || x.Node < s.c.Hosts {
		return
	}
	fmt.Fprintf(&s.out, "%v: to host %d:", x.At, x.Port)
	for c := range NumClasses {
		if x.Mask>>c&1 != 0 {
			fmt.Fprintf(&s.out, " %s %d", [...]string{"XON", "XOFF"}[x.Off>>c&1], c)
		}
	}
	s.out.WriteByte('\n')
}
