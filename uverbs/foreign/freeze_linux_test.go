package foreign

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// spin has threads of the other process count up a word each, and returns the
// number of one that does nothing.
func (c *commands) spin(threads int) string {
	for i := range threads {
		go func() {
			runtime.LockOSThread()
			for {
				c.mem[8*i]++
			}
		}()
	}
	id := make(chan int)
	go func() {
		runtime.LockOSThread()
		id <- unix.Gettid()
		select {}
	}()
	return strconv.Itoa(<-id)
}

// words returns what the threads have counted.
func (c *child) words(s *Space, n int) []byte {
	b := make([]byte, 8*n)
	c.must(s.read(b, c.addr))
	return b
}

// freeze is Freeze on a machine that may be too busy for it at first.
func (c *child) freeze(s *Space, except int) (thaw func()) {
	for {
		thaw, err := s.Freeze(except)
		if err == nil {
			return thaw
		}
		if !errors.Is(err, unix.ETIMEDOUT) && !errors.Is(err, unix.EPERM) { // EPERM: one is still waited for
			c.must(err)
		}
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	const threads = 2
	c := start(t, 1)
	s := c.space()
	rest, err := strconv.Atoi(c.say("spin %d", threads))
	c.must(err)
	for range 20 {
		thaw := c.freeze(s, rest)
		before := c.words(s, threads)
		if _, err := s.Freeze(rest); !errors.Is(err, unix.EPERM) {
			t.Errorf("frozen twice: %v", err)
		}
		for range 100 {
			runtime.Gosched()
		}
		if after := c.words(s, threads); string(after) != string(before) {
			t.Fatalf("somebody goes on: %x, %x", before, after)
		}
		thaw()
		thaw()
		for string(c.words(s, threads)) == string(before) {
			runtime.Gosched()
		}
	}
	if got := c.say("sum 4000 8"); got != "0" {
		t.Errorf("the process says %s", got)
	}
	for _, x := range []struct {
		except int
		want   error
	}{{1, unix.ESRCH}, {0, unix.ESRCH}, {-1, unix.ESRCH}, {os.Getpid(), unix.ESRCH}} {
		if _, err := s.Freeze(x.except); !errors.Is(err, x.want) {
			t.Errorf("all but thread %d: %v, want %v", x.except, err, x.want)
		}
	}
	stranger := &Space{pid: s.pid, pidfd: s.pidfd, users: 1}
	if _, err := stranger.Freeze(rest); !errors.Is(err, unix.EPERM) {
		t.Errorf("a process of another user: %v", err)
	}
}

// TestFreezeKeepsSignals: what a thread is about to get when it is stopped, and
// what comes meanwhile, it gets afterwards.
func TestFreezeKeepsSignals(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	s := c.space()
	rest, err := strconv.Atoi(c.say("spin 1"))
	c.must(err)
	c.do("signals 8")
	count := func() uint64 {
		var b [8]byte
		c.must(s.read(b[:], c.addr+8))
		return binary.NativeEndian.Uint64(b[:])
	}
	for i := range uint64(20) {
		c.must(unix.Kill(s.pid, unix.SIGUSR1))
		c.freeze(s, rest)()
		for count() <= i {
			runtime.Gosched()
		}
	}
}

// TestFreezeOfTheDead: a process that ends while it is frozen.
func TestFreezeOfTheDead(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	s := c.space()
	rest, err := strconv.Atoi(c.say("spin 1"))
	c.must(err)
	thaw := c.freeze(s, rest)
	c.must(unix.Kill(s.pid, unix.SIGKILL))
	thaw()
	c.cmd.Wait() // for ever, if one of its threads is kept
	if _, err := s.Freeze(rest); err == nil {
		t.Error("frozen after its end")
	}
}
