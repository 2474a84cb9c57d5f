package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/record"
	"github.com/gosoftroce/rocev2/fabric/replay"
	"github.com/gosoftroce/rocev2/observe/dissect"
)

// known is a scenario of which all is known that a capture should tell.
const known = `
[network]
topology = "star"
hosts = 4
rate = "25Gb/s"
delay = "3us"
red = { kmax = "0B" }
[adapter]
mtu = 1024
recovery = %q
[[traffic]]
kind = "list"
list = """
start,from,to,bytes,op
0us,1,0,200000,%[2]s
10us,2,0,100001,%[2]s
5000us,3,0,65536,%[2]s
"""
[[loss]]
flow = 0
packets = "3 100-102 194"
[[loss]]
flow = 2
packets = "17"
[[mark]]
flow = 1
packets = "5-6 90"
`

func run(t *testing.T, text string, capture string) (*lab.Result, []byte) {
	t.Helper()
	s, err := lab.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p, err := record.NewPcap(&b, capture, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Output.Capture = lab.Capture{Ports: capture, Take: p.Take}
	r, err := lab.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return r, b.Bytes()
}

// scenarioOf makes a scenario from a capture.
func scenarioOf(t *testing.T, capture []byte) (lab.Scenario, string) {
	t.Helper()
	text, err := made(capture)
	if err != nil {
		t.Fatal(err)
	}
	s, err := lab.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s, string(text)
}

func made(capture []byte) ([]byte, error) {
	c, err := dissect.Open(bytes.NewReader(capture))
	if err != nil {
		return nil, err
	}
	r := replay.New()
	for {
		p, err := c.Next()
		if errors.Is(err, io.EOF) {
			return r.Scenario("made")
		}
		if err != nil {
			return nil, err
		}
		r.Add(p)
	}
}

// A capture at the receiver tells what was played: flows, their packets that
// were lost and marked, the rate. What is played from it loses and marks the
// same packets.
func TestReplayAtTheReceiver(t *testing.T) {
	t.Parallel()
	for _, recovery := range []string{"selective", "go-back-n"} {
		for _, op := range []string{"write", "send", "read"} {
			text := fmt.Sprintf(known, recovery, op)
			at := "h0"
			if op == "read" { // the data come from there
				text = strings.NewReplacer("1,0,200000", "0,1,200000", "2,0,100001", "0,2,100001", "3,0,65536", "0,3,65536").Replace(text)
			}
			first, capture := run(t, text, at)
			s, toml := scenarioOf(t, capture)
			want, err := lab.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(s.Losses, want.Losses) || !reflect.DeepEqual(s.Marks, want.Marks) {
				t.Errorf("%s, %s: lost %+v, marked %+v; want %+v and %+v", recovery, op, s.Losses, s.Marks, want.Losses, want.Marks)
			}
			if s.Network.Rate != want.Network.Rate || s.Adapter.MTU != 1024 || op != "read" && s.Adapter.Recovery != recovery {
				t.Errorf("%s, %s: rate %v, mtu %d, recovery %s\n%s", recovery, op, s.Network.Rate, s.Adapter.MTU, s.Adapter.Recovery, toml)
			}
			// Here answers come at once: that is no round trip.
			if op != "read" && (s.Network.Delay != lab.Microsecond || !strings.Contains(string(toml), "delay: the default")) {
				t.Errorf("%s, %s: the delay is %v\n%s", recovery, op, s.Network.Delay, toml)
			}
			if !strings.Contains(string(toml), "# control and window: those of the simulator") {
				t.Errorf("nothing says that a capture has no congestion control:\n%s", toml)
			}
			again, err := lab.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if len(again.Flows) != len(first.Flows) || again.Unsent != 0 || again.Totals.Drops[network.CableLoss] != first.Totals.Drops[network.CableLoss] {
				t.Errorf("%s, %s: %d flows, %d packets not sent, %d lost; want %d, 0, %d", recovery, op, len(again.Flows), again.Unsent, again.Totals.Drops[network.CableLoss], len(first.Flows), first.Totals.Drops[network.CableLoss])
			}
			for i, f := range again.Flows {
				if g := first.Flows[i]; f.Bytes != g.Bytes || f.Op() != g.Op() || f.Start > g.Start+50*lab.Microsecond {
					t.Errorf("%s, %s: flow %d is %d bytes from %v, want %d from %v", recovery, op, i, f.Bytes, f.Start, g.Bytes, g.Start)
				}
			}
		}
	}
}

// A capture at the sender tells of losses by what goes again, and of delays.
func TestReplayAtTheSender(t *testing.T) {
	t.Parallel()
	for _, recovery := range []string{"selective", "go-back-n"} {
		text := fmt.Sprintf(known, recovery, "write")
		_, capture := run(t, text, "h1")
		s, toml := scenarioOf(t, capture)
		want := []lab.Packets{{Flow: 0, Packets: "3 100-102 194"}}
		if recovery == "go-back-n" { // all after a loss goes again: those that are not the first of it cannot be told
			want[0].Packets = "3 100 194"
		}
		if !reflect.DeepEqual(s.Losses, want) || len(s.Marks) > 0 {
			t.Errorf("%s: lost %+v, marked %+v; want %+v\n%s", recovery, s.Losses, s.Marks, want, toml)
		}
		if d := s.Network.Delay; d < 2900*lab.Time(1000) || d > 3300*lab.Time(1000) && recovery != "selective" || d > 10*lab.Microsecond {
			t.Errorf("%s: delay %v, want about 3us, and what answers of this software wait for", recovery, d)
		}
	}
}

// The captures of this repository, by the kernel and by hardware, become
// scenarios that can be played, or say why not.
func TestReplayGolden(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../rocev2/testdata/golden/*.pcap")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	played := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := made(b)
		if err != nil {
			if !strings.Contains(err.Error(), "there is nothing to play") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		s, err := lab.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		r, err := lab.Run(t.Context(), s)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if done, _, _ := r.Done(); done != len(r.Flows) {
			t.Errorf("%s: %d of %d flows have completed\n%s", name, done, len(r.Flows), text)
		}
		played++
	}
	if played < 4 {
		t.Errorf("%d of %d captures were played", played, len(names))
	}
}

// Any capture becomes a scenario that is good, or an error.
func FuzzReplay(f *testing.F) {
	names, _ := filepath.Glob("../../rocev2/testdata/golden/*.pcap")
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && len(b) < 64<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, capture []byte) {
		text, err := made(capture)
		if err != nil {
			if strings.Contains(err.Error(), "cannot be played") {
				t.Fatal(err)
			}
			return
		}
		s, err := lab.Parse(text)
		if err == nil {
			err = lab.Check(s)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}

// A host that sends and receives has round trips of its own, beside answers
// that it gives at once.
func TestReplayOfBothDirections(t *testing.T) {
	t.Parallel()
	text := strings.Replace(fmt.Sprintf(known, "selective", "write"), "10us,2,0,100001,write", "10us,2,0,100001,write\n4000us,0,3,70000,write\n6000us,0,1,70000,write", 1)
	_, capture := run(t, text, "h0")
	s, toml := scenarioOf(t, capture)
	if d := s.Network.Delay - 3*lab.Microsecond; d < -lab.Microsecond/10 || d > lab.Microsecond/10 {
		t.Errorf("the delay is %v, of cables of 3us\n%s", s.Network.Delay, toml)
	}
}
