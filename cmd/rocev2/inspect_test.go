package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/gopacket"
	gplayers "github.com/google/gopacket/layers"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2/layers"
	"github.com/gosoftroce/rocev2/verbs"
)

// frame is a packet of a capture.
type frame struct {
	out   bool // sent by the device
	class uint8
}

// readCapture checks that a capture is whole, that its packets decode and that
// their ICRCs match, and returns them.
func readCapture(t *testing.T, capture []byte, local string) (all []frame) {
	t.Helper()
	list, _ := captures.Frames(t, bytes.NewReader(capture))
	for i, data := range list {
		p := gopacket.NewPacket(data, gplayers.LayerTypeIPv4, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Fatalf("frame %d: %v", i, e.Error())
		}
		if err := layers.CheckICRC(p); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		ip := p.NetworkLayer().(*gplayers.IPv4)
		all = append(all, frame{out: ip.SrcIP.String() == local, class: ip.TOS})
	}
	return all
}

// dissects has tshark find an InfiniBand packet in every frame and nothing
// malformed.
func dissects(t *testing.T, file string, want int) {
	t.Run("tshark", func(t *testing.T) {
		all := captures.Tshark(t, file, nil, []string{"infiniband.bth.opcode", "_ws.malformed"})
		if len(all) != want {
			t.Errorf("tshark shows %d frames, want %d", len(all), want)
		}
		for i, f := range all {
			if len(f) != 2 || f[0] == "" || f[1] != "" {
				t.Fatalf("frame %d: opcode and malformed: %q", i+1, f)
			}
		}
	})
}

// statsOf returns the counters that --stats=json prints on the last lines.
func statsOf(t *testing.T, out string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var v struct{ Stats map[string]any }
		if json.Unmarshal([]byte(line), &v) == nil && v.Stats != nil {
			all = append(all, v.Stats)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no counters in\n%s", out)
	}
	return all
}

func counterOf(t *testing.T, stats map[string]any, section, name string) int {
	t.Helper()
	m, _ := stats[section].(map[string]any)
	v, ok := m[name].(float64)
	if !ok {
		t.Errorf("no counter %s of %s in %v", name, section, stats)
	}
	return int(v)
}

// The capture of either side has every packet that crossed its socket, and only
// good ones; --stats counts the same.
func TestPcap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, command := range map[string]string{
		"pingpong": "pingpong -n 20 -s 3000 -e",
		"perf":     "perf write_bw -n 20 -q 2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := func(side string) []string {
				return append(strings.Fields(command), "--stats=json", "--pcap", filepath.Join(dir, name+side))
			}
			s, c := sides(t, args("server"), args("client"))
			for side, r := range map[string]result{"server": s, "client": c} {
				file := filepath.Join(dir, name+side)
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				st := statsOf(t, r.out)[0]
				frames := readCapture(t, b, st["device"].(string))
				out := 0
				for _, f := range frames {
					if f.out {
						out++
					}
				}
				tx, rx := counterOf(t, st, "link", "tx_packets"), counterOf(t, st, "link", "rx_packets")
				if tx == 0 || rx == 0 || out != tx || len(frames) != tx+rx {
					t.Errorf("%s: %d packets sent and %d received; the capture has %d and %d", side, tx, rx, out, len(frames)-out)
				}
				dissects(t, file, len(frames))
			}
		})
	}
}

// With the capture on standard output, results go to standard error.
func TestPcapToStandardOutput(t *testing.T) {
	t.Parallel()
	_, c := sides(t, strings.Fields("perf send_bw -n 10"), strings.Fields("perf send_bw -n 10 --stats --pcap -"))
	if n := len(readCapture(t, []byte(c.out), "")); n == 0 {
		t.Error("the capture is empty")
	}
	for _, want := range []string{"Send BW Test", " 65536 ", "Counters of the device", "queue pairs  tx_packets"} {
		if !strings.Contains(c.err, want) {
			t.Errorf("%q is not in\n%s", want, c.err)
		}
	}
}

// tripwire is a standard output that calls trip once enough has been written.
type tripwire struct {
	buffer
	after int
	trip  func()
}

func (w *tripwire) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		w.trip()
	}
	return w.buffer.Write(p)
}

