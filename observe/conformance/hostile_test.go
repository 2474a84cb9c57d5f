package conformance_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/observe/conformance/rules"
	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

const helloLine = "ok protocol=1 kind=x release=y device=z addr=192.0.2.2 mtu=4096 caps=rc,uc,ud,atomic,atomic-write,flush"

// lying is a target that answers each command as a function says. Without an
// answer it is silent.
func lying(t *testing.T, answer func(command string) (string, bool)) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		go func() {
			defer b.Close()
			for in := bufio.NewScanner(b); in.Scan(); {
				name, _, _ := strings.Cut(in.Text(), " ")
				text, ok := answer(name)
				if !ok {
					continue
				}
				if _, err := fmt.Fprintln(b, text); err != nil {
					return
				}
			}
		}()
		return a, nil
	}
}

// well answers as a target that does nothing.
func well(command string) (string, bool) {
	switch command {
	case "hello":
		return helloLine, true
	case "qp":
		return "ok qpn=17 va=0x1000 len=65536 rkey=1 readonly=2 foreign=3", true
	case "wc":
		return "ok none", true
	case "state":
		return "ok state=RTS", true
	case "mem":
		return "ok hex=00", true
	}
	return "ok", true
}

// TestHostileTargets: a target that lies, is silent or goes leads to a report,
// or to an error that says so, in bounded time.
func TestHostileTargets(t *testing.T) {
	t.Parallel()
	silentAt := func(name string) func(string) (string, bool) {
		return func(command string) (string, bool) {
			text, _ := well(command)
			return text, command != name
		}
	}
	says := func(name, text string) func(string) (string, bool) {
		return func(command string) (string, bool) {
			if command == name {
				return text, true
			}
			return well(command)
		}
	}
	for name, c := range map[string]struct {
		answer func(string) (string, bool)
		err    string // of Run; "" if there is a report
		why    string // in the report
	}{
		"silent":            {silentAt("hello"), "no answer", ""},
		"garbage":           {says("hello", "\x00\xff=\x01"), "is not a line", ""},
		"another protocol":  {says("hello", "ok protocol=9"), "protocol", ""},
		"no address":        {says("hello", "ok protocol=1 addr=x mtu=1024"), "ParseAddr", ""},
		"IPv6":              {says("hello", strings.Replace(helloLine, "192.0.2.2", "2001:db8::1", 1)), "both must be", ""},
		"no MTU":            {says("hello", strings.Replace(helloLine, "4096", "77", 1)), "MTU", ""},
		"endless line":      {says("hello", "ok "+strings.Repeat("x", 1<<17)), "buffer full", ""},
		"silent later":      {silentAt("qp"), "", "does not answer any more"},
		"error":             {says("qp", "error no room"), "", "no room"},
		"no number":         {says("qp", "ok qpn=x"), "", `qpn="x", not a number`},
		"queue pair 0":      {says("qp", "ok qpn=0 va=0 len=65536 rkey=1 readonly=2 foreign=3"), "", "queue pair 0"},
		"large number":      {says("qp", "ok qpn=0xffffffff va=0 len=65536 rkey=1 readonly=2 foreign=3"), "", "not a number up to 16777215"},
		"no foreign key":    {says("qp", "ok qpn=17 va=0 len=65536 rkey=1 readonly=2"), "", `foreign=""`},
		"one key":           {says("qp", "ok qpn=17 va=0 len=65536 rkey=1 readonly=1 foreign=1"), "", "they must be three"},
		"terminal":          {says("qp", "error \x1b]0;title\a\u202etxt"), "", "the target: \ufffd]0;title\ufffd\ufffdtxt"},
		"peer is not there": {well, "", "no packet came"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				link, other := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
				defer other.Close()
				start := time.Now()
				r, err := conformance.Run(t.Context(), conformance.Config{Link: link, Dial: lying(t, c.answer)})
				// Each rule may take its limit; most are
				// not tried.
				if took := time.Since(start); took > time.Hour {
					t.Errorf("it took %v", took)
				}
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("the error %v does not say %q", err, c.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				last := r.Results[len(r.Results)-1]
				if r.Count(conformance.Pass)+r.Count(conformance.Fail) > 0 && name != "peer is not there" || !strings.Contains(last.Text(), c.why) {
					t.Errorf("%s; the last: %s", r.Summary(), last.Text())
				}
			})
		})
	}
}

// TestCompletionWithoutStatus: what a target does not say of a completion is no
// success.
func TestCompletionWithoutStatus(t *testing.T) {
	t.Parallel()
	for _, lacks := range []string{"status", "len", "imm", "id"} {
		synctest.Test(t, func(t *testing.T) {
			list, err := conformance.Select([]string{"send/zero", "send/only", "rnr/zero"})
			if err != nil {
				t.Fatal(err)
			}
			f := fault{plant: says("wc", func(_, answer string) string { return strings.Replace(answer, lacks+"=", "x=", 1) })}
			for _, res := range f.run(t, list).Results {
				if res.Verdict != conformance.NotTested || !strings.Contains(res.Why, lacks+`=""`) {
					t.Errorf("without %s: %s", lacks, res.Text())
				}
			}
		})
	}
}

