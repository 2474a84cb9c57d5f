package message

import (
	"context"
	"sync"
	"time"
)

// deadline is when a wait ends. The zero value has none.
type deadline struct {
	mu     sync.Mutex
	ctx    context.Context // of those who wait
	cancel context.CancelFunc
	timer  *time.Timer
	turn   int // of set
}

func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renew()
	return d.ctx
}

// renew makes a context if there is none that has not ended, locked.
func (d *deadline) renew() {
	if d.ctx == nil {
		d.ctx, d.cancel = context.WithCancel(context.Background())
	}
}

// set moves the deadline, also for those who wait. The zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn++
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.ctx != nil && d.ctx.Err() != nil {
		d.ctx = nil
	}
	d.renew()
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		d.cancel()
	default:
		turn := d.turn
		d.timer = time.AfterFunc(left, func() { d.expire(turn) })
	}
}

func (d *deadline) expire(turn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if turn == d.turn {
		d.cancel()
	}
}
