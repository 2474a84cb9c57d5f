package pingpong

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
)

// TestAnswer: clients of any size and number are served, and recognised as far
// as they can be.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client Config
		server AnswerConfig
	}{
		"rc":            {client: Config{Iterations: 100}},
		"rc -c -s 9000": {client: Config{Iterations: 7, Size: 9000, Validate: true}},
		"rc -s 1":       {client: Config{Iterations: 300, Size: 1}},
		"srq":           {client: Config{Service: SRQ, Iterations: 100}},
		"srq -q 3":      {client: Config{Service: SRQ, Iterations: 50, QPs: 3, Size: 100}},
		"xrc":           {client: Config{Service: XRC}},
		"uc":            {client: Config{Service: UC, Iterations: 50}, server: AnswerConfig{Service: UC}},
		"ud":            {client: Config{Service: UD, Iterations: 50, Size: 900}, server: AnswerConfig{Service: UD}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := testpair.Devices(t)
			sc, cc := testpair.Connections(t)
			c.server.IdleTimeout = 100 * time.Millisecond
			var got Answered
			var serr error
			done := make(chan struct{})
			go func() {
				defer close(done)
				got, serr = Answer(t.Context(), a, sc, c.server)
			}()
			r, err := Run(t.Context(), b, cc, interop.Client, c.client)
			<-done
			if err != nil || serr != nil {
				t.Fatalf("client: %v; server: %v", err, serr)
			}
			if got.Service != c.client.Service || got.Iterations < r.Iterations || got.QPs < 1 || c.client.QPs > 0 && got.QPs != c.client.QPs {
				t.Errorf("%+v; the client has %+v", got, r)
			}
		})
	}
}

func TestAnswerRefuses(t *testing.T) {
	t.Parallel()
	const good = "0000:000011:9a1b2c:00000000000000000000ffffc0000202\x00"
	foreign := strings.Replace(good, "c0000202", "c0000263", 1)
	for name, c := range map[string]struct{ send, want string }{
		"another protocol": {strings.Repeat("z", 60), "hexadecimal"},
		"a third host":     {foreign, "192.0.2.99"},
		"among many":       {good + strings.Replace(foreign, "000011", "000012", 1), "address 2 of 256"},
		"leaves":           {good, "closed the control connection"},
		"no done":          {good + "xxxxx", "expected"},
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
	if _, err := Answer(t.Context(), dev, own, AnswerConfig{Service: SRQ}); !errors.As(err, &bad) {
		t.Errorf("error is %v", err)
	}
	own, _ = testpair.Connections(t)
	if _, err := Answer(t.Context(), dev, own, AnswerConfig{HandshakeTimeout: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "does not send its address") {
		t.Errorf("error is %v", err)
	}
}

// TestAnswerNamesAnotherService: a client of UC at a server of RC.
func TestAnswerNamesAnotherService(t *testing.T) {
	t.Parallel()
	a, b := testpair.Devices(t)
	sc, cc := testpair.Connections(t)
	done := make(chan error, 1)
	go func() {
		_, err := Answer(t.Context(), a, sc, AnswerConfig{HandshakeTimeout: 2 * time.Second})
		done <- err
	}()
	if _, err := Run(t.Context(), b, cc, interop.Client, Config{Service: UC, LossTimeout: 3 * time.Second}); err == nil {
		t.Error("the client has no error")
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "a port of its own") {
		t.Errorf("error is %v", err)
	}
}
