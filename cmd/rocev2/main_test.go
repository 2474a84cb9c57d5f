package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestMain lets the test binary be the second process of the demo.
func TestMain(m *testing.M) {
	if os.Getenv(demoPeerEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// buffer is a bytes.Buffer that goroutines may share.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

func invoke(ctx context.Context, args ...string) result {
	var out, errs buffer
	code := run(ctx, args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	return result{code, out.String(), errs.String()}
}

// freePort returns a free TCP port of the addresses of freeAddress. It stays
// taken at another one, so that no other socket gets it by chance.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

var devices atomic.Uint32

// freeAddress returns a loopback address that no test of this process had
// before, and that no test of another is likely to have. An address
// that was just given up may be held for a moment by the child of a fork.
func freeAddress() string {
	n := devices.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(128 + os.Getpid()%100), byte(n >> 8), byte(n)}).String()
}

// waiting is a standard error that tells when a server waits for its client.
type waiting struct {
	buffer
	once  sync.Once
	ready chan struct{}
	wrote chan struct{} // if set, has a token after a write
}

func (w *waiting) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("waiting on TCP port")) {
		w.once.Do(func() { close(w.ready) })
	}
	n, err := w.buffer.Write(p)
	select {
	case w.wrote <- struct{}{}:
	default:
	}
	return n, err
}

// await waits until a text has been written.
func (w *waiting) await(text string) {
	for !strings.Contains(w.String(), text) {
		<-w.wrote
	}
}

// pair runs a command as server and as client.
func pair(t *testing.T, args ...string) (server, client result) {
	t.Helper()
	return sides(t, args, args)
}

// sides runs a server and its client, each with its own flags.
func sides(t *testing.T, serverArgs, clientArgs []string) (server, client result) {
	t.Helper()
	return sidesOn(t, freeAddress(), freeAddress(), serverArgs, clientArgs)
}

