package perftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

type outcome = testpair.Outcome[[]Result]

// both runs the two roles against each other.
func both(t testing.TB, server, client Config) (s, c outcome) {
	t.Helper()
	server, client = patient(server), patient(client)
	configs := map[interop.Role]Config{interop.Server: server, interop.Client: client}
	return testpair.Both(t, func(dev *verbs.Device, conn net.Conn, role interop.Role) ([]Result, error) {
		return Run(t.Context(), dev, conn, role, configs[role])
	})
}

// patient lets a side wait 4 s for its peer's acknowledgement in place of half
// a second, and five minutes for progress: on a busy machine the peer's
// goroutines may not run for as long. What a test has set stays.
func patient(c Config) Config {
	if c.Timeout == 0 {
		c.Timeout = 17
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 5 * time.Minute
	}
	return c
}

func check(t *testing.T, cfg Config) (s, c outcome) {
	t.Helper()
	s, c = both(t, cfg, cfg)
	if s.Err != nil || c.Err != nil {
		t.Fatalf("server: %v; client: %v", s.Err, c.Err)
	}
	for _, r := range c.Res {
		if cfg.Iterations == 1 && cfg.Test == (Test{Write, Latency}) {
			continue // the client goes second, and one round has no interval
		}
		if cfg.Duration > 0 {
			continue // a loaded machine may get nothing through in a short time
		}
		if r.Iterations == 0 || r.MsgRate <= 0 || r.Elapsed <= 0 {
			t.Errorf("the client measured nothing: %+v", r)
		}
		if (r.Latency != nil) != (cfg.Test.Kind == Latency) {
			t.Errorf("latencies: %+v", r.Latency)
		}
	}
	return s, c
}

// variants of every test, by the conditions under which they exist.
var variants = map[string]struct {
	set   func(*Config)
	when  func(Test) bool
	count uint64 // operations that the client reports
}{
	"default size": {func(c *Config) {}, func(Test) bool { return true }, 60},
	"odd size":     {func(c *Config) { c.Size = 5001 }, func(t Test) bool { return t.Verb != Atomic }, 60},
	"tiny":         {func(c *Config) { c.Size = 1; c.MTU = verbs.MTU256 }, func(t Test) bool { return t.Verb != Atomic }, 60},
	"events":       {func(c *Config) { c.Events = true }, func(t Test) bool { return t != Test{Write, Latency} }, 60},
	"four QPs":     {func(c *Config) { c.QPs = 4; c.Size = 0 }, func(t Test) bool { return t.Kind == Bandwidth }, 240},
	"both ways":    {func(c *Config) { c.Bidirectional = true }, func(t Test) bool { return t.Kind == Bandwidth }, 60},
	"both ways, four QPs": {func(c *Config) { c.Bidirectional = true; c.QPs = 4 },
		func(t Test) bool { return t.Kind == Bandwidth }, 240},
	"inline":       {func(c *Config) { c.Size = 64; c.Inline = 64 }, func(t Test) bool { return t.Verb <= Write }, 60},
	"shallow":      {func(c *Config) { c.TxDepth = 1; c.RxDepth = 1; c.OutstandingReads = 1 }, func(Test) bool { return true }, 60},
	"moderated":    {func(c *Config) { c.Size = 64; c.TxDepth = 16; c.CQMod = 7 }, func(t Test) bool { return t.Kind == Bandwidth && t.Verb != Atomic }, 60},
	"compare-swap": {func(c *Config) { c.Atomic = CompareSwap }, func(t Test) bool { return t.Verb == Atomic }, 60},
	"one message":  {func(c *Config) { c.Iterations = 1 }, func(t Test) bool { return true }, 1},
}

// Two sides of this software keep what arrives after a gap and repair single
// losses; the originals would not.
func TestNativeIsTold(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: fabric.PortConfig{Loss: 0.02}}})
		sc, cc := testpair.Connections(t)
		cfg := Config{Test: Test{Write, Bandwidth}, Iterations: 100, Size: 64 << 10, IdleTimeout: time.Minute, plain: plain}
		served := make(chan error, 1)
		go func() {
			_, err := Run(t.Context(), a, sc, interop.Server, patient(cfg))
			served <- err
		}()
		if _, err := Run(t.Context(), b, cc, interop.Client, patient(cfg)); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if st := a.QPStats(); (st.Reordered == 0) != plain {
			t.Errorf("as towards the originals %v: %d packets were kept behind gaps", plain, st.Reordered)
		}
	}
}