// An interrupt in the middle of a run leaves a capture that is whole.
func TestPcapOfInterruptedRun(t *testing.T) {
	t.Parallel()
	port, serverAddr, clientAddr := freePort(t), freeAddress(), freeAddress()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := &waiting{ready: make(chan struct{})}
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, strings.Fields("perf write_bw -D 1000 -d "+serverAddr+" -p "+port), streams{out: &buffer{}, err: errs})
	}()
	select {
	case <-errs.ready:
	case <-done:
		t.Fatal(errs.String())
	}
	out, clientErr := &tripwire{after: 1 << 20, trip: cancel}, &buffer{}
	code := run(ctx, strings.Fields("perf write_bw -D 1000 --pcap - --stats -d "+clientAddr+" -p "+port+" "+serverAddr), streams{out: out, err: clientErr})
	<-done
	if code != exitFailure || !strings.HasSuffix(clientErr.String(), "rocev2: interrupted\n") {
		t.Errorf("exit status %d, %q", code, clientErr.String())
	}
	if !strings.Contains(clientErr.String(), "Counters of the device") {
		t.Errorf("no counters in %q", clientErr.String())
	}
	if n := len(readCapture(t, []byte(out.String()), clientAddr)); n < 100 {
		t.Errorf("the capture has %d frames", n)
	}
}

// full is a standard output with room for the given number of bytes.
type full struct{ left int }

func (w *full) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

// A capture that cannot begin ends the command before it waits for a peer; one
// that cannot go on is reported at the end, with the results.
func TestPcapErrors(t *testing.T) {
	t.Parallel()
	for _, file := range []string{filepath.Join(t.TempDir(), "no", "such"), t.TempDir(), "/dev/full"} {
		if _, err := os.Stat("/dev/full"); file == "/dev/full" && err != nil {
			continue // another system
		}
		r := invoke(t.Context(), "pingpong", "-d", freeAddress(), "-p", freePort(t), "--pcap", file)
		if r.code != exitFailure || !strings.Contains(r.err, "--pcap") || !strings.Contains(r.err, file) || strings.Contains(r.err, "waiting") ||
			strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit status %d, %q", file, r.code, r.err)
		}
	}
	addr, errs := freeAddress(), &buffer{}
	code := run(t.Context(), strings.Fields("demo --rates 0 --pcap - --local "+addr+" --peer "+freeAddress()), streams{out: &full{left: 100_000}, err: errs})
	if code != exitFailure || !strings.Contains(errs.String(), "not complete: disk full") || !strings.Contains(errs.String(), "All 13 operations") {
		t.Errorf("exit status %d, %q", code, errs.String())
	}
}

// Rules of every kind hit the packets that they name; the connection repairs it
// and the counters tell.
func TestFaultFlag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, section, counter string
		hits                   int
		other, reason          string // what the peer counts
	}{
		{"drop:opcode=SEND_ONLY:dir=out:nth=5", "faults_out", "dropped", 1, "", ""},
		{"drop:opcode=SEND:dir=in:every=10:limit=2", "faults_in", "dropped", 2, "", ""},
		{"corrupt:opcode=SEND:dir=out:nth=3", "faults_out", "corrupted", 1, "drops", "bad_icrc"},
		{"duplicate:opcode=SEND_ONLY:dir=out:nth=7", "faults_out", "duplicated", 1, "drops", "duplicate"},
		{"delay:opcode=SEND:dir=out:nth=2:by=1ms", "faults_out", "delayed", 1, "", ""},
		{"reorder:opcode=SEND:dir=out:nth=2:hold=1ms", "faults_out", "reordered", 1, "", ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields("pingpong -n 50 -s 1000 -c -e --stats=json")
			s, r := sides(t, args, append(args, "--fault", c.rule, "--fault", "seed=7"))
			if !strings.Contains(r.err, "to repeat them: --fault seed=7\n") || !strings.Contains(r.err, c.rule) {
				t.Errorf("the seed is not in %q", r.err)
			}
			st := statsOf(t, r.out)[0]
			if got := counterOf(t, st, c.section, c.counter); got != c.hits || st["fault_seed"] != 7.0 {
				t.Errorf("%d %s, want %d: %v", got, c.counter, c.hits, st)
			}
			if c.other != "" && counterOf(t, statsOf(t, s.out)[0], c.other, c.reason) < c.hits {
				t.Errorf("the peer does not count %s: %s", c.reason, s.out)
			}
		})
	}
}

