package hca

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// alarm calls a function when the earliest time has come that it was set to. It
// is set without the shard's lock, because arming a timer may be a system call.
type alarm struct {
	at    atomic.Int64 // when it goes off; 0: it is not set
	mu    sync.Mutex
	timer *time.Timer
	off   bool // for good
}

func (a *alarm) init(f func()) {
	a.timer = time.AfterFunc(time.Hour, f)
	a.timer.Stop()
}

// replaced has the alarm never go off: a driver has the time.
func (a *alarm) replaced() {
	a.off = true
	a.at.Store(1) // no time is earlier
}

// set has the alarm go off at the time at, or at an earlier one that it was set
// to. now is the time.
func (a *alarm) set(at clock.Time, now func() clock.Time) {
	if have := a.at.Load(); have != 0 && have <= int64(at) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if have := a.at.Load(); a.off || have != 0 && have <= int64(at) {
		return
	}
	a.at.Store(int64(at))
	a.timer.Reset(max(at.Sub(now()), 0))
}

// wentOff records that the function has run. From now on the alarm can be set
// again, to any time.
func (a *alarm) wentOff() { a.at.Store(0) }

// stop ends the alarm.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
