package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// start starts the goroutines of the shard.
func (s *shard) start() {
	s.alarm.init(s.onAlarm)
	s.wg.Add(2)
	go s.receiver()
	go s.transmitter()
}

// transmitter goes on sending when a caller has done its share, and handles
// what other shards have forwarded.
func (s *shard) transmitter() {
	defer s.wg.Done()
	for {
		select {
		case <-s.kick:
			s.lock()
			s.handleForwarded()
			s.flush()
			s.unlock()
		case <-s.done:
			return
		}
	}
}

// receiver is the shard's own goroutine for the link, see poller.
func (s *shard) receiver() {
	defer s.wg.Done()
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	for {
		if s.poller.become() {
			if !s.receiveAlone() {
				return
			}
			s.poller.handOver()
		}
		if !s.standBy(tick) {
			return
		}
	}
}

// receiveAlone receives as the poller until programs do it better. It reports
// false when the link is closed.
func (s *shard) receiveAlone() bool {
	p := &s.poller
	var ban clock.Time
	if called := p.called.Swap(false); s.drain() > 0 && !called {
		ban = s.now().Add(standbyBan) // programs had left them lying
	}
	for {
		p.active.Store(false)
		p.outrun.Store(0)
		p.waits.Store(true)
		err := s.waitLink()
		p.waits.Store(false)
		if err != nil {
			return false
		}
		n := s.drain()
		s.handlers.letRun()
		if n > 0 {
			lookLonger(s, false, p.active.Load)
		}
		parked, active := p.parked.Load(), p.active.Load()
		switch {
		case p.told.Load() && p.told.Swap(false):
			return true
		case active && parked == 0 && p.outrun.Load() >= outrunBatches:
			return true
		case s.now() < ban:
		case n == 0 && active && parked == 0, parked == 1:
			return true
		}
	}
}

// standBy leaves receiving to programs until none does it. It reports false
// when the shard is closed.
func (s *shard) standBy(tick *time.Timer) bool {
	p := &s.poller
	p.standby.Store(true)
	defer s.comeBack()
	p.active.Store(false)
	for every := standbyTick; ; every = min(2*every, maxStandbyTick) {
		tick.Reset(every)
		select {
		case <-tick.C:
		case <-p.resume:
		case <-s.done:
			return false
		}
		s.flushDelayed()
		quiet := !p.active.Swap(false)
		switch {
		case !p.taken.Load():
			if quiet || p.called.Load() || p.parked.Load()+p.threads.Load() > 0 {
				return true
			}
		case quiet:
			if !s.sleepWhilePolled() {
				return false
			}
		}
	}
}

// comeBack ends standing by. It is done with the lock held under which programs
// leave answers unsent: so none is missed.
func (s *shard) comeBack() {
	s.lock()
	s.poller.standby.Store(false)
	s.flush()
	s.unlock()
}

// sleepWhilePolled waits until the program that is the poller ceases to be.
func (s *shard) sleepWhilePolled() bool {
	p := &s.poller
	p.dormant.Store(true)
	if (!p.taken.Load() || p.delayed.Load()) && p.dormant.CompareAndSwap(true, false) {
		return true
	}
	select {
	case <-p.resume:
		return true
	case <-s.done:
		return false
	}
}

// close ends the shard's goroutines and its link.
func (s *shard) close() error {
	s.lock()
	sent := s.sendFinal()
	s.unlock()
	s.await(sent)
	s.lock()
	s.closed = true
	s.unlock()
	s.alarm.stop()
	close(s.done)
	err := s.link.Close()
	s.wg.Wait()
	return err
}
