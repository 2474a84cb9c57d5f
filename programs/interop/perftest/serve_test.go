package perftest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
)

// TestServeTakesTheFirstGoodClient lets a server refuse clients until one is
// good.
func TestServeTakesTheFirstGoodClient(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		t.Run(test.String(), func(t *testing.T) {
			t.Parallel()
			a, b := testpair.Devices(t)
			ln, dial := testpair.Listener(t)
			refused := make(chan error, 10)
			cfg := Config{Test: test, Iterations: 20}
			serverCfg := cfg
			serverCfg.OnRefused = func(_ net.Addr, why error) { refused <- why }
			done := make(chan error, 1)
			go func() {
				_, err := Serve(t.Context(), a, ln, patient(serverCfg))
				done <- err
			}()
			foreign := strings.Replace(goldenAddress, "c6:12:00:02", "c0:00:02:63", 1)
			for send, want := range map[string]string{
				"0000:000011:":          "ibv_rc_pingpong",
				"GET /":                 "HTTP",
				"\x16\x03\x01\x02":      "TLS",
				preamble + foreign:      "192.0.2.99",
				preamble + goldenShort:  "(-x)",
				preamble[:20] + "zzzz9": "cache line size",
			} {
				c := dial()
				io.WriteString(c, send)
				if why := <-refused; !strings.Contains(why.Error(), want) {
					t.Errorf("%q is refused with %v; expected it to say %q", send, why, want)
				}
			}
			dial() // silent
			wrong := cfg
			wrong.Test = Tests[(int(test.Verb)+1)%4+4*int(test.Kind)]
			if _, err := Run(t.Context(), b, dial(), interop.Client, wrong); err == nil || !strings.Contains(err.Error(), test.String()+" there") {
				t.Errorf("another test ends with %v", err)
			}
			if why := <-refused; !strings.Contains(why.Error(), test.String()+" here") {
				t.Errorf("another test is refused with %v", why)
			}
			if _, err := Run(t.Context(), b, dial(), interop.Client, patient(cfg)); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOriginalsAreServed runs a side that behaves as the originals against one
// that does not.
func TestOriginalsAreServed(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		for _, role := range []interop.Role{interop.Server, interop.Client} {
			t.Run(test.String()+"/"+role.String(), func(t *testing.T) {
				t.Parallel()
				own := Config{Test: test, Iterations: 10}
				original := own
				original.plain = true
				s, c := own, original
				if role == interop.Client {
					s, c = c, s
				}
				if so, co := both(t, s, c); so.Err != nil || co.Err != nil {
					t.Errorf("server: %v; client: %v", so.Err, co.Err)
				}
			})
		}
	}
}

// TestThirdHost lets a peer name another address for any of its queue pairs.
func TestThirdHost(t *testing.T) {
	t.Parallel()
	good := strings.Replace(goldenAddress, "c6:12:00:02", "c0:00:02:02", 1)
	bad := strings.Replace(strings.Replace(goldenAddress, "c6:12:00:02", "c0:00:02:63", 1), "00001a", "00001b", 1)
	for _, role := range []interop.Role{interop.Server, interop.Client} {
		for name, send := range map[string]string{"first": bad + good, "second": good + bad} {
			dev, _ := testpair.Devices(t)
			own, far := testpair.Connections(t)
			go io.WriteString(far, preamble+send)
			go io.Copy(io.Discard, far)
			_, err := Run(t.Context(), dev, own, role, Config{Test: Test{Write, Bandwidth}, QPs: 2})
			var ge *interop.GIDError
			if !errors.As(err, &ge) {
				t.Errorf("%v, %s queue pair: error is %v", role, name, err)
			}
		}
	}
}

// TestSilentClientEndsTheServer connects a client that does nothing then.
func TestSilentClientEndsTheServer(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		t.Run(test.String(), func(t *testing.T) {
			t.Parallel()
			a, b := testpair.Devices(t)
			sc, cc := testpair.Connections(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			silent := Config{Test: test, Iterations: 20, OnStart: func(Setup) { <-ctx.Done() }}
			done := make(chan error, 1)
			go func() {
				_, err := Run(ctx, b, cc, interop.Client, silent)
				done <- err
			}()
			_, err := Run(t.Context(), a, sc, interop.Server,
				Config{Test: test, Iterations: 20, HandshakeTimeout: time.Minute, IdleTimeout: 50 * time.Millisecond})
			if !errors.Is(err, interop.ErrNoProgress) {
				t.Errorf("the server ended with %v, expected %v", err, interop.ErrNoProgress)
			}
			cancel()
			<-done
		})
	}
}

// TestHeardCounts checks that a side which only answers sees that its peer is
// at work.
func TestHeardCounts(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		if !test.clientOnly() {
			continue
		}
		a, b := testpair.Devices(t)
		sc, cc := testpair.Connections(t)
		cfg := Config{Test: test, Iterations: 20}
		full, err := cfg.withDefaults(a)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := Run(t.Context(), b, cc, interop.Client, cfg)
			done <- err
		}()
		s := &session{dev: a, role: interop.Server, cfg: full}
		ctl := control.New(sc, task.Runner{}, interop.Server, 0)
		g, err := greet(t.Context(), ctl, a, &full)
		if err != nil {
			t.Fatal(err)
		}
		s.exchange = newExchange(ctl, tasksOf(a), &s.cfg, g)
		if err := s.run(t.Context()); err != nil {
			t.Error(err)
		}
		if n := s.res.lanes.Received(); n < 20 {
			t.Errorf("%v: received %d packets of 20 operations", test, n)
		}
		s.close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	send, write, lat := Test{Send, Bandwidth}, Test{Write, Bandwidth}, Test{Write, Latency}
	for name, tt := range map[string]struct {
		server, client Config
		want           string // of the server's error; "" = none
	}{
		"same":              {Config{Test: send}, Config{Test: send}, ""},
		"test":              {Config{Test: send}, Config{Test: write}, "send_bw here, write_bw there"},
		"size":              {Config{Test: send, Size: 64}, Config{Test: send, Size: 65}, "64 here, 65 there"},
		"iterations":        {Config{Test: send, Iterations: 5}, Config{Test: send}, "5 here, 1000 there"},
		"duration":          {Config{Test: send, Duration: time.Second}, Config{Test: send}, "1s here, 0s there"},
		"queue pairs":       {Config{Test: write, QPs: 2}, Config{Test: write}, "2 here, 1 there"},
		"direction":         {Config{Test: write}, Config{Test: write, Bidirectional: true}, "no here, yes there"},
		"all sizes":         {Config{Test: lat, AllSizes: true}, Config{Test: lat}, "yes here, no there"},
		"endless":           {Config{Test: send, Endless: true}, Config{Test: send}, "yes here, no there"},
		"server only waits": {Config{Test: write, Iterations: 5}, Config{Test: write, Duration: time.Second, Size: 64}, ""},
		"server too small":  {Config{Test: write, Size: 64}, Config{Test: write}, "64 here, 65536 there"},
		"endless client":    {Config{Test: write}, Config{Test: write, Endless: true}, ""},
	} {
		dev, _ := testpair.Devices(t)
		s, err := tt.server.withDefaults(dev)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tt.client.withDefaults(dev)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parseParams(c.params().append(nil))
		if err != nil || p != c.params() {
			t.Fatalf("%s: parsed %+v, %v", name, p, err)
		}
		err = s.params().differs(p, interop.Server)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the server says %v, expected %q", name, err, tt.want)
		}
		if other := p.differs(s.params(), interop.Client); (other == nil) != (err == nil) {
			t.Errorf("%s: the server says %v, the client %v", name, err, other)
		}
	}
}

func FuzzParams(f *testing.F) {
	f.Add(make([]byte, paramsLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != paramsLen {
			return
		}
		p, err := parseParams(b)
		if err != nil {
			return
		}
		if q, err := parseParams(p.append(nil)); err != nil || q != p {
			t.Errorf("%+v is written as %+v, %v", p, q, err)
		}
		p.differs(params{}, interop.Server)
	})
}
