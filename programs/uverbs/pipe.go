//go:build linux

package uverbs

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// maxPending is how many different events are kept for a program that does not
// read the pipe, beyond those that the pipe holds.
const maxPending = 1 << 16

// pipeRoom is how many bytes of events are in a pipe at most, but for a half: a
// program may make a pipe larger.
const pipeRoom = 64 << 10

// retryAfter is when a full pipe is tried again.
const retryAfter = 5 * time.Millisecond

// record is an event on its way to a program.
type record struct {
	element uint64 // the program's handle of the object
	kind    uint32 // of an asynchronous event
	of      *tally
	last    bool // no event: the pipe ends
}

// tally counts the events of an object in a pipe, whose lock guards it.
type tally struct {
	n    uint32
	over bool // the object goes: the program must hear of it no more
}

// pipe takes events to a program, which has the other end: those of completion
// queues, or asynchronous ones.
//
// An event counts as reported when the program has read it. So a pipe is read
// back when an object goes: by a file of its own, since the program's blocks.
// It is opened at the start: later the process may have another user or root,
// or as many files as it may.
type pipe struct {
	size   int    // of a record
	number uint32 // of the channel
	back   int    // to read back
	users  int    // completion queues with this channel; commands guard it

	ino     uint64
	mu      sync.Mutex
	fd      int
	pending []*kept // in the order of the first of their kind
	alike   map[record]*kept
	timer   *time.Timer
	written int               // bytes, since it was asked how many are there
	gone    bool              // the program has closed its end
	ended   bool              // there is nothing more to come: the device is lost
	taken   map[uint64]uint32 // when it has ended: events that takeBack has taken with others
	closed  bool
}

// kept are events that are alike and had no room in the pipe: a program that
// does not read may have one made again and again.
type kept struct {
	record
	n int
}

// newPipe makes a pipe for records of size bytes, and returns the end for the
// program.
func newPipe(size int) (*pipe, int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, fmt.Errorf("pipe for events: %w", err)
	}
	err := unix.SetNonblock(fds[1], true)
	back := -1
	if err == nil {
		back, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fds[0]), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, 0, fmt.Errorf("pipe for events: %w", err)
	}
	p := &pipe{size: size, back: back, fd: fds[1]}
	p.ino, _ = inode(fds[0])
	return p, fds[0], nil
}

// files returns the numbers that the process has for it.
func (p *pipe) files() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil
	case p.ended:
		return []int{p.back}
	}
	return []int{p.fd, p.back}
}

// inode returns the number of a pipe, which both ends have.
func inode(fd int) (uint64, bool) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// abandon says that the program has closed its end.
func (p *pipe) abandon() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
}

// abandoned reports whether it has.
func (p *pipe) abandoned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed || p.gone
}

// send writes an event, or keeps it until there is room.
func (p *pipe) send(r record) {
	if r.last {
		p.end()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.gone || p.ended || r.of.over {
		return
	}
	if len(p.pending) == 0 && p.write(r) {
		return
	}
	if same := p.alike[r]; same != nil {
		same.n++
		return
	}
	if len(p.pending) < maxPending {
		if p.alike == nil {
			p.alike = map[record]*kept{}
		}
		k := &kept{r, 1}
		p.alike[r] = k
		p.pending = append(p.pending, k)
		p.later()
	}
}

// end says that no event follows: the program sees the end of the file after
// what is there. So none waits for an event of a device that is lost.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ended {
		return
	}
	p.ended = true
	p.forget()
	unix.Close(p.fd)
	p.fd = -1
}

// forget drops what is kept. The pipe is locked.
func (p *pipe) forget() {
	p.pending, p.alike = nil, nil
	if p.timer != nil {
		p.timer.Stop()
	}
}

// later has what is kept tried again. The pipe is locked.
func (p *pipe) later() {
	if p.timer == nil {
		p.timer = time.AfterFunc(retryAfter, p.retry)
		return
	}
	p.timer.Reset(retryAfter)
}

// retry writes what was kept.
func (p *pipe) retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pending) > 0 && p.write(p.pending[0].record) {
		if k := p.pending[0]; k.n > 1 && !p.gone {
			k.n--
			continue
		}
		delete(p.alike, p.pending[0].record)
		p.pending = p.pending[1:]
	}
	if len(p.pending) > 0 {
		p.later()
	}
}

// write writes an event. It reports false if the pipe is full. The pipe is
// locked.
func (p *pipe) write(r record) bool {
	if p.full() {
		return false
	}
	var b [abi.AsyncEventLen]byte
	binary.LittleEndian.PutUint64(b[:], r.element)
	binary.LittleEndian.PutUint32(b[8:], r.kind)
	for {
		switch _, err := unix.Write(p.fd, b[:p.size]); err {
		case nil:
			p.written += p.size
			r.of.n++
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default: // EPIPE
			p.gone = true
			return true
		}
	}
}

// full reports whether there is as much in the pipe as may be.
func (p *pipe) full() bool {
	if p.written < pipeRoom/2 {
		return false
	}
	there, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	if err == nil && there >= pipeRoom {
		return true
	}
	p.written = 0
	return false
}

// takeBack takes the events of an object that the program has not read out of
// the pipe, and returns how many it has read. There are no more of them.
func (p *pipe) takeBack(element uint64, of *tally) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	of.over = true
	others := p.pending[:0]
	for _, k := range p.pending {
		if k.of == of {
			delete(p.alike, k.record)
		} else {
			others = append(others, k)
		}
	}
	clear(p.pending[len(others):])
	p.pending = others
	if of.n == 0 || p.closed {
		return of.n
	}
	for b := p.empty(); len(b) >= p.size; b = b[p.size:] {
		switch e := binary.LittleEndian.Uint64(b); {
		case e == element:
			of.n--
		case p.ended:
			p.keepTaken(e)
		default:
			_, _ = unix.Write(p.fd, b[:p.size]) // there is room
		}
	}
	of.n -= min(of.n, p.taken[element])
	delete(p.taken, element)
	return of.n
}

// keepTaken notes an event that nothing can put back. The pipe is locked.
func (p *pipe) keepTaken(element uint64) {
	if p.taken == nil {
		p.taken = map[uint64]uint32{}
	}
	p.taken[element]++
}

// empty reads what is in the pipe. The pipe is locked.
func (p *pipe) empty() []byte {
	var all []byte
	buf := make([]byte, 1<<16)
	for len(all) < maxPending*abi.AsyncEventLen {
		n, err := unix.Read(p.back, buf)
		if err != nil || n == 0 {
			break
		}
		all = append(all, buf[:n]...)
	}
	return all
}

// close ends the pipe. The program sees its end.
func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.forget()
	unix.Close(p.back)
	if !p.ended {
		unix.Close(p.fd)
	}
}

// known reports whether libibverbs knows an event.
func known(e ib.Event) bool { return e <= ib.EventGIDChange }
