package faces

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// stream sends as many messages as possible, or bytes in as large pieces.
type stream struct{ *base }

// Run sends, or receives.
func (s *stream) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	b := touched(s.cfg.Size)
	if !s.cfg.Active {
		return r, s.receive(b, &r, stop)
	}
	c, err := s.face.dial(s.ctx, s.peer)
	if err != nil {
		return r, err
	}
	// What is under way is the same when the window begins and when it
	// ends, so counting here is counting there.
	n, took, err := s.measured(max(1, 512/len(b)), func() error { return c.send(b) })
	if err != nil {
		return r, err
	}
	s.before.AddTo(&r)
	r.Values["messages"] = float64(n)
	r.Values["gbps"] = float64(n) * float64(len(b)) * 8 / 1e9 / took.Seconds()
	r.Values["mmsg"] = float64(n) / 1e6 / took.Seconds()
	s.mishaps(&r)
	return r, c.close()
}

func (s *stream) receive(b []byte, r *pair.Result, stop <-chan struct{}) error {
	c, err := s.face.accept(s.ctx)
	if err != nil {
		return err
	}
	s.before = pair.CostsNow()
	for {
		if err = c.recv(b); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("receiving: %w", err)
	}
	s.before.AddTo(r)
	s.mishaps(r)
	<-stop
	return c.close()
}

// touched returns memory of which every page is there.
func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 2048 {
		b[i] = byte(i >> 11)
	}
	return b
}

// latency has one message under way.
type latency struct{ *base }

// Run asks, or answers.
func (l *latency) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	b := touched(l.cfg.Size)
	if !l.cfg.Active {
		return r, l.answer(b, &r, stop)
	}
	c, err := l.face.dial(l.ctx, l.peer)
	if err != nil {
		return r, err
	}
	times := make([]uint32, 0, 1<<21)
	n, _, err := l.measured(1, func() error {
		t0 := time.Now()
		if err := c.send(b); err != nil {
			return err
		}
		if err := c.recv(b); err != nil {
			return err
		}
		times = append(times, uint32(min(time.Since(t0), 4*time.Second)))
		return nil
	})
	if err != nil {
		return r, err
	}
	l.before.AddTo(&r)
	r.Values["messages"] = float64(n)
	times = times[len(times)-n:]
	r.Values["half_us"] = stats.Percentile(times, 50) / 2e3
	r.Values["half_p99_us"] = stats.Percentile(times, 99) / 2e3
	r.Values["max_us"] = stats.Percentile(times, 100) / 1e3
	l.mishaps(&r)
	return r, c.close()
}

func (l *latency) answer(b []byte, r *pair.Result, stop <-chan struct{}) error {
	c, err := l.face.accept(l.ctx)
	if err != nil {
		return err
	}
	l.before = pair.CostsNow()
	for {
		if err = c.recv(b); err != nil {
			break
		}
		if err = c.send(b); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("receiving: %w", err)
	}
	l.before.AddTo(r)
	l.mishaps(r)
	<-stop
	return c.close()
}
