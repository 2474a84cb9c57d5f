//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// soak is one run.
type soak struct {
	*cast
	o            options
	rng          *rand.Rand
	kills, stops atomic.Int64
	restarts     atomic.Int64 // of the owner, and of all with it
}

// control starts all processes, lets chaos loose, and judges.
func control(ctx context.Context, o options) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "soak"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	s := &soak{o: o, rng: rand.New(rand.NewPCG(o.seed, 0))}
	if o.shared {
		s.cast, err = together(ctx, o)
	} else {
		s.cast, err = apart(o)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%d connections for %v, %s loss; -seed %d\n", o.conns, o.length, o.loss, o.seed)
	living, end := context.WithCancel(ctx)
	defer end()
	if err := s.startAll(ctx, living); err != nil {
		return err
	}
	err = errors.Join(s.chaos(ctx, living), s.recover(ctx))
	end()
	for _, p := range s.all() {
		<-p.ended
		err = errors.Join(err, p.err())
	}
	if err != nil {
		s.complain()
	}
	s.print()
	if err == nil && ctx.Err() == nil {
		err = s.grown()
	}
	return err
}

// startAll starts everything, the owner first.
func (s *soak) startAll(ctx, living context.Context) error {
	for _, p := range s.all() {
		if err := p.start(living); err != nil {
			return err
		}
		if p == s.owner {
			if err := s.awaitOwner(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitOwner waits until the owner leases, and programs find it. What its
// directory has may be of the one before it.
func (s *soak) awaitOwner(ctx context.Context) error {
	for range 500 {
		if s.owner.hasSaid("msg=ready") {
			return nil
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		if err := s.owner.err(); err != nil {
			return err
		}
	}
	return errors.New("the owner of the port does not lease")
}

// failTime is what processes have to end after the owner of their port has.
const failTime = 5 * time.Second

// restartOwner kills the owner. Each process must hear of that, and ends. Then
// all begin again.
func (s *soak) restartOwner(ctx, living context.Context) error {
	for _, p := range s.all() {
		p.mu.Lock()
		p.wanted = true
		p.mu.Unlock()
	}
	s.owner.murder()
	for _, p := range slices.Concat(s.servers, s.clients) {
		if !p.hasEnded(failTime) {
			return fmt.Errorf("%s goes on %v after the owner of its port has ended", p.name, failTime)
		}
		if p.status != deviceFailed {
			return fmt.Errorf("%s has ended with status %d, not because its device has failed", p.name, p.status)
		}
	}
	for _, p := range s.programs {
		if !p.hasEnded(failTime) {
			p.murder() // rping waits in ways that no device can end
		}
	}
	s.restarts.Add(1)
	return s.startAll(ctx, living)
}

// again starts programs that have done what they were to do.
func (s *soak) again(living context.Context) error {
	for _, p := range s.programs {
		if p.ends && p.hasEnded(0) && p.err() == nil {
			if err := p.start(living); err != nil {
				return err
			}
			p.mu.Lock()
			p.runs++
			p.mu.Unlock()
		}
	}
	return nil
}

// failed returns what a process has found wrong.
func (s *soak) failed() (err error) {
	for _, p := range s.all() {
		err = errors.Join(err, p.err())
	}
	return err
}

// wait lets time pass; the end of the program ends it.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-t.C:
		return nil
	}
}

// ownersShare is one in how many faults is the owner's at least: it is one of
// many processes, and each of them has part in its end.
const ownersShare = 6

// chaos kills and stops processes until the time is over or something fails.
// One process is down at a time.
func (s *soak) chaos(ctx, living context.Context) error {
	end := time.Now().Add(s.o.length)
	all := s.all()
	for time.Now().Before(end) {
		if err := wait(ctx, min(s.some(s.o.chaos), time.Until(end))); err != nil {
			return err
		}
		if err := s.failed(); err != nil {
			return err
		}
		if err := s.again(living); err != nil {
			return err
		}
		p := all[s.rng.IntN(len(all))]
		if s.owner != nil && s.rng.IntN(ownersShare) == 0 {
			p = s.owner
		}
		if p == s.owner {
			p.look()
		}
		if p == s.owner && s.rng.IntN(2) == 0 {
			if err := s.restartOwner(ctx, living); err != nil {
				return err
			}
			continue
		}
		if p.kill && p != s.owner && s.rng.IntN(2) == 0 {
			p.faults.strike()
			p.murder()
			s.kills.Add(1)
			if err := wait(ctx, s.some(s.o.chaos/4)); err != nil {
				return err
			}
			if err := p.start(living); err != nil {
				return err
			}
			p.faults.strike()
			continue
		}
		p.faults.strike()
		p.signal(syscall.SIGSTOP)
		s.stops.Add(1)
		err := wait(ctx, s.some(s.o.chaos/2))
		p.signal(syscall.SIGCONT)
		p.faults.strike()
		if err != nil {
			return err
		}
	}
	return nil
}

// some returns a random time with a mean.
func (s *soak) some(mean time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(2*mean) + 1))
}

// recover waits until every connection has done a round since chaos ended.
func (s *soak) recover(ctx context.Context) error {
	samples := make([]int, len(s.clients))
	for i, p := range s.clients {
		_, samples[i] = p.last()
	}
	// Two more samples: what the slowest has done between them is new.
	const more, most = 3, 30
	for range most {
		if err := wait(ctx, s.o.report); err != nil {
			return err
		}
		if err := s.failed(); err != nil {
			return err
		}
		done := true
		for i, p := range s.clients {
			p.mu.Lock()
			n := len(p.samples)
			done = done && n >= samples[i]+more && p.samples[n-1].Slowest > p.samples[n-2].Slowest
			p.mu.Unlock()
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("a connection has not come back %v after the last fault", most*s.o.report)
}

// grown compares the processes that have lived through all with themselves: the
// last quarter of the samples with the second one.
func (s *soak) grown() (err error) {
	if s.owner != nil {
		return nil // nothing has lived through all
	}
	for _, p := range []*process{s.servers[0], s.clients[0]} {
		n := len(p.samples) / 4
		if n < 2 {
			fmt.Printf("%s: too short to judge growth\n", p.name)
			continue
		}
		early, late := p.samples[n:2*n], p.samples[3*n:]
		for _, m := range []struct {
			what  string
			of    func(sample) uint64
			slack uint64
		}{
			{"bytes of heap", func(s sample) uint64 { return s.Heap }, 4 << 20},
			{"bytes resident", func(s sample) uint64 { return s.RSS }, 8 << 20},
			{"goroutines", func(s sample) uint64 { return uint64(s.Goroutines) }, 40},
			{"queue pairs", func(s sample) uint64 { return uint64(s.QPs) }, 20},
			{"memory regions", func(s sample) uint64 { return uint64(s.MRs) }, 20},
		} {
			a, b := median(early, m.of), median(late, m.of)
			fmt.Printf("%s: %s %d, then %d\n", p.name, m.what, a, b)
			if b > a+a/4+m.slack {
				err = errors.Join(err, fmt.Errorf("%s: %s grew from %d to %d", p.name, m.what, a, b))
			}
		}
	}
	return err
}

func median(samples []sample, of func(sample) uint64) uint64 {
	v := make([]uint64, len(samples))
	for i, s := range samples {
		v[i] = of(s)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// complain prints what the programs have said last: what one of them ends with
// may be the other's fault.
func (s *soak) complain() {
	for _, p := range s.programs {
		fmt.Printf("%s:%s\n", p.name, p.complaint)
	}
}

// print says what was done.
func (s *soak) print() {
	var rounds, verified, dials uint64
	for _, p := range s.clients {
		l, _ := p.last()
		rounds, verified, dials = rounds+l.Rounds, verified+l.Verified, dials+l.Dials
	}
	for _, p := range s.programs {
		fmt.Printf("%s: begun again %d times, %d of them broken off by a fault\n", p.name, p.runs, p.broken)
	}
	fmt.Printf("%d kills, %d stops, %d restarts of the owner; %d rounds of a WRITE of %d bytes, an atomic and an echoed message; %d dials, %d connections verified\n",
		s.kills.Load(), s.stops.Load(), s.restarts.Load(), rounds, recordLen, dials, verified)
}