// TestUnreachableTarget: nothing is there.
func TestUnreachableTarget(t *testing.T) {
	t.Parallel()
	link, other := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	defer other.Close()
	refused := errors.New("connection refused")
	_, err := conformance.Run(t.Context(), conformance.Config{Link: link, Dial: func(context.Context) (net.Conn, error) { return nil, refused }})
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

// TestTargetThatGoes: a target that dies leaves the other rules untested.
func TestTargetThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link, other := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
		defer other.Close()
		dial, n := lying(t, well), 0
		r, err := conformance.Run(t.Context(), conformance.Config{Link: link, Dial: func(ctx context.Context) (net.Conn, error) {
			if n++; n > 3 {
				return nil, errors.New("connection refused")
			}
			return dial(ctx)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if last := r.Results[len(r.Results)-1]; last.Verdict != conformance.NotTested || !strings.Contains(last.Why, "does not answer any more") {
			t.Errorf("%s", last.Text())
		}
	})
}

// flooding answers every packet of this side with many.
type flooding struct {
	transport.Wrapper
	garbage bool
}

func (f *flooding) Send(b *transport.TxBatch) error {
	out := transport.NewTxBatch(4 << 20)
	for i := range b.Len() {
		data, path := b.Packet(i)
		for k := range 2000 {
			room := out.Room()
			if room == nil {
				break
			}
			n := copy(room, data)
			if f.garbage {
				room[0] = byte(k) // opcodes of all kinds, most of them wrong
			} else {
				room[11] += byte(k) // the PSN
			}
			out.Commit(n, path)
		}
	}
	return f.Link.Send(out)
}

// TestFloods: a peer that answers with floods gets failures, in bounded memory
// and time.
func TestFloods(t *testing.T) {
	t.Parallel()
	for _, garbage := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rules, err := conformance.Select([]string{"send/only", "read/multi", "psn/*", "ack/last", "requester/read", "retry/seven"})
			if err != nil {
				t.Fatal(err)
			}
			r := against(t, conformance.Config{Rules: rules}, func(l transport.Link) transport.Link {
				return &flooding{transport.Wrapper{Link: l}, garbage}
			})
			for _, res := range r.Results {
				if len(res.Steps) > 310 {
					t.Errorf("%s: %d steps are kept", res.ID, len(res.Steps))
				}
			}
			if r.Count(conformance.Fail) == 0 {
				t.Error(r.Summary())
			}
		})
	}
}

// TestInterrupted: the end of the context ends the test, and what was tested
// until then is in the report.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		link, other := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
		defer other.Close()
		told := 0
		r, err := conformance.Run(ctx, conformance.Config{Link: link, Dial: lying(t, well), OnResult: func(*conformance.Result) {
			if told++; told == 2 {
				time.AfterFunc(time.Second, cancel) // in the middle of the third
			}
		}})
		if !errors.Is(err, context.Canceled) || r == nil {
			t.Fatalf("%v, %v", r, err)
		}
		if len(r.Results) != len(rules.All()) || told != 2 || r.Count(conformance.Fail) == 0 || r.Elapsed == 0 {
			t.Errorf("%s; %d were told", r.Summary(), told)
		}
		for _, res := range r.Results[2:] {
			if res.Verdict != conformance.NotTested || res.Why != "the test was interrupted before" || len(res.Steps) > 0 {
				t.Errorf("%s", res.Text())
			}
		}
	})
}

// TestLimitOfSlowPeers: where answers may take long, so may a rule. A peer that
// gives an answer just in time keeps the rule, however many there are.
func TestLimitOfSlowPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list, err := conformance.Select([]string{"send/zero"})
		if err != nil {
			t.Fatal(err)
		}
		slow := fault{plant: says("wc", func(_, answer string) string {
			time.Sleep(35 * time.Second)
			return answer
		})}
		r := slow.runWith(t, conformance.Config{Rules: list, Timeout: 20 * time.Second})
		if res := r.Results[0]; res.Verdict != conformance.Pass {
			t.Errorf("%s", res.Text())
		}
	})
}

