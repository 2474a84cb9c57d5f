package faces

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// connect makes connections and closes them, one after the other.
type connect struct{ *base }

// Run dials, or accepts.
func (c *connect) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	if !c.cfg.Active {
		c.before = pair.CostsNow()
		if c.cfg.Test == First {
			go c.answerOneByOne()
		} else {
			go c.accepting(func(one channel) { one.gone(); one.close() })
		}
		<-stop
		c.before.AddTo(&r)
		c.mishaps(&r)
		return r, nil
	}
	times := make([]uint32, 0, 1<<20)
	message := make([]byte, 8)
	n, took, err := c.measured(1, func() error {
		t0 := time.Now()
		one, err := c.face.dial(c.ctx, c.peer)
		if err != nil {
			return err
		}
		if c.cfg.Test == First {
			if err := one.send(message); err != nil {
				return fmt.Errorf("the first message: %w", err)
			}
			if err := one.recv(message); err != nil {
				return fmt.Errorf("the answer to the first message: %w", err)
			}
		}
		times = append(times, uint32(min(time.Since(t0), 4*time.Second)))
		if err := one.close(); err != nil {
			return fmt.Errorf("closing: %w", err)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	c.before.AddTo(&r)
	r.Values["messages"] = float64(n)
	r.Values["per_second"] = float64(n) / took.Seconds()
	times = times[len(times)-n:] // those of the window
	r.Values["p50_us"] = stats.Percentile(times, 50) / 1e3
	r.Values["p99_us"] = stats.Percentile(times, 99) / 1e3
	r.Values["max_us"] = stats.Percentile(times, 100) / 1e3
	c.mishaps(&r)
	return r, nil
}

// answerOneByOne answers the one message of each connection. The client has one
// at a time, so that they may share a completion queue.
func (c *connect) answerOneByOne() {
	message := make([]byte, 8)
	for {
		one, err := c.face.accept(c.ctx)
		if err != nil {
			return
		}
		if one.recv(message) == nil && one.send(message) == nil {
			one.gone()
		}
		one.close()
	}
}
