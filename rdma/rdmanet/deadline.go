package rdmanet

import (
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// deadline is a time after which those that wait are not to wait any more. Its
// fields are guarded by the connection's mu.
type deadline struct {
	at     time.Time // zero: none
	passed bool
	timer  *time.Timer
}

// set sets the deadline, and has waiting calls look again if it has passed.
func (d *deadline) set(c *Conn, at time.Time) {
	d.end()
	if at.IsZero() {
		return
	}
	d.at = at
	if left := time.Until(at); left <= 0 {
		d.passed = true
		c.interrupt()
	} else if d.timer == nil {
		d.timer = time.AfterFunc(left, func() { d.expire(c) })
	} else {
		d.timer.Reset(left)
	}
}

func (d *deadline) expire(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.at.IsZero() || d.passed || time.Until(d.at) > 0 {
		return // it was set anew meanwhile
	}
	d.passed = true
	c.interrupt()
}

// end takes the deadline away.
func (d *deadline) end() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.passed = time.Time{}, false
}

// keepAlive asks a peer that has been silent for an acknowledgement, by an
// empty WRITE. So this side learns that the peer is gone, also when it only
// reads. Its fields are guarded by the connection's mu.
type keepAlive struct {
	every  time.Duration // half of Options.KeepAlive: see tick
	timer  *time.Timer
	heard  bool // something has completed since the timer was set
	asking bool // a WRITE is on its way
}

func (k *keepAlive) start(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.every = c.opts.KeepAlive / 2; k.every > 0 {
		k.timer = time.AfterFunc(k.every, func() { k.tick(c) })
	}
}

func (k *keepAlive) end() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// tick asks if there was no sign since the last tick. That is at most two ticks
// after the last sign.
func (k *keepAlive) tick(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if c.closed || c.err != nil {
		return
	}
	if !k.heard && !k.asking {
		k.asking = true
		err := c.ep.qp.PostSend(verbs.SendWR{ID: idKeepAlive, Opcode: verbs.OpWrite, Signaled: true})
		if err != nil {
			c.fail(err)
		}
	}
	k.heard = false
	k.timer.Reset(k.every)
}
