//go:build linux

package uverbs

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/clock"
)

// bellRoom is where the clients of a device are whose doorbells the device
// serves beside its link: one thread of the daemon takes what programs post and
// what is answered. It is an hca.Aside.
//
// Doorbells are only looked at: a program that reads its own, or fills it,
// keeps nobody else waiting.
type bellRoom struct {
	epoll *os.File
	fd    int
	wake  func() // has Look called soon

	awake    atomic.Bool // Look is called soon
	mail     atomic.Bool // a courier has something for it
	attends  atomic.Bool // Polling is called again and again
	notified atomic.Bool // a program was told of a completion, since it was asked for

	mu      sync.Mutex
	clients []*Client
	looks   uint
}

// inRoom is what the room knows of a client. The room is locked.
type inRoom struct {
	rang  bool        // it has written its eventfd
	vain  vain        // what it rings for
	deaf  *time.Timer // until then nobody listens to it; nil: somebody does
	waits clock.Time  // since when it waits after it has polled; 0: it does not
	since clock.Time  // since when it is not told of a completion; 0: of all it was
	came  clock.Time  // when there was the last one
}

// room returns where the device's clients are served, nil if its link does not
// wait for doorbells. Then each client has a goroutine.
func (d *Device) room() *bellRoom {
	d.roomOnce.Do(func() {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return
		}
		r := &bellRoom{epoll: os.NewFile(uintptr(fd), "doorbells"), fd: fd, wake: d.Dev.WakeAside}
		if d.Dev.SetAside(r.epoll, r.drain, r) != nil {
			r.epoll.Close()
			return
		}
		d.bells = r
	})
	return d.bells
}

// drain takes note of what has rung, so that it does not count again.
func (r *bellRoom) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list [16]unix.EpollEvent
	n, _ := unix.EpollWait(r.fd, list[:], 0)
	for _, e := range list[:max(n, 0)] {
		for _, c := range r.clients {
			if c.bell.fd == int(e.Fd) {
				c.here.rang = true
			}
		}
	}
}

// add has a client served.
func (r *bellRoom) add(c *Client) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.listen(unix.EPOLL_CTL_ADD, c, true); err != nil {
		return err
	}
	c.area.sleeping.Store(1) // the link may be waited for already
	r.clients = append(r.clients, c)
	return nil
}

// listen says whether the link is waited for until the client rings, too. Each
// ring is an event of its own: nobody reads the eventfd. The room is locked.
func (r *bellRoom) listen(op int, c *Client, on bool) error {
	// Errors are told in any case. A program can make one that lasts: by a
	// counter that it has filled, and asynchronous I/O that counts on.
	e := unix.EpollEvent{Fd: int32(c.bell.fd), Events: unix.EPOLLET}
	if on {
		e.Events |= unix.EPOLLIN
	}
	return unix.EpollCtl(r.fd, op, c.bell.fd, &e)
}

// remove ends that. Nothing of the client is served when it returns.
func (r *bellRoom) remove(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = unix.EpollCtl(r.fd, unix.EPOLL_CTL_DEL, c.bell.fd, nil)
	if c.here.deaf != nil {
		c.here.deaf.Stop()
	}
	if i := slices.Index(r.clients, c); i >= 0 {
		r.clients = slices.Delete(r.clients, i, i+1)
	}
}

// Look implements hca.Aside.
func (r *bellRoom) Look() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	any := r.mail.Swap(false)
	if any {
		for _, c := range r.clients {
			if c.courier.soon != nil {
				c.courier.flush()
			}
		}
	}
	for _, c := range r.clients {
		any = r.look(c) || any
	}
	return any
}

// look serves a client, and reports whether it has rung. The room is locked.
func (r *bellRoom) look(c *Client) bool {
	if c.here.deaf != nil {
		return false
	}
	rang := c.serveOnce()
	switch {
	case c.posted:
		c.posted, c.here.rang = false, false
		c.here.vain.useful()
	case rang || c.here.rang:
		c.here.rang = false
		if d := c.here.vain.again(); d > 0 {
			r.deafen(c, d)
		}
	}
	return rang
}

// deafen has nobody listen to a client for a while. The room is locked.
func (r *bellRoom) deafen(c *Client, d time.Duration) {
	c.pauses.Add(1)
	_ = r.listen(unix.EPOLL_CTL_MOD, c, false)
	c.here.deaf = time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.Contains(r.clients, c) {
			return
		}
		c.here.deaf = nil
		_ = r.listen(unix.EPOLL_CTL_MOD, c, true)
		r.wake()
	})
}

// takesMail reports whether Look writes what a courier has, instead of a
// goroutine that would have to be woken.
func (r *bellRoom) takesMail() bool {
	if !r.awake.Load() {
		return false
	}
	r.mail.Store(true)
	return r.awake.Load()
}

// Sleep implements hca.Aside.
func (r *bellRoom) Sleep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awake.Store(false)
	for _, c := range r.clients {
		c.area.sleeping.Store(1)
		c.area.wakeWaiting()
	}
	return r.mail.Load() || slices.ContainsFunc(r.clients, func(c *Client) bool { return c.here.deaf == nil && c.rung() })
}

// Awake implements hca.Aside.
func (r *bellRoom) Awake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awake.Store(true)
	for _, c := range r.clients {
		c.area.sleeping.Store(0)
	}
}

// Notified implements hca.Aside.
func (r *bellRoom) Notified() bool { return r.notified.Swap(false) }

// Attend implements hca.Aside.
func (r *bellRoom) Attend(on bool) {
	r.attends.Store(on)
	if on {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.tellWaiting()
	}
}

const (
	// longestWait is how long a program waits for completions after a poll.
	longestWait = 50 * time.Microsecond
	// cpuEvery is how often it is looked on which processor this is.
	cpuEvery = 4
)

// Polling implements hca.Aside.
func (r *bellRoom) Polling(now clock.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looks++; r.looks%cpuEvery == 0 {
		r.tellCPU()
	}
	any := false
	for _, c := range r.clients {
		any = c.polls(now) || any
	}
	return any
}

// tellCPU tells programs on which processor they are served. The room is
// locked.
func (r *bellRoom) tellCPU() {
	var cpu uint32
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e != 0 {
		return
	}
	for _, c := range r.clients {
		if c.area.cpu.Load() != cpu {
			c.area.cpu.Store(cpu)
		}
	}
}
