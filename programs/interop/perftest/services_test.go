package perftest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestServices runs every test over every transport service that it has.
func TestServices(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		set  func(*Config)
		when func(Test) bool
	}{
		"default":    {func(*Config) {}, func(Test) bool { return true }},
		"tiny":       {func(c *Config) { c.Size = 8 }, func(t Test) bool { return t.Verb <= Write }},
		"small path": {func(c *Config) { c.MTU = verbs.MTU256 }, func(t Test) bool { return t.Verb <= Write }},
		"four QPs":   {func(c *Config) { c.QPs = 4 }, func(t Test) bool { return t.Kind == Bandwidth }},
		"both ways":  {func(c *Config) { c.Bidirectional = true }, func(t Test) bool { return t.Kind == Bandwidth }},
		"both ways, four QPs": {func(c *Config) { c.Bidirectional, c.QPs = true, 4 },
			func(t Test) bool { return t.Kind == Bandwidth }},
		"events": {func(c *Config) { c.Events = true }, func(t Test) bool { return t != Test{Write, Latency} }},
		"shared": {func(c *Config) { c.SharedReceives = true }, func(t Test) bool { return t.Verb == Send }},
		"shared, four QPs": {func(c *Config) { c.SharedReceives, c.QPs, c.RxDepth = true, 4, 16 },
			func(t Test) bool { return t == Test{Send, Bandwidth} }},
		"shared, both ways": {func(c *Config) { c.SharedReceives, c.QPs, c.Bidirectional = true, 2, true },
			func(t Test) bool { return t == Test{Send, Bandwidth} }},
	} {
		for _, test := range Tests {
			for _, service := range interop.Services {
				cfg := Config{Test: test, Service: service, Iterations: 60}
				v.set(&cfg)
				if !v.when(test) || !test.Serves(service) || service == interop.RC && !cfg.SharedReceives {
					continue
				}
				if !service.Reliable() {
					// Each message has its receive, so
					// none is lost, however long it is
					// under way on a busy machine.
					cfg.RxDepth = 0
					cfg.IdleTimeout, cfg.LossTimeout = time.Minute, time.Minute
				}
				t.Run(fmt.Sprintf("%v/%v/%s", service, test, name), func(t *testing.T) {
					t.Parallel()
					s, c := check(t, cfg)
					for _, r := range append(s.Res, c.Res...) {
						if r.Lost != 0 || r.Service != service {
							t.Errorf("%d lost over %v", r.Lost, r.Service)
						}
					}
				})
			}
		}
	}
}

// TestRoomForAll checks that a side of an unreliable service has a receive for
// each message if the user does not say how many.
func TestRoomForAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want int
	}{
		{Config{Service: interop.UC, Iterations: 60, QPs: 4}, 60},
		{Config{Service: interop.UC, Iterations: 60, QPs: 4, SharedReceives: true}, 240},
		{Config{Service: interop.UD, Iterations: 9000, QPs: 4, SharedReceives: true}, maxUnreliableRx},
	} {
		if n := c.cfg.defaultRxDepth(); n != c.want {
			t.Errorf("%v, shared %v: %d receives, expected %d", c.cfg.Service, c.cfg.SharedReceives, n, c.want)
		}
	}
}

// TestAllSizesOfDatagrams checks that the sizes of UD end at the path MTU, and
// that the default size does.
func TestAllSizesOfDatagrams(t *testing.T) {
	t.Parallel()
	for _, test := range []Test{{Send, Bandwidth}, {Send, Latency}} {
		s, c := check(t, Config{Test: test, Service: interop.UD, AllSizes: true, MTU: verbs.MTU1024, Iterations: 20})
		if len(s.Res) != 10 || len(c.Res) != 10 || c.Res[9].Size != 1024 {
			t.Errorf("%v: %d and %d sizes, the largest %d; expected 2, 4, … 1024", test, len(s.Res), len(c.Res), c.Res[len(c.Res)-1].Size)
		}
	}
	_, c := check(t, Config{Test: Test{Send, Bandwidth}, Service: interop.UD, MTU: verbs.MTU2048, Iterations: 20})
	if c.Res[0].Size != 2048 {
		t.Errorf("the default size is %d; expected the path MTU", c.Res[0].Size)
	}
}

// TestSizeBeyondThePeersMTU lets a server have a smaller path MTU than a
// datagram of the client needs.
func TestSizeBeyondThePeersMTU(t *testing.T) {
	t.Parallel()
	cfg := Config{Test: Test{Send, Bandwidth}, Service: interop.UD, Size: 1000, Iterations: 5}
	small := cfg
	small.MTU, small.Size = verbs.MTU512, 0
	s, c := both(t, small, cfg)
	if c.Err == nil || s.Err == nil {
		t.Errorf("server: %v; client: %v", s.Err, c.Err)
	}
}