func TestBothRoles(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		for name, v := range variants {
			if !v.when(test) {
				continue
			}
			t.Run(test.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				cfg := Config{Test: test, Iterations: 60}
				v.set(&cfg)
				s, c := check(t, cfg)
				if n := c.Res[0].Iterations; n != v.count {
					t.Errorf("the client counts %d operations, expected %d", n, v.count)
				}
				if test.clientOnly() && test.Kind == Bandwidth && !cfg.Bidirectional {
					if !s.Res[0].Reported || s.Res[0].Iterations != c.Res[0].Iterations || s.Res[0].Size != c.Res[0].Size {
						t.Errorf("the server reports %+v of the client's %+v", s.Res[0], c.Res[0])
					}
				}
			})
		}
	}
}

func TestAllSizes(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		if test.Verb == Atomic {
			continue
		}
		for _, duplex := range []bool{false, true} {
			if duplex && test.Kind == Latency {
				continue
			}
			t.Run(fmt.Sprintf("%v/both ways %v", test, duplex), func(t *testing.T) {
				t.Parallel()
				_, c := check(t, Config{Test: test, Iterations: 2, AllSizes: true, Bidirectional: duplex})
				if len(c.Res) != 23 || c.Res[0].Size != 2 || c.Res[22].Size != 1<<23 {
					t.Errorf("%d results", len(c.Res))
				}
			})
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		for _, duplex := range []bool{false, true} {
			if duplex && test.Kind == Latency {
				continue
			}
			t.Run(fmt.Sprintf("%v/both ways %v", test, duplex), func(t *testing.T) {
				t.Parallel()
				_, c := check(t, Config{Test: test, Duration: 200 * time.Millisecond, Bidirectional: duplex})
				if r := c.Res[0]; r.Elapsed > 200*time.Millisecond {
					t.Errorf("%v were measured of a run of 200 ms", r.Elapsed)
				}
			})
		}
	}
}

func TestSmallerMTUWins(t *testing.T) {
	t.Parallel()
	test := Test{Write, Bandwidth}
	s, c := both(t, Config{Test: test, Iterations: 10, MTU: verbs.MTU512}, Config{Test: test, Iterations: 10, MTU: verbs.MTU2048})
	if s.Err != nil || c.Err != nil {
		t.Fatalf("server: %v; client: %v", s.Err, c.Err)
	}
	if c.Res[0].MTU != 512 {
		t.Errorf("path MTU is %d, expected 512", c.Res[0].MTU)
	}
}

// handshakes is how many address messages each side sends with one queue pair.
var handshakes = map[string]int{
	"send_bw": 5, "write_bw": 5, "read_bw": 5, "atomic_bw": 5,
	"send_lat": 5, "write_lat": 4, "read_lat": 5, "atomic_lat": 5,
}

// TestSequence records what the two sides write, and compares its order and
// sizes with the originals'.
func TestSequence(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		t.Run(test.String(), func(t *testing.T) {
			t.Parallel()
			a, b := testpair.Devices(t)
			sc, cc := testpair.Connections(t)
			srec, crec := &recorder{Conn: sc}, &recorder{Conn: cc}
			cfg := Config{Test: test, Iterations: 5, plain: true}
			ch := make(chan error, 1)
			go func() {
				_, err := Run(t.Context(), a, srec, interop.Server, patient(cfg))
				ch <- err
			}()
			if _, err := Run(t.Context(), b, crec, interop.Client, patient(cfg)); err != nil {
				t.Error(err)
			}
			if err := <-ch; err != nil {
				t.Error(err)
			}
			want := []int{16, 4, 4, 2}
			n := handshakes[test.String()]
			reports := test.Kind == Bandwidth && test.clientOnly()
			for i := range n {
				if reports && i == n-1 {
					want = append(want, 8, 8, 8, 8, 8)
				}
				want = append(want, 108)
			}
			if test != (Test{Write, Latency}) {
				want = append(want, 5)
			}
			for _, r := range []*recorder{srec, crec} {
				if fmt.Sprint(r.sizes) != fmt.Sprint(want) {
					t.Errorf("items of %v bytes, expected %v", r.sizes, want)
				}
			}
		})
	}
}

