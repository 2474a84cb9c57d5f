package fault_test

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/fault"
)

func TestParseRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fault.Rule{
		"drop":                {Action: fault.Drop},
		"drop=1%":             {Action: fault.Drop, Rate: 0.01},
		"drop=0.01":           {Action: fault.Drop, Rate: 0.01},
		"drop:rate=100%":      {Action: fault.Drop, Rate: 1},
		"drop=1e-5":           {Action: fault.Drop, Rate: 1e-5},
		"drop:nth=100":        {Action: fault.Drop, Nth: 100},
		"drop:every=100":      {Action: fault.Drop, Every: 100},
		"duplicate=2%:dir=in": {Action: fault.Duplicate, Rate: 0.02, Direction: fault.Rx},
		"corrupt:limit=3:dir=out:opcode=ack": {Action: fault.Corrupt, Limit: 3, Direction: fault.Tx,
			Opcodes: []rocev2.Opcode{rocev2.RCAcknowledge}},
		"delay:by=5ms":               {Action: fault.Delay, Delay: 5 * time.Millisecond},
		"delay=10%:by=1m":            {Action: fault.Delay, Delay: time.Minute, Rate: 0.1},
		"reorder=1%":                 {Action: fault.Reorder, Rate: 0.01},
		"reorder=1%:by=3:hold=200us": {Action: fault.Reorder, Rate: 0.01, Distance: 3, Delay: 200 * time.Microsecond},
		"drop:opcode=SEND_LAST,READ_RESPONSE_MIDDLE": {Action: fault.Drop,
			Opcodes: []rocev2.Opcode{rocev2.RCSendLast, rocev2.RCReadResponseMiddle}},
		"drop:opcode=rc_rdma_write_only_with_immediate,CNP": {Action: fault.Drop,
			Opcodes: []rocev2.Opcode{rocev2.RCWriteOnlyImm, rocev2.CNP}},
		"drop:opcode=ATOMIC,CMP_SWAP": {Action: fault.Drop,
			Opcodes: []rocev2.Opcode{rocev2.RCCompareSwap, rocev2.RCFetchAdd}},
		"drop:opcode=READ_RESPONSE": {Action: fault.Drop, Opcodes: []rocev2.Opcode{
			rocev2.RCReadResponseFirst, rocev2.RCReadResponseMiddle, rocev2.RCReadResponseLast, rocev2.RCReadResponseOnly}},
	} {
		if got, err := fault.ParseRule(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// An error says what is wrong, where, and what is allowed.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		offset int
		want   []string
	}{
		{"", 0, []string{"begins with its action", "drop, duplicate"}},
		{"drp=1%", 0, []string{`no action "drp"`, "did you mean drop?"}},
		{"=1%", 0, []string{"begins with its action"}},
		{"seed=1:drop", 7, []string{"begins with its action"}},
		{"drop=", 5, []string{"not a rate", "1%"}},
		{"drop=x%", 5, []string{"not a rate"}},
		{"drop=NaN", 5, []string{"not a rate"}},
		{"drop=1", 5, []string{"1% for per cent"}},
		{"drop=0%", 5, []string{"above 0"}},
		{"drop=101%", 5, []string{"at most 100%"}},
		{"drop=-1%", 5, []string{"above 0"}},
		{"drop=1%,dir=in", 5, []string{`separated by ":"`}},
		{"drop=1%:nht=3", 8, []string{`no condition "nht"`, "did you mean nth?"}},
		{"drop=1%:", 8, []string{"no condition"}},
		{"drop:nth", 5, []string{"nth=…"}},
		{"drop:nth=0", 9, []string{"from 1 to"}},
		{"drop:every=-2", 11, []string{"from 1 to"}},
		{"drop:limit=2147483648", 11, []string{"2147483647"}},
		{"drop:nth=1:nth=2", 11, []string{"twice"}},
		{"drop=1%:rate=2%", 8, []string{"twice"}},
		{"drop=1%:nth=3", 13, []string{"rate and nth"}},
		{"drop:nth=1:every=3", 18, []string{"nth and every"}},
		{"drop:dir=up", 9, []string{"in (received)"}},
		{"drop:opcode=ACK,SEND_LSAT", 16, []string{`"SEND_LSAT"`, "did you mean SEND_LAST?", "READ_RESPONSE_MIDDLE"}},
		{"drop:opcode=UD_SEND_ONLY", 12, []string{"no opcode"}},
		{"drop:opcode=ACK,", 16, []string{"no opcode"}},
		{"drop:by=3", 5, []string{"delay", "reorder"}},
		{"drop:hold=3ms", 5, []string{"reorder only"}},
		{"drop:corrupt", 5, []string{"is an action"}},
		{"delay", 5, []string{"delay:by=5ms"}},
		{"delay=5ms", 6, []string{"delay:by=5ms"}},
		{"delay:by=5", 9, []string{"5ms"}},
		{"delay:by=2h", 9, []string{"up to 1m0s"}},
		{"reorder:by=5ms", 11, []string{"whole number"}},
		{"reorder:by=5000", 11, []string{"4096"}},
		{"drop=1%:seed=x", 13, []string{"not a seed"}},
		{"drop=1%:seed=3", 13, []string{"single rule"}},
	} {
		_, err := fault.ParseRule(c.text)
		var pe *fault.ParseError
		if !errors.As(err, &pe) {
			t.Errorf("%q: error %v", c.text, err)
			continue
		}
		if pe.Offset != c.offset || pe.Text != c.text {
			t.Errorf("%q: error at %d of %q, want at %d: %v", c.text, pe.Offset, pe.Text, c.offset, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v; it does not say %q", c.text, err, w)
			}
		}
	}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	var s fault.Spec
	for _, text := range []string{"drop=1%", "seed=7", "corrupt:nth=3:seed=7"} {
		if err := s.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Rules) != 2 || !s.Seeded || s.Seed != 7 || s.Rules[1].Nth != 3 {
		t.Errorf("%+v", s)
	}
	for text, want := range map[string]string{"seed=8": "is 7 already", "drop=1%:seed=8": "is 7 already", "drop=2": "rate"} {
		if err := s.Add(text); err == nil || !strings.Contains(err.Error(), want) || len(s.Rules) != 2 {
			t.Errorf("%s: %v, %+v", text, err, s)
		}
	}
}