// lossy runs a configuration over a network that loses packets.
func lossy(t *testing.T, cfg Config) (s, c outcome) {
	t.Helper()
	return over(t, fabric.PortConfig{Loss: 0.05}, cfg)
}

// over runs a configuration over a network.
func over(t *testing.T, port fabric.PortConfig, cfg Config) (s, c outcome) {
	t.Helper()
	a, b := testpair.DevicesOver(t, port)
	sc, cc := testpair.Connections(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Res, s.Err = Run(t.Context(), a, sc, interop.Server, patient(cfg))
	}()
	c.Res, c.Err = Run(t.Context(), b, cc, interop.Client, patient(cfg))
	<-done
	return s, c
}

// TestLossIsCounted checks that a run over a network that loses packets ends,
// and that the receiver says how many messages did not come.
func TestLossIsCounted(t *testing.T) {
	t.Parallel()
	const n = 2000
	for name, cfg := range map[string]Config{
		"UC":                  {Service: interop.UC, Size: 64},
		"UC, several packets": {Service: interop.UC, Size: 10_000},
		"UD":                  {Service: interop.UD, Size: 64},
		"UD, four QPs":        {Service: interop.UD, Size: 64, QPs: 4},
		"UD, shared":          {Service: interop.UD, Size: 64, QPs: 4, SharedReceives: true},
		"UC, both ways":       {Service: interop.UC, Size: 64, Bidirectional: true},
		"UD, all sizes":       {Service: interop.UD, AllSizes: true, MTU: verbs.MTU256},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Test, cfg.Iterations = Test{Send, Bandwidth}, n
			cfg.IdleTimeout, cfg.LossTimeout = time.Minute, 2*time.Second
			s, c := lossy(t, cfg)
			if s.Err != nil || c.Err != nil {
				t.Fatalf("server: %v; client: %v", s.Err, c.Err)
			}
			total := n * uint64(max(cfg.QPs, 1))
			for _, r := range s.Res {
				if r.Lost == 0 || r.Lost > total/2+total/4 {
					t.Errorf("the server counts %d messages of %d lost", r.Lost, total)
				}
				if !cfg.Bidirectional && r.Iterations+r.Lost != total {
					t.Errorf("%d messages of %d are accounted for", r.Iterations+r.Lost, total)
				}
			}
		})
	}
}

// The client of write_lat leaves when it has sent its last WRITE, which is not
// acknowledged over UC: it may come after the end of the control connection.
func TestLastWriteComesLate(t *testing.T) {
	t.Parallel()
	cfg := Config{Test: Test{Write, Latency}, Service: interop.UC, Iterations: 2, IdleTimeout: time.Minute, LossTimeout: time.Minute}
	s, c := over(t, fabric.PortConfig{Delay: 200 * time.Millisecond}, cfg)
	if s.Err != nil || c.Err != nil {
		t.Errorf("server: %v; client: %v", s.Err, c.Err)
	}
}

// TestLossEndsALatencyTest checks that a ping-pong that cannot go on says why.
func TestLossEndsALatencyTest(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{Test: Test{Send, Latency}, Service: interop.UC},
		{Test: Test{Send, Latency}, Service: interop.UD},
		{Test: Test{Write, Latency}, Service: interop.UC},
	} {
		cfg.Iterations, cfg.IdleTimeout, cfg.LossTimeout = 5000, 20*time.Second, 300*time.Millisecond
		s, c := lossy(t, cfg)
		var loss *interop.LossError
		if !errors.As(s.Err, &loss) && !errors.As(c.Err, &loss) {
			t.Errorf("%v over %v: server: %v; client: %v", cfg.Test, cfg.Service, s.Err, c.Err)
		} else if loss.Service != cfg.Service || loss.Received == 0 {
			t.Errorf("%v over %v: %v", cfg.Test, cfg.Service, loss)
		}
	}
}

// TestRateLimit checks that a side sends no faster than it was told, over each
// service.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	for _, service := range interop.Services {
		t.Run(service.String(), func(t *testing.T) {
			t.Parallel()
			const limit = 100_000_000 // bits per second
			cfg := Config{Test: Test{Send, Bandwidth}, Service: service, Size: 4096, Iterations: 300}
			limited := cfg
			limited.RateLimit = limit
			s, c := both(t, cfg, limited)
			if s.Err != nil || c.Err != nil {
				t.Fatalf("server: %v; client: %v", s.Err, c.Err)
			}
			for _, r := range c.Res {
				sent := float64(r.Iterations) * 4096 * 8
				if rate := (sent - 2*limit*0.004) / r.Elapsed.Seconds(); rate > limit {
					t.Errorf("%d messages in %v: %.0f b/s", r.Iterations, r.Elapsed, rate)
				}
			}
		})
	}
}