// recorder notes the sizes of the writes on a connection.
type recorder struct {
	net.Conn
	sizes []int
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sizes = append(r.sizes, len(b))
	return r.Conn.Write(b)
}

func (r *recorder) CloseWrite() error { return r.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// preamble is what a peer sends before its addresses.
const preamble = "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x10\x00" + "\x00\x00\x00\x40" + "5\x00"

func TestHostilePeers(t *testing.T) {
	t.Parallel()
	peer := strings.Replace(goldenAddress, "c6:12:00:02", "c0:00:02:02", 1)
	tests := map[string]struct {
		send, want string
		qps        int
	}{
		"nothing":          {"", "nothing came", 1},
		"short":            {"6.06", "4 bytes", 1},
		"garbage":          {strings.Repeat("GET / HTTP/1.1\r\n", 200), "version", 1},
		"old":              {strings.Replace(preamble, "6.06", "5.30", 1), "version", 1},
		"huge page":        {strings.Replace(preamble, "\x00\x00\x10\x00", "\x7f\xff\xff\xff", 1), "page size", 1},
		"huge cache line":  {strings.Replace(preamble, "\x00\x00\x00\x40", "\xff\xff\xff\xff", 1), "cache line", 1},
		"MTU":              {strings.Replace(preamble, "5\x00", "9\x00", 1), "path MTU", 1},
		"no address":       {preamble, "address", 1},
		"half an address":  {preamble + goldenAddress[:50], "50 bytes", 1},
		"InfiniBand":       {preamble + goldenShort, "(-x)", 1},
		"no GID":           {preamble + strings.Replace(goldenAddress, "ff:ff:c6:12:00:02", "00:00:00:00:00:00", 1), "no GID", 1},
		"IPv6":             {preamble + strings.Replace(goldenAddress, "ff:ff:c6:12", "00:00:c6:12", 1), "IP versions", 1},
		"fewer QPs":        {preamble + peer + peer, "(-q)", 2},
		"gone after setup": {preamble + peer + peer + peer, "closed the control connection", 1},
	}
	for name, tt := range tests {
		for _, role := range []interop.Role{interop.Server, interop.Client} {
			t.Run(name+"/"+role.String(), func(t *testing.T) {
				t.Parallel()
				dev, _ := testpair.Devices(t)
				own, far := testpair.Connections(t)
				go func() {
					io.WriteString(far, tt.send)
					far.(interface{ CloseWrite() error }).CloseWrite()
					io.Copy(io.Discard, far)
					far.Close()
				}()
				_, err := Run(t.Context(), dev, own, role, Config{Test: Test{Write, Bandwidth}, QPs: tt.qps})
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error is %v; expected it to say %q", err, tt.want)
				}
			})
		}
	}
}

