package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

const goldenDir = "../../rocev2/testdata/golden/"

// lines returns the lines of a text.
func linesOf(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }

func TestDumpLines(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", goldenDir+"rping.pcap")
	lines := linesOf(r.out)
	if r.code != 0 || r.err != "" || len(lines) != 41 {
		t.Fatalf("%d, %d lines: %s", r.code, len(lines), r.err)
	}
	for n, want := range map[int]string{
		0:  "CM REQ id 0xbe883ba tcp:7174 RC from 198.18.0.4:47202 qp 0x000016 psn 12647147 mtu 1024",
		6:  "RC_RDMA_READ_RESPONSE_ONLY qp 0x000016 psn 12647147 len 100 msn 1  #1 READ 100 B  completes #1 after 442 µs  rtt 442 µs",
		40: "198.18.0.2 > 198.18.0.4  c1   CM DREP id 0x31fb6b37 to 0xbe883ba",
	} {
		if !strings.Contains(lines[n], want) {
			t.Errorf("line %d: %s\nwant %s", n+1, lines[n], want)
		}
	}
	if r := invoke(t.Context(), "dump", goldenDir+"rping.pcap", "-f", "kind=read", "-c", "2"); len(linesOf(r.out)) != 2 {
		t.Errorf("two packets of READs:\n%s", r.out)
	}
}

// A capture comes from standard input, too.
func TestDumpStdin(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(goldenDir + "udaddy.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs buffer
	code := run(t.Context(), []string{"dump", "-"}, streams{in: bytes.NewReader(b), out: &out, err: &errs})
	if code != 0 || len(linesOf(out.String())) != 22 {
		t.Errorf("%d, %s\n%s", code, errs.String(), out.String())
	}
}

// stuck is a standard input on which nothing comes.
type stuck struct{ ctx context.Context }

func (s stuck) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, io.EOF }

// Ctrl-C ends a dump that waits, and what was asked for at the end is shown.
func TestDumpInterrupted(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(goldenDir + "rping.pcap")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	shown := &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}
	var errs buffer
	done := make(chan int, 1)
	go func() {
		in := io.MultiReader(bytes.NewReader(b[:1000]), stuck{t.Context()})
		done <- run(ctx, []string{"dump", "-"}, streams{in: in, out: shown, err: &errs})
	}()
	shown.await("CM REP")
	stop()
	if code := <-done; code != 0 {
		t.Errorf("%d: %s", code, errs.String())
	}
}

func TestDumpJSON(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", goldenDir+"ib_atomic_bw.pcap", "--json")
	for i, line := range linesOf(r.out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if v["frame.number"] != float64(i+1) || v["rocev2.icrc"] != "good" || v["infiniband.bth.destqp"] != float64(0x18) {
			t.Errorf("%s", line)
		}
	}
	var stats struct {
		Packets     int
		Connections []struct {
			Requests []struct{ Messages, Completed int }
		}
	}
	r = invoke(t.Context(), "dump", goldenDir+"ib_atomic_bw.pcap", "--stats=json")
	if err := json.Unmarshal([]byte(r.out), &stats); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	if stats.Packets != 10 || len(stats.Connections) != 1 || stats.Connections[0].Requests[0].Completed != 5 {
		t.Errorf("%s", r.out)
	}
}

