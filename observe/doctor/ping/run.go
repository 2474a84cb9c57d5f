package ping

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// Config says how often to ask. The zero value asks once a second without end.
type Config struct {
	Count    int           // requests; 0 means until ctx ends
	Interval time.Duration // between two requests; 0 means 1 s
	Timeout  time.Duration // for which an answer is waited for; 0 means 1 s

	OnReply func(Reply)   // if set, is called for each answer
	OnLost  func(seq int) // if set, is called for each request without an answer in time
}

// Statistics is what came of a run.
type Statistics struct {
	Sent     int           `json:"sent"`
	Received int           `json:"received"`
	Min      time.Duration `json:"min_ns"`
	Avg      time.Duration `json:"avg_ns"`
	Max      time.Duration `json:"max_ns"`
	MDev     time.Duration `json:"mdev_ns"` // standard deviation
	Elapsed  time.Duration `json:"elapsed_ns"`

	sum, squares float64
}

// Loss returns the share of requests without an answer, from 0 to 1.
func (s *Statistics) Loss() float64 {
	if s.Sent == 0 {
		return 0
	}
	return float64(s.Sent-s.Received) / float64(s.Sent)
}

func (s *Statistics) add(rtt time.Duration) {
	if s.Received == 0 || rtt < s.Min {
		s.Min = rtt
	}
	s.Received++
	s.Max = max(s.Max, rtt)
	v := float64(rtt)
	s.sum += v
	s.squares += v * v
	n := float64(s.Received)
	mean := s.sum / n
	s.Avg, s.MDev = time.Duration(mean), time.Duration(math.Sqrt(max(s.squares/n-mean*mean, 0)))
}

// Run asks again and again. It returns when it has asked often enough and the
// last answer has come or is overdue, or when ctx ends, which is no error.
func (p *Pinger) Run(ctx context.Context, c Config) (s Statistics, err error) {
	c.Interval, c.Timeout = cmp.Or(c.Interval, time.Second), cmp.Or(c.Timeout, time.Second)
	clear(p.waiting)
	start := time.Now()
	defer func() { s.Elapsed = time.Since(start) }()
	next := start
	for ctx.Err() == nil {
		now := time.Now()
		p.expire(now, &c)
		more := c.Count == 0 || s.Sent < c.Count
		if !more && len(p.waiting) == 0 {
			break
		}
		if more && !now.Before(next) && len(p.waiting) < maxOutstanding {
			s.Sent++
			if err := p.send(s.Sent, 0); err != nil {
				return s, err
			}
			next = now.Add(c.Interval)
			continue
		}
		until := p.oldest().Add(c.Timeout)
		if more && (next.Before(until) || len(p.waiting) == 0) {
			until = next
		}
		err := p.take(ctx, until, func(r Reply) {
			s.add(r.RTT)
			if c.OnReply != nil {
				c.OnReply(r)
			}
		})
		if err != nil && ctx.Err() == nil {
			return s, err
		}
	}
	return s, nil
}

// expire gives requests up whose answer is overdue, the first one first.
func (p *Pinger) expire(now time.Time, c *Config) {
	var late []int
	for id, r := range p.waiting {
		if now.Sub(r.sent) >= c.Timeout {
			late = append(late, r.seq)
			delete(p.waiting, id)
		}
	}
	slices.Sort(late)
	for _, seq := range late {
		if c.OnLost != nil {
			c.OnLost(seq)
		}
	}
}

func (p *Pinger) oldest() (t time.Time) {
	for _, r := range p.waiting {
		if t.IsZero() || r.sent.Before(t) {
			t = r.sent
		}
	}
	return t
}
