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
	post := func(signaled, wantFull, wantNever bool) {
		t.Helper()
		if full, never := s.Send(signaled); full != wantFull || never != wantNever {
			t.Fatalf("full %v, never %v", full, never)
		}
	}
	for range 4 {
		post(false, false, false)
	}
	post(true, true, true)
	s.Reset()
	for range 50 { // the last of four is signaled, and polled
		for i := range 4 {
			post(i == 3, false, false)
		}
		post(false, true, false) // full, and a completion will come
		for i := range 4 {
			s.Sent(i == 3, i == 3)
		}
		post(false, true, false) // it is there
		s.SentPolled()
	}
	post(false, false, false)
	post(true, false, false)
	post(true, false, false)
	s.Unsend(true)
	s.Sent(false, false)
	s.Sent(true, true)
	s.SentPolled()
	for range 4 {
		post(false, false, false)
	}
	s.Sent(false, false)
	s.Sent(false, false)
	s.Sent(false, true) // an error
	post(false, true, false)
	s.SentPolled() // those before it are done
	for range 3 {
		post(false, false, false)
	}
	post(false, true, true)
	s.SentPolled() // of nothing
	s.Sent(false, true)
	s.SentLost()
	post(false, true, true)
}

// TestSlotsOfBefore: completions of before a RESET free nothing after it.
func TestSlotsOfBefore(t *testing.T) {
	t.Parallel()
	s := NewSlots(1, 1)
	for range 3 {
		s.Send(true)
		s.Sent(true, true)
		s.Receive()
		s.Received(1)
		s.Reset()
	}
	s.Send(true)
	s.Sent(true, true)
	s.Receive()
	s.Received(1)
	for range 3 {
		s.SentPolled()
		s.ReceivePolled()
		if full, _ := s.Send(true); !full || s.Receive() {
			t.Fatal("a completion of before has freed a slot")
		}
	}
	s.SentPolled()
	s.ReceivePolled()
	if full, _ := s.Send(true); full || !s.Receive() {
		t.Error("a slot is not free")
	}
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
	s.Received(1)
	s.Received(-1) // it was lost
	for range 3 {
		s.ReceivePolled()
	}
	if n := room(); n != 1 {
		t.Errorf("%d receives have room again", n)
	}
	s.Unreceive(2)
	if n := room(); n != 2 {
		t.Errorf("%d receives have room at the end", n)
	}
}

// TestQueue: its memory is of the order of what is in it.
func TestQueue(t *testing.T) {
	t.Parallel()
	var q Queue[int]
	next := 0
	for i := range 100000 {
		q.Push(i)
		if q.Len() > 5 {
			if v, ok := q.Pop(); !ok || v != next {
				t.Fatal(v, ok, next)
			}
			next++
		}
	}
	if cap(q.items) > 64 {
		t.Errorf("%d items take %d", q.Len(), cap(q.items))
	}
	if v, ok := q.DropLast(); !ok || v != 99999 || q.Len() != 4 {
		t.Error(v, ok, q.Len())
	}
	for q.Len() > 0 {
		q.Pop()
	}
	_, first := q.Pop()
	_, last := q.DropLast()
	if first || last {
		t.Error("an empty queue has something")
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