func TestDumpTables(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", goldenDir+"cmtime.pcap", "--connections")
	if lines := linesOf(r.out); len(lines) != 4 || !strings.Contains(lines[3], "disconnected tcp:7471") {
		t.Errorf("%s", r.out)
	}
	// Only the connections of what fits are listed.
	r = invoke(t.Context(), "dump", goldenDir+"cmtime.pcap", "--connections", "-f", "connection 2")
	if lines := linesOf(r.out); len(lines) != 2 || !strings.HasPrefix(lines[1], "c2") {
		t.Errorf("%s", r.out)
	}
	r = invoke(t.Context(), "dump", goldenDir+"srq_pingpong.pcap", "--stats")
	for _, want := range []string{"90 packets, 75240 bytes", "RC_SEND_MIDDLE       36", "c2   198.18.0.2"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
}

func TestDumpVerbose(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", goldenDir+"rping.pcap", "-x", "-f", "frame 1,4")
	for _, want := range []string{"req.startpsn                 12647147", "tcp:7174", "0x9aa1be40, good", "BTH            opcode 0x04 RC_SEND_ONLY", "|"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
}

func TestDumpChart(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", goldenDir+"srq_pingpong.pcap", "--chart", "-", "--columns", "80")
	if !strings.Contains(r.out, "├── SEND_FIRST") || !strings.Contains(r.err, "others are [2]") {
		t.Errorf("%s\n%s", r.err, r.out)
	}
	file := filepath.Join(t.TempDir(), "chart.svg")
	r = invoke(t.Context(), "dump", goldenDir+"srq_pingpong.pcap", "--chart", file, "--connection", "2", "--arrows", "5")
	b, err := os.ReadFile(file)
	if r.code != 0 || err != nil || xml.Unmarshal(b, new(struct{ XMLName xml.Name })) != nil {
		t.Errorf("%d %s %v: %s", r.code, r.err, err, b)
	}
	if !strings.Contains(string(b), "c2 RC") || !strings.Contains(r.err, "packets are not in the chart") {
		t.Errorf("%s\n%s", r.err, b)
	}
}

// What was chosen can be written, and read again.
func TestDumpWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cm.pcapng")
	r := invoke(t.Context(), "dump", goldenDir+"rping.pcap", "-w", file, "-f", "cm")
	if r.code != 0 || r.out != "" || !strings.Contains(r.err, "5 packets written") {
		t.Fatalf("%d %s %s", r.code, r.out, r.err)
	}
	if r = invoke(t.Context(), "dump", file); len(linesOf(r.out)) != 5 || !strings.Contains(r.out, "CM DREP") {
		t.Errorf("%s", r.out)
	}
	dissects(t, file, 5)
}

func TestDumpErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	golden, err := os.ReadFile(goldenDir + "rping.pcap")
	if err != nil {
		t.Fatal(err)
	}
	cut, text := file("cut.pcap", golden[:1000]), file("text", []byte("hello, this is no capture"))
	empty := file("none.pcap", golden[:24])
	good := goldenDir + "rping.pcap"
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"dump", 2, "dump needs a capture file"},
		{"dump a b", 2, "you can name one capture, not 2"},
		{"dump -i lo " + good, 2, "or captures on lo, not both"},
		{"dump -i nosuch0", 2, `there is no network interface "nosuch0"; there are any, `},
		{"dump " + dir + "/missing", 1, "no such file"},
		{"dump " + text, 1, "neither pcap nor pcapng"},
		{"dump " + cut, 1, "byte 1000: the capture ends in the middle of a record"},
		{"dump " + empty, 0, ""},
		{"dump " + good + " -f nosuch", 2, `filter "nosuch", column 1: there is no flag "nosuch"`},
		{"dump " + good + " -f rnr", 0, "41 frames: no packet fits the filter"},
		{"dump " + good + " --connection 2", 2, "which connection --chart draws"},
		{"dump " + good + " --chart - --connection 9", 1, "there is no connection 9"},
		{"dump " + good + " --chart - -f icrc=bad", 1, "no connection fits"},
		{"dump " + good + " --chart " + dir, 1, "--chart: open"},
		{"dump " + good + " --arrows 0", 2, "a number from 1"},
		{"dump " + good + " --columns 5", 2, "a number from 60"},
		{"dump " + good + " --stats=xml", 2, "write --stats or --stats=json"},
		{"dump " + good + " --json -v", 2, "leave out -v"},
		{"dump " + good + " -w " + dir, 1, "--write: open"},
	} {
		r := invoke(t.Context(), strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: %d, %q; want %d, %q", c.args, r.code, r.err, c.code, c.want)
		}
	}
	// What is in front of the damage is shown.
	if r := invoke(t.Context(), "dump", cut); len(linesOf(r.out)) != 2 {
		t.Errorf("%s", r.out)
	}
}

// brokenPipe is a standard output that fails.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestDumpOutputFails(t *testing.T) {
	t.Parallel()
	var errs buffer
	code := run(t.Context(), []string{"dump", goldenDir + "rping.pcap"}, streams{in: strings.NewReader(""), out: brokenPipe{}, err: &errs})
	if code != 1 || !strings.Contains(errs.String(), "nobody reads") {
		t.Errorf("%d: %s", code, errs.String())
	}
}

// The help explains every term of filters.
func TestDumpHelp(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", "--help")
	for _, term := range slices.Concat(dissect.FilterTerms(false), dissect.FilterTerms(true)) {
		if !strings.Contains(r.out, "  "+term[0]) || !strings.Contains(r.out, term[1]) {
			t.Errorf("the help has no %v", term)
		}
	}
}