// TestAgain: a rule that failed because a packet was lost passes when it is
// tried again, and the report says so. What always fails, fails.
func TestAgain(t *testing.T) {
	t.Parallel()
	list, err := conformance.Select([]string{"send/only", "read/only", "atomic/fetch-add"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		acks := 0
		f := fault{plant: sends(func(p *rocev2.Packet) bool {
			if isACK(p) {
				acks++
			}
			return acks != 1 && !is(p, rocev2.RCAtomicAcknowledge)
		})}
		r := f.runWith(t, conformance.Config{Rules: list, Again: 2})
		if want := "3 rules: 2 pass, 1 fail, 0 deviations known, 0 not tested; 1 of those that pass failed at first"; r.Summary() != want {
			t.Errorf("%s, want %s", r.Summary(), want)
		}
		for i, tries := range []int{1, 0, 2} {
			if res := r.Results[i]; len(res.Before) != tries || strings.Contains(res.Text(), "at first") != (tries > 0) {
				t.Errorf("%s", res.Text())
			}
		}
		var b strings.Builder
		if _, err := r.WriteTo(&b); err != nil || !strings.Contains(b.String(), "## Passed, but not at first\n\n### send/only") {
			t.Errorf("%v: %s", err, b.String())
		}
	})
}

// TestKind: deviations are those of the kind that the tester says, and the
// report still says what the target is.
func TestKind(t *testing.T) {
	t.Parallel()
	list, err := conformance.Select([]string{"psn/stale"})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]conformance.Verdict{"": conformance.Fail, "none": conformance.Fail, stage.LinuxRXE: conformance.Known} {
		synctest.Test(t, func(t *testing.T) {
			f := fault{plant: answers(anyRequest, func(p *rocev2.Packet) bool {
				p.BTH.PSN = 0xffffff
				return true
			})}
			r := f.runWith(t, conformance.Config{Rules: list, Kind: kind})
			if res := r.Results[0]; res.Verdict != want {
				t.Errorf("%q: %s", kind, res.Text())
			}
			if name := r.Peer(); !strings.HasPrefix(name, "rocev2 - ") && kind == "" || strings.Contains(name, ", taken for "+kind+" (") != (kind != "") {
				t.Errorf("%q: %s", kind, name)
			}
		})
	}
}

// TestReportsOfStrangers: what a peer says of itself becomes no markup.
func TestReportsOfStrangers(t *testing.T) {
	t.Parallel()
	all, err := conformance.Select([]string{"send/only"})
	if err != nil {
		t.Fatal(err)
	}
	r := conformance.Report{
		Target:  conformance.Target{Kind: "a|b", Release: "<script>", Device: "`x` [link](http://example.com)", MTU: rocev2.MTU1024.Bytes(), Services: []string{"<b>"}},
		Results: []*conformance.Result{{Rule: all[0], Record: stage.Record{Verdict: conformance.Fail, Came: "<i>", Why: "\"&", Steps: []string{"</pre>"}}, Capture: "send-only.pcapng"}},
	}
	var b, h strings.Builder
	if _, err := r.WriteTo(&b); err != nil || strings.Contains(b.String(), "<script>") || strings.Contains(b.String(), "](http") {
		t.Errorf("%v: %s", err, b.String())
	}
	if err := r.WriteHTML(&h); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script>", "<b>", "<i>", "\n</pre>"} {
		if strings.Contains(h.String(), bad) {
			t.Errorf("the page has %s:\n%s", bad, h.String())
		}
	}
	for _, want := range []string{`class="fail">fail<`, `<a href="send-only.pcapng">`, "&lt;/pre&gt;", "1 rules: 0 pass, 1 fail"} {
		if !strings.Contains(h.String(), want) {
			t.Errorf("the page has no %s:\n%s", want, h.String())
		}
	}
}

// TestWriteDir: a report takes the place of an earlier one, captures of rules
// that pass now included. Other files stay.
func TestWriteDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	list, err := conformance.Select([]string{"send/only", "read/only"})
	if err != nil {
		t.Fatal(err)
	}
	names := func() string {
		var all []string
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			all = append(all, f.Name())
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		fault fault
		want  string
	}{
		{fault{plant: sends(lost)}, "read-only.pcapng report.html report.json report.md send-only.pcapng"},
		{fault{plant: func() plant { return plant{} }}, "mine.pcapng report.html report.json report.md"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if err := c.fault.run(t, list).WriteDir(dir); err != nil {
				t.Fatal(err)
			}
		})
		if got := names(); got != c.want {
			t.Errorf("the directory has %s, not %s", got, c.want)
		}
		if err := os.WriteFile(filepath.Join(dir, "mine.pcapng"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLimit: a rule that takes too long is not tested, and says nothing of the
// target.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules, err := conformance.Select([]string{"retry/*", "send/only"})
		if err != nil {
			t.Fatal(err)
		}
		r := against(t, conformance.Config{Rules: rules, Limit: 20 * time.Millisecond}, nil)
		late := 0
		for _, res := range r.Results {
			if strings.Contains(res.Why, "took longer") || strings.Contains(res.Why, "control connection") {
				late++
			}
		}
		if late < 4 || r.Results[0].ID != "send/only" || r.Results[0].Verdict != conformance.Pass {
			t.Errorf("%s, %d were too late", r.Summary(), late)
		}
		for _, res := range r.Results {
			if strings.Contains(res.Why, "any more") {
				t.Errorf("the target is taken for gone: %s", res.Text())
			}
		}
	})
}
