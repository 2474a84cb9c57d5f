package foreign

import (
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"golang.org/x/sys/unix"
)

// A user can make a copy of the memory of his processes wait for as long as he
// likes: after he has registered a region he maps a file there of a file system
// that he serves himself (FUSE). (Page faults that he holds by userfaultfd do
// not hold /proc/PID/mem.) Who copies holds a lock that others need. So what
// belongs to another user than this process is copied by a courier, which has a
// buffer of its own. If that takes too long it is left alone with it, nothing
// of the space is touched any more, and nothing of the user's other spaces for
// a while. The time is the user's (owner): one who has many spaces, or serves
// every page just in time, has no more of it. A process of the same user could
// stop this one anyway.

// courierBytes is how many bytes a courier takes at once: a run.
const courierBytes = 64 << 10

// courier copies between a buffer and the memory of a process, on a goroutine
// of its own.
type courier struct {
	buf   []byte
	jobs  chan job
	done  chan result
	timer *time.Timer
}

type job struct {
	space *Space
	addr  uint64
	n     int
	write bool
}

// result is what became of a job.
type result struct {
	ok   bool // it was done whole
	took time.Duration
}

// couriers are those of a space that have nothing to do, one for each copy that
// was under way at once.
type couriers struct {
	idle  []*courier // guarded by Space.mu
	stuck atomic.Bool
	carry func(buf []byte, j job) bool // tests have another one
}

func newCourier() *courier {
	c := &courier{buf: make([]byte, courierBytes), jobs: make(chan job), done: make(chan result, 1), timer: time.NewTimer(patience)}
	c.timer.Stop()
	go func() {
		for j := range c.jobs {
			start := time.Now()
			ok := j.space.carry(c.buf[:j.n], j)
			c.done <- result{ok, time.Since(start)}
		}
	}()
	return c
}

// carry does a job, and reports whether all of it was done.
func carry(buf []byte, j job) bool {
	var n int
	var err error
	if j.write {
		n, err = unix.Pwrite(j.space.mem, buf, int64(j.addr))
	} else {
		n, err = unix.Pread(j.space.mem, buf, int64(j.addr))
	}
	return err == nil && n == len(buf)
}

// hire returns a courier.
func (s *Space) hire() *courier {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return c
	}
	return newCourier()
}

// send has a courier copy, and reports a fault: then the courier is not there
// any more.
func (s *Space) send(c *courier, j job) error {
	j.space = s
	c.timer.Reset(s.owner.patienceLeft())
	c.jobs <- j
	select {
	case r := <-c.done:
		c.timer.Stop()
		s.owner.took(r.took)
		if r.ok {
			return nil
		}
		s.dismiss(c)
	case <-c.timer.C:
		close(c.jobs)
		s.stuck.Store(true)
		s.owner.lost()
		open := s.acquire() // or the number of its file is another's when the courier goes on
		go func() {
			<-c.done
			s.owner.found()
			if open {
				s.Close()
			}
		}()
	}
	return ib.FaultMemory
}

// dismiss keeps a courier for the next copy.
func (s *Space) dismiss(c *courier) {
	s.mu.Lock()
	s.idle = append(s.idle, c)
	s.mu.Unlock()
}

// fetch is read by couriers.
func (s *Space) fetch(dst []byte, addr uint64) error {
	for len(dst) > 0 {
		if s.refuses() {
			return ib.FaultMemory
		}
		n := min(len(dst), courierBytes)
		c := s.hire()
		if err := s.send(c, job{addr: addr, n: n}); err != nil {
			return err
		}
		copy(dst, c.buf[:n])
		s.dismiss(c)
		dst, addr = dst[n:], addr+uint64(n)
	}
	return nil
}

// deliver is write, of buffers one behind the other, by couriers.
func (s *Space) deliver(addr uint64, bufs ...[]byte) error {
	for i, at := 0, 0; i < len(bufs); {
		if s.refuses() {
			return ib.FaultMemory
		}
		c, n := s.hire(), 0
		for i < len(bufs) && n < courierBytes {
			k := copy(c.buf[n:], bufs[i][at:])
			n += k
			if at += k; at == len(bufs[i]) {
				i, at = i+1, 0
			}
		}
		if err := s.send(c, job{addr: addr, n: n, write: true}); err != nil {
			return err
		}
		s.dismiss(c)
		addr += uint64(n)
	}
	return nil
}

// refuses reports whether nothing is copied now.
func (s *Space) refuses() bool { return s.stuck.Load() || s.owner.left() > 0 }

// Stuck reports whether a copy has taken too long: nothing of the space is
// touched any more, and its user gets no other one for a while.
func (s *Space) Stuck() bool { return s.stuck.Load() }