// sidesOn is sides with given devices.
func sidesOn(t *testing.T, serverAddr, clientAddr string, serverArgs, clientArgs []string) (server, client result) {
	t.Helper()
	both := []string{"-p", freePort(t), "--timeout", "60s"}
	serverArgs = slices.Concat(patient(serverArgs), both, []string{"-d", serverAddr})
	clientArgs = slices.Concat(patient(clientArgs), both, []string{"-d", clientAddr, serverAddr})
	errs := &waiting{ready: make(chan struct{})}
	var out buffer
	done := make(chan int, 1)
	go func() { done <- run(t.Context(), serverArgs, streams{in: strings.NewReader(""), out: &out, err: errs}) }()
	select {
	case <-errs.ready:
	case code := <-done:
		t.Fatalf("the server ended with %d: %s", code, errs.String())
	}
	client = invoke(t.Context(), clientArgs...)
	server = result{code: <-done, out: out.String(), err: errs.String()}
	if server.code != 0 || client.code != 0 {
		t.Fatalf("%v: server %d: %s; client %d: %s", clientArgs, server.code, server.err, client.code, client.err)
	}
	return server, client
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"nonsense":                                       `no command "nonsense"`,
		"perf":                                           "",
		"perf sned_bw":                                   "send_bw",
		"perf write_bw --nonsense":                       "unknown flag",
		"perf write_bw -s 0":                             "at least 1",
		"perf write_bw -s -5":                            "at least 1",
		"perf write_bw --stats json":                     "the format is --stats=json",
		"perf write_bw -q x":                             `--qp "x": it must be a whole number`,
		"perf write_bw -n 1e9":                           `--iters "1e9": it must be a whole number`,
		"perf write_bw --tclass z":                       `--tclass "z": it must be a whole number`,
		"pingpong --idle-timeout 5":                      `--idle-timeout "5": it must be a time with its unit`,
		"pingpong -e=maybe":                              `--events "maybe": it must be true or false`,
		"perf write_bw -s x":                             "invalid argument",
		"perf write_bw -n 0":                             "at least 1",
		"perf write_bw -q 0":                             "at least 1",
		"perf write_bw -m 1000":                          "256, 512, 1024, 2048 or 4096",
		"perf write_bw -p 0":                             "1 to 65535",
		"perf write_bw -p 70000":                         "1 to 65535",
		"perf write_bw -i 2":                             "one port",
		"perf write_bw --sport 4791":                     "49152 to 65535, or auto",
		"pingpong --sport 1":                             "49152 to 65535, or auto",
		"perf write_bw -u 32":                            "1 to 31",
		"perf write_bw -D 0":                             "number of seconds",
		"perf write_bw -D NaN":                           "number of seconds",
		"perf write_bw -D 5 -n 10":                       "-D and -n",
		"perf write_bw -a -s 5":                          "-a and -s",
		"perf write_bw --timeout -1s":                    "positive",
		"perf write_bw a b":                              "one server",
		"perf write_lat -q 2":                            "-q, --qp: a latency test has one queue pair",
		"perf write_lat -e":                              "-e, --events: write_lat watches memory",
		"perf write_lat -N":                              "-N, --noPeak: a latency test",
		"perf read_lat --no_peak":                        "--no_peak: a latency test",
		"perf read_bw -I 5":                              "-I, --inline_size: only SEND and WRITE",
		"perf read_bw -r 5":                              "-r, --rx-depth: only SEND",
		"perf write_bw -o 5":                             "-o, --outs: only READ",
		"perf atomic_bw -s 8":                            "-s, --size: atomic operations are on 8 bytes",
		"perf atomic_lat -a":                             "-a, --all: atomic operations are on 8 bytes",
		"perf send_bw -R -c UD -d 127.94.4.9":            "connects RC here, not UD",
		"perf write_bw -z --listen any":                  "--listen: with -R and -z there is no TCP connection",
		"perf write_bw -z --retry_count 3":               "--retry_count: it applies only to the connection manager (-R)",
		"perf write_bw -R -T 300":                        "-T 300",
		"perf write_bw -R --retry_count 8 -d 127.94.4.8": "the retry count is 8",
		"perf send_bw -c UD --congestion dcqcn":          "--congestion dcqcn: UD has no congestion control, as nothing tells it of congestion: use --rate_limit",
		"perf write_bw -c UD":                            "-c UD: write_bw runs over RC, UC, XRC only",
		"perf read_bw -c UC":                             "-c UC: read_bw runs over RC, XRC only",
		"perf atomic_lat -c uc":                          "-c UC: atomic_lat runs over RC, XRC only",
		"perf write_bw -c DC":                            `no transport service "DC"`,
		"perf write_bw -O":                               "-O, --dualport: a device has one port",
		"perf write_bw -T 5":                             "--tclass",
		"perf write_bw -L 5":                             "hop limit",
		"perf write_bw --rate_limit 5000":                "--rate_limit 5000: a rate is a number of Gb/s from 1e-06 to 4294.967295",
		"perf write_bw --rate_limit NaN":                 "--rate_limit NaN",
		"perf write_bw --rate_limit 1 --rate_units p":    "the units are g (Gb/s) and M (MiB/s)",
		"perf write_bw --rate_units M":                   "without --rate_limit",
		"perf write_bw --burst_size 5":                   "follows from it",
		"perf write_bw --force-link IB":                  "Ethernet",
		"perf write_bw --use-srq":                        "--use-srq: only SEND",
		"perf send_lat -H":                               "-H, --report-histogram: the times",
		"perf send_bw -g":                                "multicast",
		"perf write_bw --output latency":                 "message_rate",
		"perf write_lat --output bandwidth":              "latency",
		"perf write_bw --output bandwidth --json":        "do not go together",
		"perf write_bw -w -3":                            "positive",
		"perf write_bw --run_infinitely -n 5":            "-n do not go together",
		"perf write_lat --run_infinitely":                "bandwidth only",
		"perf write_bw -f 1":                             "-f 1",
		"perf write_bw -s 64Q":                           "with K or M",
		"perf write_bw -s 4096M -d 127.94.3.17":          "a size is at most 2147483647 bytes",
		"perf write_bw --out_json_file /nowhere/file":    "--out_json_file",
		"perf write_bw -d 127.0.0.1 -d 127.0.0.2":        "the device is already 127.0.0.1",
		"devinfo -d lo -d lo":                            "one device",
		"perf write_bw -d lo --device lo":                "one device",
		"pingpong -d lo -d lo":                           "one device",
		"pingpong --listen everywhere":                   "not an address",
		"pingpong --listen any 127.0.0.1":                "a client does not listen",
		"perf write_bw --source_ip 127.0.0.1":            "a server does not connect",
		"pingpong --source_ip any":                       "not an address",
		"pingpong --peer-gid nobody":                     "neither an address",
		"pingpong --idle-timeout 0s":                     "positive",
		"pingpong -o":                                    "-o, --odp: buffers",
		"pingpong --ts":                                  "--ts: there are no hardware timestamps",
		"pingpong -t rd":                                 `no ping-pong "rd"`,
		"pingpong -q 0":                                  "at least 1",
		"pingpong -j":                                    "device memory",
		"perf atomic_bw -A SWAP":                         "CMP_AND_SWAP",
		"pingpong -n 0":                                  "at least 1",
		"pingpong -m 0":                                  "at least 1",
		"pingpong -m 5":                                  "256, 512",
		"pingpong a b":                                   "one server",
		"devinfo x":                                      "no arguments",
		"demo x":                                         "no arguments",
		"demo --local nowhere":                           "not an address",
		"demo --rates 1h":                                "--rates",
		"version x":                                      "no arguments",
		"--nonsense":                                     "unknown flag",
	} {
		r := invoke(t.Context(), strings.Fields(args)...)
		if want == "" {
			if r.code != 0 || !strings.Contains(r.out, "Usage") {
				t.Errorf("rocev2 %s: exit status %d, %q", args, r.code, r.out)
			}
			continue
		}
		if r.code != exitUsage || !strings.Contains(r.err, want) || !strings.Contains(r.err, "--help") {
			t.Errorf("rocev2 %s: exit status %d, %q; expected status 2 and %q", args, r.code, r.err, want)
		}
		if r.out != "" {
			t.Errorf("rocev2 %s: an error prints %q to standard output", args, r.out)
		}
	}
}

