package replay_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
	"github.com/gosoftroce/rocev2/rocev2"
)

// A packet that a switch has trimmed has not arrived: what is made from a
// capture at the receiver loses it, and loses it once. The headers that go back
// are no flows.
func TestReplayOfTrimmedPackets(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "send"} {
		s, err := lab.Parse([]byte(strings.ReplaceAll(`
limit = "50ms"
[network]
topology = "star"
hosts = 4
lossy = true
queue_max = "30KB"
red = { kmax = "0B" }
[network.switch]
trim = true
[adapter]
control = "static"
[[traffic]]
kind = "incast"
senders = 3
bytes = "100KB"
op = "OP"
`, "OP", op)))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		p, err := record.NewPcap(&b, "h0", record.DefaultSnap)
		if err != nil {
			t.Fatal(err)
		}
		// What was trimmed the first time that it was sent, by sender.
		first, seen := map[string]int{}, map[string]map[int]bool{}
		trimmed := map[string][]int{}
		packets := func(x *lab.Packet) {
			p.Take(x)
			info, _ := rocev2.Opcode(x.Data[0]).Info()
			if x.Sent || x.Returned || info.Role != rocev2.RoleRequest {
				return
			}
			of, psn := x.Src.String(), int(x.Data[9])<<16|int(x.Data[10])<<8|int(x.Data[11])
			if seen[of] == nil {
				first[of], seen[of] = psn, map[int]bool{}
			}
			if at := psn - first[of]; !seen[of][at] {
				seen[of][at] = true
				if x.Wire < x.Length {
					trimmed[of] = append(trimmed[of], at)
				}
			}
		}
		s.Output.Capture = lab.Capture{Ports: "h0", Take: packets}
		r, err := lab.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		again, toml := scenarioOf(t, b.Bytes())
		if strings.Count(toml, "\n3,") > 1 || len(again.Losses) != 3 || r.Totals.Trimmed == 0 {
			t.Errorf("%s: %d were trimmed, and what is made from it is\n%s", op, r.Totals.Trimmed, toml)
		}
		played, err := lab.Run(t.Context(), again)
		if err != nil || len(played.Flows) != 3 || played.Unsent > 0 {
			t.Fatalf("%s: %v, %d flows, %d packets not sent", op, err, len(played.Flows), played.Unsent)
		}
		for i, f := range played.Flows {
			of := ""
			for name := range seen {
				if strings.Contains(toml, "# host "+string(rune('0'+f.Src))+" is "+name+"\n") {
					of = name
				}
			}
			want := trimmed[of]
			slices.Sort(want)
			var got []int
			for _, l := range again.Losses {
				if l.Flow == i {
					got = numbers(l.Packets)
				}
			}
			if f.Bytes != 100_000 || !slices.Equal(got, want) {
				t.Errorf("%s: from %s %d bytes, lost %v, want %v", op, of, f.Bytes, got, want)
			}
		}
	}
}

// numbers reads a list of numbers and ranges.
func numbers(text string) (list []int) {
	number := func(text string) (n int) {
		for _, c := range text {
			n = 10*n + int(c-'0')
		}
		return n
	}
	for _, word := range strings.Fields(text) {
		from, to, isRange := strings.Cut(word, "-")
		if !isRange {
			to = from
		}
		for i := number(from); i <= number(to); i++ {
			list = append(list, i)
		}
	}
	return list
}