// What dump counts as sent again is what the device counted that sent it.
// Packets are lost after the capture. SENDs are never split into several
// messages.
func TestDumpCountsWhatTheDeviceCounts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lossy.pcapng")
	server, client := freeAddress(), freeAddress()
	_, r := sidesOn(t, server, client, strings.Fields("perf send_bw -n 200 -s 65536 --fault drop:every=50:dir=in"),
		strings.Fields("perf send_bw -n 200 -s 65536 --stats=json --pcap "+file))
	stats := statsOf(t, r.out)[0]
	again := counterOf(t, stats, "queue_pairs", "retransmits")
	dump := invoke(t.Context(), "dump", file, "--json", "--stats")
	var got struct {
		ICRC        struct{ Bad, Unknown int }
		Connections []struct {
			Requests []struct {
				From                         string
				Packets, Retransmitted       int
				Messages, Completed, Missing int
			}
		}
	}
	if err := json.Unmarshal([]byte(dump.out), &got); err != nil {
		t.Fatalf("%v: %s %s", err, dump.err, dump.out)
	}
	for _, c := range got.Connections {
		for _, s := range c.Requests {
			if s.From == client && s.Packets > 0 {
				if again == 0 || s.Retransmitted != again || s.Messages != 200 || s.Completed != 200 || s.Missing != 0 || got.ICRC.Bad+got.ICRC.Unknown != 0 {
					t.Errorf("the device sent %d packets again; dump shows %+v, ICRC %+v", again, s, got.ICRC)
				}
				return
			}
		}
	}
	t.Errorf("no requests of %s in\n%s", client, dump.out)
}

// A live capture shows what passes an interface, buffers of segmentation
// offload taken apart, and ends with Ctrl-C. On a busy machine it may miss
// packets: it says so, and then another one is to see them all.
func TestDumpLive(t *testing.T) {
	t.Parallel()
	for range 20 {
		out, errs := dumpLive(t)
		if strings.Contains(errs, "packets were lost") {
			continue
		}
		if !strings.Contains(out, "completes #5 ") || strings.Contains(out, "BAD ICRC") || strings.Contains(out, "gap") {
			t.Errorf("%s%s", out, errs)
		}
		return
	}
	t.Error("each of 20 captures missed packets")
}

// dumpLive captures a ping-pong and returns what it shows: until all is there,
// or for some seconds.
func dumpLive(t *testing.T) (out, messages string) {
	t.Helper()
	server, client := freeAddress(), freeAddress()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	errs := &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}
	shown := &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}
	done := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"dump", "-i", "lo", "-f", "host " + client}, streams{in: strings.NewReader(""), out: shown, err: errs})
		errs.Write([]byte("ended\n"))
		done <- code
	}()
	for !strings.Contains(errs.String(), "capturing RoCEv2 on lo") {
		if <-errs.wrote; strings.Contains(errs.String(), "ended") {
			code := <-done
			if runtime.GOOS != "linux" {
				t.Skip("live captures are there on Linux only: run it there")
			}
			if code == 1 && strings.Contains(errs.String(), "CAP_NET_RAW") {
				t.Skip("this user may not capture packets (run as root, or with CAP_NET_RAW)")
			}
			t.Fatal(errs.String())
		}
	}
	sidesOn(t, server, client, strings.Fields("pingpong -n 5 -s 30000"), strings.Fields("pingpong -n 5 -s 30000"))
	for late := time.After(2 * time.Minute); !strings.Contains(shown.String(), "completes #5 "); {
		select {
		case <-shown.wrote:
			continue
		case <-late:
		}
		break
	}
	stop()
	if code := <-done; code != 0 {
		t.Errorf("%d: %s", code, errs.String())
	}
	return shown.String(), errs.String()
}

// What the documentation shows is what the commands print.
func TestDumpDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/inspect.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for i, block := range strings.Split(string(text), "```\n") {
		command, want, _ := strings.Cut(block, "\n")
		args, ok := strings.CutPrefix(command, "$ rocev2 dump ")
		if i%2 == 0 || !ok || !strings.Contains(args, "/testdata/") {
			continue
		}
		shown++
		args, filter, quoted := strings.Cut(args, " -f '")
		list := []string{"dump"}
		for _, arg := range strings.Fields(args) {
			if strings.Contains(arg, "/testdata/") {
				arg = "../../" + arg
			}
			list = append(list, arg)
		}
		if quoted {
			list = append(list, "-f", strings.TrimSuffix(filter, "'"))
		}
		got := linesOf(invoke(t.Context(), list...).out)
		for n, line := range linesOf(want) {
			if line == "..." {
				break
			}
			if n >= len(got) || strings.TrimRight(got[n], " ") != line {
				t.Errorf("%s: line %d is not\n%s", command, n+1, line)
			}
		}
	}
	if shown != 7 {
		t.Errorf("%d examples, want 7", shown)
	}
}
