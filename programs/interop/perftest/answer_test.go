package perftest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// answered runs a client against a server that is not told what it runs.
func answered(t *testing.T, client Config, server AnswerConfig) (Answered, error, []Result, error) {
	t.Helper()
	a, b := testpair.Devices(t)
	sc, cc := testpair.Connections(t)
	if server.IdleTimeout == 0 {
		server.IdleTimeout = 5 * time.Minute
	}
	var got Answered
	var serr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, serr = Answer(t.Context(), a, sc, server)
	}()
	list, err := Run(t.Context(), b, cc, interop.Client, patient(client))
	<-done
	return got, serr, list, err
}

// TestAnswerOriginals: clients that behave as the originals do are recognised
// by what they do.
func TestAnswerOriginals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg Config
		svc interop.Service
	}{
		"send_bw":        {cfg: Config{Test: Test{Send, Bandwidth}, Iterations: 300}},
		"send_bw -q 3":   {cfg: Config{Test: Test{Send, Bandwidth}, Iterations: 300, QPs: 3, Size: 1000}},
		"send_bw -a":     {cfg: Config{Test: Test{Send, Bandwidth}, Iterations: 5, AllSizes: true}},
		"send_bw -s 2":   {cfg: Config{Test: Test{Send, Bandwidth}, Iterations: 2000, Size: 2}},
		"write_bw":       {cfg: Config{Test: Test{Write, Bandwidth}, Iterations: 200}},
		"write_bw -q 4":  {cfg: Config{Test: Test{Write, Bandwidth}, Iterations: 100, QPs: 4, Size: 64}},
		"write_bw -a":    {cfg: Config{Test: Test{Write, Bandwidth}, Iterations: 5, AllSizes: true}},
		"read_bw":        {cfg: Config{Test: Test{Read, Bandwidth}, Iterations: 200}},
		"read_bw -q 2":   {cfg: Config{Test: Test{Read, Bandwidth}, Iterations: 100, QPs: 2, OutstandingReads: 1}},
		"atomic_bw":      {cfg: Config{Test: Test{Atomic, Bandwidth}, Iterations: 200}},
		"send_lat":       {cfg: Config{Test: Test{Send, Latency}, Iterations: 200}},
		"send_lat -a":    {cfg: Config{Test: Test{Send, Latency}, Iterations: 5, AllSizes: true}},
		"send_lat -n 1":  {cfg: Config{Test: Test{Send, Latency}, Iterations: 1, Size: 5000}},
		"write_lat":      {cfg: Config{Test: Test{Write, Latency}, Iterations: 600}},
		"write_lat 1":    {cfg: Config{Test: Test{Write, Latency}, Iterations: 20, Size: 1}},
		"write_lat 4096": {cfg: Config{Test: Test{Write, Latency}, Iterations: 20, Size: 4096, MTU: 1}},
		"write_lat 77":   {cfg: Config{Test: Test{Write, Latency}, Iterations: 20, Size: 77}},
		"read_lat":       {cfg: Config{Test: Test{Read, Latency}, Iterations: 50}},
		"read_lat -o 1":  {cfg: Config{Test: Test{Read, Latency}, Iterations: 50, OutstandingReads: 1}},
		"atomic_lat":     {cfg: Config{Test: Test{Atomic, Latency}, Iterations: 50}},
		"send_bw UC":     {cfg: Config{Test: Test{Send, Bandwidth}, Iterations: 50, Size: 512, Service: interop.UC}, svc: interop.UC},
		"send_lat UC":    {cfg: Config{Test: Test{Send, Latency}, Iterations: 50, Service: interop.UC}, svc: interop.UC},
		"write_bw UC":    {cfg: Config{Test: Test{Write, Bandwidth}, Iterations: 50, Size: 512, Service: interop.UC}, svc: interop.UC},
		"write_lat UC":   {cfg: Config{Test: Test{Write, Latency}, Iterations: 50, Service: interop.UC}, svc: interop.UC},
		"send_bw UD":     {cfg: Config{Test: Test{Send, Bandwidth}, Iterations: 50, Size: 512, Service: interop.UD}, svc: interop.UD},
		"send_lat UD":    {cfg: Config{Test: Test{Send, Latency}, Iterations: 50, Size: 100, Service: interop.UD}, svc: interop.UD},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.plain = true
			got, serr, list, err := answered(t, c.cfg, AnswerConfig{Service: c.svc})
			if serr != nil || err != nil {
				t.Fatalf("server: %v; client: %v", serr, err)
			}
			if got.Test != c.cfg.Test || got.Own || got.Version != Version || len(got.Results) != 1 {
				t.Errorf("taken for %v: %+v", got.Test, got)
			}
			r := got.Results[0]
			if r.QPs != max(c.cfg.QPs, 1) || r.Service != c.svc {
				t.Errorf("%+v", r)
			}
			if got.Test == (Test{Write, Latency}) && r.Size != list[0].Size {
				t.Errorf("messages of %d bytes are taken for %d", list[0].Size, r.Size)
			}
		})
	}
}