// The demo verifies all data on a bad network, and says what it was like.
func TestDemoWithFaults(t *testing.T) {
	t.Parallel()
	local, file := freeAddress(), filepath.Join(t.TempDir(), "demo.pcapng")
	r := invoke(t.Context(), "demo", "--local", local, "--peer", freeAddress(), "--rates", "0", "--stats=json", "--tclass", "106",
		"--pcap", file, "--fault", "drop:every=50", "--fault", "duplicate:every=70", "--fault", "reorder:every=30:by=2:dir=in")
	if r.code != 0 {
		t.Fatalf("exit status %d: %s\n%s", r.code, r.err, r.out)
	}
	for _, want := range []string{"All 13 operations", "Faults, of ", " packets: ", "Repaired: "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	st := statsOf(t, r.out)
	if len(st) != 2 || st[0]["device"] != local {
		t.Fatalf("counters of %d processes: %s", len(st), r.out)
	}
	for _, k := range []string{"dropped", "duplicated"} {
		if counterOf(t, st[0], "faults_out", k) == 0 || counterOf(t, st[0], "faults_in", k) == 0 {
			t.Errorf("nothing was %s: %v", k, st[0])
		}
	}
	if counterOf(t, st[0], "queue_pairs", "retransmits") == 0 || counterOf(t, st[1], "queue_pairs", "rx_packets") == 0 {
		t.Errorf("counters %v", st)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wantClass(t, readCapture(t, b, local), 106)
	dissects(t, file, len(readCapture(t, b, local)))
}

// wantClass checks the traffic class of all packets, in both directions.
func wantClass(t *testing.T, frames []frame, class uint8) {
	t.Helper()
	var ways [2]int
	for i, f := range frames {
		if f.class != class {
			t.Fatalf("frame %d (sent: %v) has traffic class %d, want %d", i, f.out, f.class, class)
		}
		if f.out {
			ways[0]++
		} else {
			ways[1]++
		}
	}
	if ways[0] == 0 || ways[1] == 0 {
		t.Errorf("the capture has %d sent and %d received packets", ways[0], ways[1])
	}
}

// The traffic class that both sides ask for is on what they send, and arrives.
func TestTrafficClassFlag(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"pingpong -n 10 -e", "perf read_bw -n 10", "perf send_lat -n 10"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "capture")
			args := append(strings.Fields(command), "--tclass", "0x6a")
			_, c := sides(t, args, append(args, "--stats=json", "--pcap", file))
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			wantClass(t, readCapture(t, b, statsOf(t, c.out)[0]["device"].(string)), 0x6a)
		})
	}
}

func TestInspectUsageErrors(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--fault drp=1%":      `no action "drp"`,
		"--fault drop=1":      "1% for per cent",
		"--fault seed=7":      "a seed without a rule",
		"--stats=xml":         "--stats=json",
		"--tclass 256":        "0 to 255",
		"--tclass -1":         "0 to 255",
		"--pcap= --tclass 1":  "no file",
		"--fault delay=1%":    "delay:by=5ms",
		"--fault drop:nth=-1": "from 1 to",
	} {
		for _, command := range []string{"pingpong", "perf write_bw", "demo"} {
			r := invoke(t.Context(), strings.Fields(command+" "+args)...)
			if r.code != exitUsage || !strings.Contains(r.err, want) || r.out != "" {
				t.Errorf("rocev2 %s %s: exit status %d, %q, %q; expected status 2 and %q", command, args, r.code, r.out, r.err, want)
			}
		}
	}
}

func TestFaultsCommand(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "faults", "drop:rate=1%:dir=in", "seed=3")
	if r.code != 0 || r.out != "drop=1%:dir=in\n" {
		t.Errorf("exit status %d, %q, %q", r.code, r.out, r.err)
	}
	if r := invoke(t.Context(), "faults", "drop:opcode=SEND_LSAT"); r.code != exitUsage || !strings.Contains(r.err, "did you mean SEND_LAST?") {
		t.Errorf("exit status %d, %q", r.code, r.err)
	}
	if r := invoke(t.Context(), "faults"); r.code != 0 || !strings.Contains(r.out, "ACTION[=RATE]") {
		t.Errorf("exit status %d, %q", r.code, r.out)
	}
}

