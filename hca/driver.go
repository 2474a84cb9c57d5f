package hca

import (
	"context"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// Driver is a link that runs its device. New starts no goroutine then, reads no
// clock and draws no number of its own: the driver says what time it is, brings
// packets by Driven.Receive, and asks for them with Driven.Pull. Programs wait
// by its tasks. So what happens depends on the driver alone.
//
// One goroutine, or several that take turns, call the driver, the device, and
// everything made on it. A device has one such link. Wait, Wake, Recv and Send
// of it are never called.
type Driver interface {
	transport.Link
	task.Scheduler

	// Configure is called first. It may set what of the engine's
	// configuration is the driver's business: Random and Class.
	Configure(c *engine.Config)

	// Drive hands over the device, as the driver sees it.
	Drive(d *Driven)

	// Changed says that something has happened to the device: whether
	// packets may be ready, and when Advance is to be called, unless at is
	// 0. A call replaces that time. It must not call back.
	Changed(ready bool, at clock.Time)
}

// Driven is a device that a Driver runs, as that sees it.
type Driven struct {
	driver  Driver
	shard   *shard
	polling task.Sleepers // programs that have polled and found nothing
	sending task.Sleepers // programs that wait for the next packet to be sent
	jobs    []func()      // of the pager, for when no lock is held
}

const (
	// pollPause is how long a poll that finds nothing takes, unless
	// something comes: a program that polls for ever does not stop the
	// time.
	pollPause = time.Microsecond

	// turnPackets is how many packets a queue pair may still send before it
	// is closed.
	turnPackets = 64
)

// Random returns a number that a peer cannot guess, unless a Driver gives them.
func (d *Device) Random() uint32 { return d.random() }

// newDriven has the driver run the device.
func newDriven(driver Driver, d *Device) *Driven {
	s := d.shards[0]
	by := &Driven{driver: driver, shard: s}
	s.driven, d.events.driven = by, by
	d.pager.spawn = by.later

	// The driver sends, and no goroutine waits for that; it has the timer.
	s.out.sending, s.out.stuck = true, true
	s.alarm.replaced()
	d.moderator.alarm.replaced()
	driver.Drive(by)
	return by
}

// Pull fills out with packets of some classes. It may be called again when
// Changed has said so.
func (d *Driven) Pull(out *transport.TxBatch, classes engine.Classes) {
	s := d.shard
	s.mu.Lock()
	for {
		f := s.eng.Fill(s.now(), out, classes)
		if out.Len() > 0 || f.LoopPackets == 0 {
			break
		}
	}
	s.mu.Unlock()
	d.sending.Wake() // also if nothing was left to be sent
	at := d.deadline()
	if s.handlers.any.Load() || len(d.jobs) > 0 {
		at = s.now() // not from here: they may post
	}
	d.driver.Changed(false, at)
}

// Receive handles packets. They may lie in memory that is used again.
func (d *Driven) Receive(packets []transport.RxPacket) {
	s := d.shard
	s.lock()
	if !s.closed {
		r := s.eng.Receive(s.now(), packets)
		s.distribute(r.Multicast)
	}
	d.polling.Wake()
	s.unlock()
}

// Advance does what is due.
func (d *Driven) Advance() {
	s := d.shard
	s.lock()
	now := s.now()
	if !s.closed {
		s.eng.Advance(now)
	}
	d.polling.Wake()
	s.unlock()
	if at, ok := s.moderator.earliest(); ok && at <= now {
		s.moderator.onAlarm()
	}
}

// release gives up the shard's lock, and tells the driver.
func (d *Driven) release() {
	ready := d.shard.eng.Classes() != 0
	d.shard.mu.Unlock()
	d.driver.Changed(ready, d.deadline())
	for len(d.jobs) > 0 {
		job := d.jobs[0]
		d.jobs = d.jobs[1:]
		job()
	}
}

// deadline returns when Advance is to be called, 0 if not at all.
func (d *Driven) deadline() clock.Time {
	at, ok := d.shard.eng.Deadline()
	if m, moderated := d.shard.moderator.earliest(); moderated && (!ok || m < at) {
		return m
	}
	if !ok || d.shard.closed {
		return 0
	}
	return at
}

// later has job done soon, when no lock is held.
func (d *Driven) later(job func()) {
	d.jobs = append(d.jobs, job)
	d.driver.Changed(false, d.driver.Now())
}

// poll makes a program wait that has polled and found nothing, so that time
// goes on. It reports whether something may have come.
func (d *Driven) poll() bool {
	return d.driver.Task() != nil && d.polling.Sleep(context.Background(), d.driver, pollPause) == nil
}

// giveTurn waits until q has sent what it has, or has had a turn. It is called
// as transmit is.
func (d *Driven) giveTurn(q *engine.QP) {
	for range turnPackets {
		if !q.Pending() || d.driver.Task() == nil {
			return
		}
		d.shard.unlock()
		err := d.sending.Sleep(context.Background(), d.driver, finalWait)
		d.shard.lock()
		if err != nil {
			return
		}
	}
}