// TestAnswerOwn: a client of this software says what it runs.
func TestAnswerOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{Test: Test{Send, Bandwidth}, Iterations: 100, Bidirectional: true},
		{Test: Test{Write, Bandwidth}, Iterations: 100, QPs: 5, Service: interop.XRC},
		{Test: Test{Send, Latency}, Iterations: 50, Service: interop.UD},
		{Test: Test{Write, Latency}, Iterations: 50, Size: 100000},
		{Test: Test{Write, Latency}, Iterations: 5, AllSizes: true},
		{Test: Test{Atomic, Latency}, Iterations: 50},
	} {
		t.Run(c.Test.String()+" "+c.Service.String(), func(t *testing.T) {
			t.Parallel()
			got, serr, _, err := answered(t, c, AnswerConfig{})
			if serr != nil || err != nil || got.Test != c.Test || !got.Own || (len(got.Results) == 0) != (c.Test.Verb == Atomic) {
				t.Errorf("server: %v; client: %v; %+v", serr, err, got)
			}
			for _, r := range got.Results {
				if r.Service != c.Service {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	_, serr, _, err := answered(t, Config{Test: Test{Send, Bandwidth}, Size: 64 << 20, QPs: 2, Iterations: 10}, AnswerConfig{})
	if err == nil || serr == nil || !strings.Contains(serr.Error(), "more than this server gives") {
		t.Errorf("server: %v; client: %v", serr, err)
	}
}

// TestAnswerRefuses: a client that does not keep to the protocol, or leaves,
// ends its own session with an error that says so.
func TestAnswerRefuses(t *testing.T) {
	t.Parallel()
	good := strings.Replace(goldenAddress, "c6:12:00:02", "c0:00:02:02", 1)
	foreign := strings.Replace(goldenAddress, "c6:12:00:02", "c0:00:02:63", 1)
	for name, c := range map[string]struct{ send, want string }{
		"leaves":           {preamble + good, "closed the control connection"},
		"foreign address":  {preamble + foreign, "192.0.2.99"},
		"second foreign":   {preamble + good + strings.Replace(foreign, "00001a", "00001b", 1), "192.0.2.99"},
		"nonsense":         {preamble + good + strings.Repeat("x", 108), "handshake"},
		"no end":           {preamble + good + "dxxxx", "done"},
		"no GID":           {preamble + goldenShort, "-x"},
		"too many reports": {preamble + good + "\x00\x00", "report"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dev, _ := testpair.Devices(t)
			own, far := testpair.Connections(t)
			go io.Copy(io.Discard, far)
			go func() {
				io.WriteString(far, c.send)
				far.(interface{ CloseWrite() error }).CloseWrite()
			}()
			if _, err := Answer(t.Context(), dev, own, AnswerConfig{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v; want %q", err, c.want)
			}
		})
	}
	dev, _ := testpair.Devices(t)
	own, _ := testpair.Connections(t)
	var bad *interop.ConfigError
	if _, err := Answer(t.Context(), dev, own, AnswerConfig{Service: interop.XRC}); !errors.As(err, &bad) {
		t.Errorf("error is %v", err)
	}
	own, _ = testpair.Connections(t)
	if _, err := Answer(t.Context(), dev, own, AnswerConfig{HandshakeTimeout: time.Millisecond}); err == nil {
		t.Error("a silent client is served")
	}
}

// TestAnswerChangesItsMind: the second message of send_bw comes so late that
// the test is taken for send_lat. The answers find no receives.
func TestAnswerChangesItsMind(t *testing.T) {
	t.Parallel()
	a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: fabric.PortConfig{Delay: 20 * time.Millisecond}}})
	sc, cc := testpair.Connections(t)
	done := make(chan error, 1)
	go func() {
		got, err := Answer(t.Context(), a, sc, AnswerConfig{})
		if err == nil && got.Test != (Test{Send, Bandwidth}) {
			err = fmt.Errorf("taken for %v", got.Test)
		}
		done <- err
	}()
	cfg := Config{Test: Test{Send, Bandwidth}, TxDepth: 1, Iterations: answerSends + 10, Size: 100, plain: true}
	if _, err := Run(t.Context(), b, cc, interop.Client, patient(cfg)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAnswerIsPatient: only a client that offers memory, and has said nothing
// for long, is taken for one of write_lat. The others would fail by a WRITE.
func TestAnswerIsPatient(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		key    verbs.Key
		silent time.Duration
		want   bool
	}{
		"write_lat":               {0x5447, 2 * time.Second, true},
		"not silent for long":     {0x5447, 500 * time.Millisecond, false},
		"SEND without any memory": {0, time.Minute, false},
	} {
		a := &answerer{cfg: &Config{}, replies: &replies{}, res: &clientResources{list: []*answerLane{{Set: &lanes.Set{}, remote: Address{OutReads: 1, RKey: c.key}}}}}
		a.replies.last.Store(now.Add(-c.silent).UnixNano())
		if got := a.waitsForWrite(writeHandshakes, 0, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