func TestConfigErrorsAreUsageErrors(t *testing.T) {
	t.Parallel()
	// These need a device to be known. A server finds them before it waits:
	// it does not come to its time limit.
	port := freePort(t)
	for args, want := range map[string]string{
		"perf write_bw -I 1000000":         "inline size",
		"perf read_bw -o 1000":             "outstanding reads",
		"perf write_bw -t 10000000":        "transmit depth",
		"perf send_bw -a -D 2":             "all sizes",
		"perf write_bw -l 1000":            "post list",
		"perf write_bw -l 7 -Q 3":          "multiple",
		"perf write_bw -D 1 -f 0.5":        "margin",
		"pingpong -s 2000000000":           "size",
		"pingpong -r 99999 -n 99999":       "receive depth",
		"pingpong -q 2":                    "queue pairs",
		"pingpong -t srq -q 257":           "queue pairs",
		"pingpong -t srq -r 15":            "receive for each",
		"pingpong -t ud -s 5000":           "one packet",
		"perf send_bw -c UD -s 5000":       "one packet",
		"perf send_lat -c UD -s 64K":       "one packet",
		"perf send_bw --use-srq -q 4 -r 3": "receive for each",
	} {
		args := append(strings.Fields(args), "-d", freeAddress(), "-p", port, "--timeout", "10s")
		if r := invoke(t.Context(), args...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("rocev2 %v: exit status %d, %q; expected status 2 and %q", args, r.code, r.err, want)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for name, tt := range map[string]struct {
		args string
		want []string
	}{
		"unknown address":     {"devinfo -d 203.0.113.9", []string{"203.0.113.9", "local", "127.0.0.1"}},
		"unknown interface":   {"devinfo -d eth77", []string{"eth77", "interfaces are", "lo"}},
		"no server":           {"perf write_bw -d " + freeAddress() + " -p " + freePort(t) + " " + freeAddress(), []string{"no program listens", "-p", "--listen"}},
		"no server over IPv6": {"pingpong -d " + freeAddress() + " -p " + freePort(t) + " ::1", []string{"[::1]"}},
		"port taken":          {"pingpong -d " + freeAddress() + " --timeout 10s -p " + port, []string{"taken", "-p", port}},
		"nobody comes":        {"perf send_lat -d " + freeAddress() + " --timeout 50ms -p " + freePort(t), []string{"wait for a client", "--timeout 50ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := invoke(t.Context(), strings.Fields(tt.args)...)
			if r.code != exitFailure {
				t.Errorf("exit status %d; expected 1", r.code)
			}
			for _, w := range tt.want {
				if !strings.Contains(r.err, w) {
					t.Errorf("%q does not say %q", r.err, w)
				}
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	errs := &waiting{ready: make(chan struct{})}
	go func() {
		<-errs.ready
		cancel()
	}()
	code := run(ctx, []string{"pingpong", "-d", freeAddress(), "-p", freePort(t)}, streams{out: &buffer{}, err: errs})
	if code != exitFailure || !strings.HasSuffix(errs.String(), "rocev2: interrupted\n") {
		t.Errorf("exit status %d, %q", code, errs.String())
	}
}

func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() != "version" && c.Example == "" && !c.Hidden {
			t.Errorf("%s has no example", c.CommandPath())
		}
		r := invoke(t.Context(), append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if r.code != 0 || !strings.Contains(r.out, "Usage") {
			t.Errorf("%s --help: exit status %d, %q", c.CommandPath(), r.code, r.out)
		}
		if f := c.Flags().Lookup("stats"); f != nil && f.Value.Type() != "bool" && !strings.Contains(r.out, "--stats[=text]") {
			t.Errorf("%s --help does not show that --stats needs no value:\n%s", c.CommandPath(), r.out)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(streams{}))
}

func TestDevinfo(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "devinfo", "-v", "-d", "127.79.84.1")
	if r.code != 0 {
		t.Fatal(r.err)
	}
	for _, want := range []string{"hca_id:", "max_qp_wr:", "active_mtu:     4096 (5)", "PORT_ACTIVE (4)", "0000:0000:0000:0000:0000:ffff:7f4f:5401 (127.79.84.1), RoCE v2"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if r := invoke(t.Context(), "version"); r.code != 0 || !strings.HasPrefix(r.out, "rocev2 ") || !strings.Contains(r.out, "6.06") {
		t.Errorf("exit status %d, %q", r.code, r.out)
	}
}

func TestPingpong(t *testing.T) {
	t.Parallel()
	s, c := pair(t, "pingpong", "-n", "50", "-s", "3000", "-c", "-e")
	for _, want := range []string{"  local address:  LID 0x0000, QPN 0x", "GID ::ffff:127.", "  remote address: ", "300000 bytes in ", " Mbit/sec\n50 iters in ", " usec/iter\n"} {
		if !strings.Contains(c.out, want) {
			t.Errorf("%q is not in\n%s", want, c.out)
		}
	}
	if !strings.Contains(s.out, "300000 bytes") {
		t.Errorf("the server prints\n%s", s.out)
	}
}

func TestSourcePortFlag(t *testing.T) {
	t.Parallel()
	pair(t, "pingpong", "-n", "50", "--sport", "61001")
	pair(t, "perf", "write_bw", "-n", "50", "-q", "4", "--sport", "auto")
}

func TestPerfTables(t *testing.T) {
	t.Parallel()
	_, c := pair(t, "perf", "write_bw", "-n", "100", "-q", "2")
	for _, want := range []string{"RDMA_Write BW Test", "Number of qps   : 2", "\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n", "\n 65536      200 ", "local address: LID 0000 QPN 0x"} {
		if !strings.Contains(c.out, want) {
			t.Errorf("%q is not in\n%s", want, c.out)
		}
	}
	s, c := pair(t, "perf", "read_lat", "-n", "100")
	for _, want := range []string{"RDMA_Read Latency Test", "\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n", "\n 2       100 "} {
		if !strings.Contains(c.out, want) {
			t.Errorf("%q is not in\n%s", want, c.out)
		}
	}
	if !strings.Contains(s.err, "the client has the figures") {
		t.Errorf("the server prints\n%s\n%s", s.out, s.err)
	}
}

func TestPerfJSON(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args  string
		lines int
		keys  []string
	}{
		"bandwidth": {"perf write_bw -n 64 -s 1024 --json", 1, nil},
		"sizes":     {"perf send_bw -n 2 -a --json", 23, nil},
		"duration":  {"perf read_bw -D 0.2 --json", 1, nil},
		"duplex":    {"perf atomic_bw -b -n 64 -q 2 --json", 1, nil},
		"latency":   {"perf send_lat -n 64 --json", 1, []string{"lat_us_min", "lat_us_p50", "lat_us_p99", "lat_us_p999", "lat_us_max"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := pair(t, strings.Fields(tt.args)...)
			lines := strings.Split(strings.TrimSpace(c.out), "\n")
			if len(lines) != tt.lines {
				t.Fatalf("%d lines, expected %d:\n%s", len(lines), tt.lines, c.out)
			}
			for _, line := range lines {
				var v map[string]any
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				for _, k := range append([]string{"size", "qps", "mtu", "iterations", "seconds", "gbps", "mpps"}, tt.keys...) {
					if n, ok := v[k].(float64); !ok || n <= 0 {
						t.Errorf("%q is %v in %s", k, v[k], line)
					}
				}
				if v["op"] != strings.Fields(tt.args)[1] || v["role"] != "client" {
					t.Errorf("operation and role are %v and %v", v["op"], v["role"])
				}
				if _, ok := v["lat_us_min"]; ok != (tt.keys != nil) {
					t.Errorf("latencies in %s", line)
				}
			}
		})
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "demo", "--local", freeAddress(), "--peer", freeAddress(), "--rates", "50ms")
	if r.code != 0 {
		t.Fatalf("exit status %d: %s\n%s", r.code, r.err, r.out)
	}
	for _, want := range []string{"SEND_IMM", "WRITE_IMM", "READ", "CMP_SWAP", "FETCH_ADD", "ATOMIC_WRITE", "FLUSH", "REM_ACCESS_ERR as it must be", "SEND bandwidth", "All 13 operations"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
}

func TestDemoSaysWhatFailed(t *testing.T) {
	t.Parallel()
	// The second process cannot have this address.
	r := invoke(t.Context(), "demo", "--local", freeAddress(), "--peer", "203.0.113.9")
	if r.code != exitFailure || !strings.Contains(r.err, "second process") || !strings.Contains(r.err, "203.0.113.9") {
		t.Errorf("exit status %d, %q", r.code, r.err)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var errs buffer
	p := newProgress(streams{err: &errs}, true)
	p.show("test", 1, 10)
	if errs.String() != "" {
		t.Errorf("a short run shows %q", errs.String())
	}
	p.start = p.start.Add(-time.Minute)
	p.show("test", 5, 10)
	p.show("test", 6, 10)
	if got := errs.String(); !strings.HasPrefix(got, "test: 5 of 10 (50 %)") || strings.Count(got, "\n") != 1 {
		t.Errorf("progress is %q", got)
	}
	if p := newProgress(streams{err: &errs}, false); p.on {
		t.Error("progress is shown although standard error is no terminal")
	}
}
