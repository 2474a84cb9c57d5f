package strict

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParseSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want Set
	}{
		{"", 0}, {"off", 0}, {"on", normal()}, {"all", all()},
		{"unsignaled", 1 << Unsignaled},
		{"unsignaled, cq-overrun", 1<<Unsignaled | 1<<CQOverrun},
		{"-no-receive", normal() &^ (1 << NoReceive)},
		{"on,-no-receive", normal() &^ (1 << NoReceive)},
		{"all,-unsignaled", all() &^ (1 << Unsignaled)},
	} {
		got, err := ParseSet(c.text)
		if err != nil || got != c.want {
			t.Errorf("%q: %b, %v, want %b", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"nothing", "on,", ",", "on,off", "off,unsignaled", "-", "--unsignaled", "Unsignaled", "-on"} {
		if s, err := ParseSet(bad); err == nil {
			t.Errorf("%q was taken: %b", bad, s)
		}
	}
}

func TestProfilesAndRules(t *testing.T) {
	t.Parallel()
	if k, err := New(Config{}); k != nil || err != nil {
		t.Errorf("nothing to check: %v, %v", k, err)
	}
	if k, err := New(Config{Rules: "off", Profile: "mlx5"}); k != nil || err != nil {
		t.Errorf("off with a profile: %v, %v", k, err)
	}
	k, err := New(Config{Profile: "rxe"})
	if err != nil || k.On(Unsignaled) || !k.On(CQOverrun) || k.Limits().CQE != 32767 {
		t.Errorf("rxe: %+v, %v", k, err)
	}
	if _, err := New(Config{Profile: "mlx4"}); err == nil || !strings.Contains(err.Error(), "mlx5, rxe, efa") {
		t.Errorf("an unknown profile: %v", err)
	}
	for r, i := range Rules {
		if i.Name == "" || i.Finds == "" || i.Adapter == "" || i.Here == "" || i.Source == "" {
			t.Errorf("rule %d is not described: %+v", r, i)
		}
		for _, p := range i.Except {
			if _, err := ProfileNamed(p); err != nil {
				t.Errorf("rule %s: %v", i.Name, err)
			}
		}
	}
	var none *Checker
	none.Found(Unsignaled, Finding{})
	if none.On(Unsignaled) || len(none.Findings()) != 0 {
		t.Error("a nil Checker checks")
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	var told []Finding
	k, err := New(Config{Rules: "stale-key,unsignaled", Found: func(f Finding) { told = append(told, f) }})
	if err != nil {
		t.Fatal(err)
	}
	k.Found(StaleKey, Finding{QPN: 17, Key: 0x1234, Addr: 0x1000, Length: 8, WRID: 5, Detail: "first"})
	k.Found(StaleKey, Finding{QPN: 18, Count: 3, Detail: "second"})
	k.Found(NoReceive, Finding{Detail: "off"})
	k.Found(Unsignaled, Finding{Detail: "third"})
	got := k.Findings()
	if len(got) != 2 || got[0].Rule != "unsignaled" || got[1].Count != 4 || got[1].Detail != "first" || len(told) != 2 {
		t.Errorf("found %+v, told %+v", got, told)
	}
	if s := got[1].String(); s != "stale-key: first (queue pair 0x000011, wr_id 0x5, key 0x00001234, address 0x1000, 8 bytes)" {
		t.Error(s)
	}
}

// TestSlots is the example of the rule, and what is right beside it.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := NewSlots(4, 0)
	post := func(id uint64, signaled, wantFull, wantNever bool) {
		t.Helper()
		if full, never := s.Send(id, signaled); full != wantFull || never != wantNever {
			t.Fatalf("post %d: full %v, never %v", id, full, never)
		}
	}
	for i := range uint64(4) {
		post(i, false, false, false)
	}
	post(4, true, true, true)
	s.Reset()
	for round := range uint64(50) { // the last of four is signaled, and polled
		for i := range uint64(4) {
			post(4*round+i, i == 3, false, false)
		}
		post(99, false, true, false) // full, and a completion will come
		s.Sent(4*round+3, true)
	}
	post(1, false, false, false)
	post(2, true, false, false)
	post(3, false, false, false)
	s.Unsend(1)
	s.Sent(2, true)
	for i := range uint64(4) {
		post(i, i == 0, false, false)
	}
	s.Sent(2, false) // an error of one that is not signaled: those before it are done
	post(4, false, false, false)
	post(5, false, false, false)
	post(6, false, false, false)
	post(7, false, true, true)
	s.Sent(99, true) // nothing of it is there
	post(8, false, false, false)
}

func TestReceiveSlots(t *testing.T) {
	t.Parallel()
	s := NewSlots(1, 2)
	room := func() (n int) {
		for s.Receive() {
			n++
		}
		return n
	}
	if n := room(); n != 2 {
		t.Errorf("%d receives have room", n)
	}
	s.Received(1)
	s.Received(7)
	if n := room(); n != 2 {
		t.Errorf("%d receives have room again", n)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	line := func(pid int, rule Rule, n uint64) {
		l := Line{PID: pid, Command: "prog", Device: "rxe_lo0", Finding: Finding{Rule: rule.String(), Count: n, Detail: strings.Repeat("x", 3000)}}
		if err := l.Append(&b); err != nil {
			t.Fatal(err)
		}
	}
	line(1, Unsignaled, 1)
	line(2, Unsignaled, 1)
	b.WriteString("no line\n{\"rule\":\"none\",\"count\":1}\n{\"rule\":\"unsignaled\"}\n\xff\x00\n")
	line(1, StaleKey, 2)
	line(1, Unsignaled, 7)
	b.WriteString("{\"pid\":1,\"device\":\"rxe_lo0\"}\n{\"pid\":1,\"device\":\"rxe_lo0\"}\n{\"pid\":2,\"device\":\"rxe_lo0\"}\n")
	text := b.String()
	report, err := ReadReport(&b, all())
	list := report.Lines
	if err != nil || len(list) != 3 || report.Devices != 2 || list[0].Count != 7 || list[1].PID != 2 || list[2].Rule != "stale-key" || len(list[0].Detail) > mostLine {
		t.Errorf("%d lines, %v: %+v", len(list), err, report)
	}
	if report, _ := ReadReport(strings.NewReader(text), 1<<StaleKey); len(report.Lines) != 1 || report.Devices != 2 {
		t.Errorf("of one rule: %+v", report)
	}
}

// TestDocumentation compares the tables of docs/strict.md with those here.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	const file = "../../docs/strict.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range append(ruleLines(), profileLines()...) {
		if !slices.Contains(lines, want) {
			t.Errorf("%s lacks the line\n%s", file, want)
		}
	}
}