func TestDevinfoForms(t *testing.T) {
	t.Parallel()
	addr := freeAddress()
	short, long := invoke(t.Context(), "devinfo", "-d", addr), invoke(t.Context(), "devinfo", "-v", "-d", addr)
	for _, want := range []string{"hca_id:", "node_guid:", "PORT_ACTIVE (4)", "active_mtu:", "link_layer:     Ethernet"} {
		if !strings.Contains(short.out, want) || !strings.Contains(long.out, want) {
			t.Errorf("%q is not in\n%s%s\nor not in\n%s%s", want, short.err, short.out, long.err, long.out)
		}
	}
	for _, want := range []string{"max_qp:", "transport_services:             RC, UC, UD, XRC", "MEM_WINDOW_TYPE_2B", "max_srq:                        1048576", "max_xrcd:", "max_mcast_grp:                  8192", "phys_state:     LINK_UP (5)", "GID[  0]:", "native_only:    no", "gso:", "recv_buffer:"} {
		if strings.Contains(short.out, want) || !strings.Contains(long.out, want) {
			t.Errorf("%q is in\n%s\nor not in\n%s", want, short.out, long.out)
		}
	}
	r := invoke(t.Context(), "devinfo", "--json", "-d", addr)
	var v struct {
		ID    string `json:"hca_id"`
		MaxQP int    `json:"max_qp"`
		Ports []struct {
			State, Interface string
			PhysState        string `json:"phys_state"`
			ActiveMTU        int    `json:"active_mtu"`
			GIDs             []gidEntry
		}
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	gid := netip.MustParseAddr(addr).As16()
	if v.ID != addr || v.MaxQP == 0 || len(v.Ports) != 1 || v.Ports[0].State != "PORT_ACTIVE" || v.Ports[0].PhysState != "LINK_UP" ||
		v.Ports[0].ActiveMTU == 0 || len(v.Ports[0].GIDs) != 1 || v.Ports[0].GIDs[0].GID != groups(gid[:]) {
		t.Errorf("%+v\nof %s", v, r.out)
	}
}

// A device that is in use is shown, too.
func TestDevinfoOfDeviceInUse(t *testing.T) {
	t.Parallel()
	dev, err := verbs.Open(freeAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r := invoke(t.Context(), "devinfo", "-v", "-d", dev.Addr().String())
	if r.code != 0 || !strings.Contains(r.out, "in_use:         yes") || !strings.Contains(r.out, "udp_port:       4791") {
		t.Errorf("exit status %d: %s%s", r.code, r.err, r.out)
	}
}

// needsNetworkOfItsOwn skips a test where it cannot have one.
func needsNetworkOfItsOwn(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"unshare", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (on Debian: apt-get install util-linux iproute2)", tool)
		}
	}
	if out, err := exec.Command("unshare", "-n", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace (run as root, or with CAP_SYS_ADMIN): %s", out)
	}
}

// devinfo tells a port that is down, in a network of its own.
func TestDevinfoPortDown(t *testing.T) {
	t.Parallel()
	needsNetworkOfItsOwn(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-n", "sh", "-ec", `
ip link add insight0 mtu 2000 type veth peer name insight1
ip addr add 10.98.1.1/24 dev insight0
"$0" devinfo -v -d insight0
ip link set insight0 up
"$0" devinfo -v -d 10.98.1.1
`, self)
	cmd.Env = append(os.Environ(), demoPeerEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	parts := strings.Split(string(out), "hca_id:")
	if len(parts) != 3 {
		t.Fatalf("%s", out)
	}
	for i, want := range [][]string{
		{"PORT_DOWN (1)", "interface insight0 is down", "DISABLED (3)", "1024 (3)"},
		{"PORT_DOWN (1)", "interface insight0 has no carrier", "POLLING (2)", "1024 (3)"},
	} {
		for _, w := range want {
			if !strings.Contains(parts[i+1], w) {
				t.Errorf("%q is not in\n%s", w, parts[i+1])
			}
		}
	}
}

// Output to nowhere is taken as output to a file is: "rocev2 region read ... >
// /dev/null" measures.
func TestNullDeviceIsNoTerminal(t *testing.T) {
	t.Parallel()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if isTerminal(f) {
		t.Errorf("%s counts as a terminal", os.DevNull)
	}
}

// Rates that go by marks are of no use where packets may not be marked: that is
// said, and nothing else changes.
func TestCongestionWithoutECN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		congestion string
		tclass     int
		note       bool
	}{{"dcqcn", 0, true}, {"dcqcn-adapter,line=25G", 104, true}, {"dcqcn", 106, false}, {"static", 0, false}, {"", 0, false}} {
		var errs bytes.Buffer
		f := inspectFlags{cc: c.congestion, tclass: c.tclass, flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
		if _, err := f.begin(streams{out: &bytes.Buffer{}, err: &errs}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(errs.String(), "--tclass 106"); said != c.note {
			t.Errorf("--congestion %q --tclass %d: %q", c.congestion, c.tclass, &errs)
		}
	}
}