// TestWriteLatencyBeginsAtTheServer plays a client of write_lat by hand that
// never writes: the server's first WRITE must come all the same, since the
// original's client waits for it.
func TestWriteLatencyBeginsAtTheServer(t *testing.T) {
	t.Parallel()
	a, b := testpair.Devices(t)
	sc, cc := testpair.Connections(t)
	cfg := Config{Test: Test{Write, Latency}, Iterations: 3}
	ctx, cancel := context.WithCancel(t.Context())
	ch := make(chan error, 1)
	go func() {
		_, err := Run(ctx, a, sc, interop.Server, patient(cfg))
		ch <- err
	}()
	full, err := cfg.withDefaults(b)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{dev: b, role: interop.Client, cfg: full}
	ctl := control.New(cc, task.Runner{}, interop.Client, 0)
	defer s.close()
	for _, step := range []func() error{
		func() error {
			g, err := greet(t.Context(), ctl, b, &full)
			s.exchange = newExchange(ctl, tasksOf(b), &s.cfg, g)
			return err
		}, s.setUp, func() error { return s.connect(t.Context()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	g, end := s.guard(t.Context(), 2, 3, time.Minute)
	defer end()
	p := &pinger{s: s, g: g, size: 2}
	if err := p.watch(1); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ch; !errors.Is(err, context.Canceled) {
		t.Errorf("the server ended with %v", err)
	}
}

// TestPeerThatDies checks that a run ends when the peer does, whatever this
// side waits for.
func TestPeerThatDies(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		for _, role := range []interop.Role{interop.Server, interop.Client} {
			t.Run(test.String()+"/"+role.String(), func(t *testing.T) {
				t.Parallel()
				a, b := testpair.Devices(t)
				own, far := testpair.Connections(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cfg := Config{Test: test, Iterations: 1 << 30}
				farCfg := cfg
				farCfg.OnStart = func(Setup) { cancel() }
				farRole := interop.Client
				if role == interop.Client {
					farRole = interop.Server
				}
				ch := make(chan error, 1)
				go func() {
					_, err := Run(ctx, b, far, farRole, farCfg)
					ch <- err
				}()
				_, err := Run(t.Context(), a, own, role, cfg)
				if !errors.Is(err, interop.ErrPeerClosed) {
					t.Errorf("error is %v; expected %v", err, interop.ErrPeerClosed)
				}
				if err := <-ch; !errors.Is(err, context.Canceled) {
					t.Errorf("the peer's error is %v", err)
				}
			})
		}
	}
}

// TestDifferentRuns checks that two sides that were started differently both
// end.
func TestDifferentRuns(t *testing.T) {
	t.Parallel()
	test := Test{Send, Bandwidth}
	s, c := both(t,
		Config{Test: test, Iterations: 200, IdleTimeout: 50 * time.Millisecond},
		Config{Test: test, Iterations: 100, IdleTimeout: 50 * time.Millisecond})
	if s.Err == nil || c.Err == nil {
		t.Errorf("server: %v; client: %v; expected both to fail", s.Err, c.Err)
	}
}

func TestRefusedKeyIsExplained(t *testing.T) {
	t.Parallel()
	a, b := testpair.Devices(t)
	sc, cc := testpair.Connections(t)
	cfg := Config{Test: Test{Write, Bandwidth}, Iterations: 10}
	ch := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), a, &forger{Conn: sc}, interop.Server, patient(cfg))
		ch <- err
	}()
	_, err := Run(t.Context(), b, cc, interop.Client, cfg)
	var ce *interop.CompletionError
	if !errors.As(err, &ce) || ce.WC.Status != verbs.StatusRemAccessErr {
		t.Errorf("error is %v; expected REM_ACCESS_ERR", err)
	}
	if err := <-ch; !errors.Is(err, interop.ErrPeerClosed) {
		t.Errorf("the server's error is %v", err)
	}
}

// forger changes the key in the addresses that it sends.
type forger struct{ net.Conn }

func (f *forger) Write(b []byte) (int, error) {
	if len(b) != addressLen {
		return f.Conn.Write(b)
	}
	forged := bytes.Clone(b)
	if forged[24] = '0'; b[24] == '0' { // the first digit of the key
		forged[24] = '1'
	}
	return f.Conn.Write(forged)
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	dev, _ := testpair.Devices(t)
	write, lat := Test{Write, Bandwidth}, Test{Write, Latency}
	for name, cfg := range map[string]Config{
		"size":             {Test: write, Size: -1},
		"huge":             {Test: write, Size: MaxSize + 1},
		"memory":           {Test: write, Size: MaxSize, QPs: 100},
		"iterations":       {Test: write, Iterations: -1},
		"QPs":              {Test: write, QPs: MaxQPs + 1},
		"MTU":              {Test: write, MTU: 9},
		"inline":           {Test: write, Inline: 1 << 20},
		"all and duration": {Test: write, AllSizes: true, Duration: time.Second},
		"latency duplex":   {Test: lat, Bidirectional: true},
		"latency QPs":      {Test: lat, QPs: 2},
		"latency events":   {Test: lat, Events: true},
		"atomic size":      {Test: Test{Atomic, Bandwidth}, Size: 16},
		"test":             {Test: Test{9, 9}},
	} {
		own, _ := testpair.Connections(t)
		_, err := Run(t.Context(), dev, own, interop.Client, cfg)
		var ce *interop.ConfigError
		if !errors.As(err, &ce) {
			t.Errorf("%s: error is %v; expected a ConfigError", name, err)
		}
	}
}

func TestParseTest(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		for _, name := range []string{test.String(), test.Tool()} {
			if got, err := ParseTest(name); err != nil || got != test {
				t.Errorf("%s is %v, %v", name, got, err)
			}
		}
	}
	if _, err := ParseTest("sned_bw"); err == nil || !strings.Contains(err.Error(), "send_bw") {
		t.Errorf("error is %v; expected the list of tests", err)
	}
}