// Every opcode that the grammar names is known, and every action.
func TestGrammarNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	names := strings.FieldsFunc(fault.Grammar, func(r rune) bool { return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", r) })
	known := 0
	for _, n := range names {
		if strings.Contains(n, "_") || slices.Contains([]string{"ACK", "CNP", "SEND", "WRITE", "ATOMIC"}, n) {
			known++
			if _, err := fault.ParseRule("drop:opcode=" + n); err != nil {
				t.Error(err)
			}
		}
	}
	if known < 20 {
		t.Errorf("saw %d names of opcodes in the grammar", known)
	}
	for _, a := range []string{"drop", "duplicate", "reorder", "corrupt", "delay:by=1s"} {
		if r, err := fault.ParseRule(a); err != nil || r.String() != a || !strings.Contains(fault.Grammar, r.Action.String()) {
			t.Errorf("%s: %v, %v", a, r, err)
		}
	}
}

// The rules that the documentation shows are rules.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	rule := regexp.MustCompile("(?:`|--fault )((?:drop|duplicate|corrupt|delay|reorder|seed)[:=][^` ]+)")
	seen := 0
	for _, name := range []string{"README.md", "docs/inspect.md"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rule.FindAllSubmatch(text, -1) {
			seen++
			var s fault.Spec
			if err := s.Add(string(m[1])); err != nil && string(m[1]) != "seed=N" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("saw %d rules", seen)
	}
}

// What parses is within bounds and is read back from its text; what does not
// parse has an error that points into the text.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{
		"drop=1%", "drop:nth=100:dir=in", "delay:by=5ms", "reorder=0.1%:by=3:hold=1s", "corrupt:opcode=SEND,ACK:every=9",
		"seed=7", "duplicate=1e-9:limit=4", "drop=1%:seed=99", "drop:opcode=é", "drop=1%:nht=3", "drop=0.30000000000000004",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s fault.Spec
		if err := s.Add(text); err != nil {
			var pe *fault.ParseError
			if !errors.As(err, &pe) || pe.Offset < 0 || pe.Offset > len(text) || pe.Reason == "" || err.Error() == "" {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		for _, r := range s.Rules {
			if r.Rate < 0 || r.Rate > 1 || r.Nth < 0 || r.Every < 0 || r.Limit < 0 || r.Delay < 0 || r.Delay > time.Minute ||
				r.Action == fault.Delay && r.Delay == 0 {
				t.Fatalf("%q: %+v", text, r)
			}
			if back, err := fault.ParseRule(r.String()); err != nil || !reflect.DeepEqual(back, r) {
				t.Fatalf("%q is %+v; its text %q is %+v, %v", text, r, r.String(), back, err)
			}
		}
	})
}
