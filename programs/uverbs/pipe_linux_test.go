package uverbs

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// records returns what a program finds in a pipe of completion events.
func records(t *testing.T, fd int) (list []uint64) {
	t.Helper()
	b := make([]byte, 1<<16)
	n, err := unix.Read(fd, b)
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	for b = b[:max(n, 0)]; len(b) > 0; b = b[8:] {
		list = append(list, binary.LittleEndian.Uint64(b))
	}
	return list
}

// Events that are taken back are those of one object, also those that had no
// room in the pipe. One that is on its way then does not come.
func TestPipe(t *testing.T) {
	t.Parallel()
	p, fd, err := newPipe(8)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	a, b := new(tally), new(tally)
	send := func(n int) {
		for range n {
			p.send(record{element: 1, of: a})
			p.send(record{element: 2, of: b})
		}
	}
	send(3)
	if got := records(t, fd); len(got) != 6 {
		t.Errorf("%d events, want 6", len(got))
	}
	send(1 << 14) // more than the pipe holds
	if n := p.takeBack(1, a); n != 3 {
		t.Errorf("%d events were read, want 3", n)
	}
	p.send(record{element: 1, of: a})
	n := 0
	for list := records(t, fd); len(list) > 0; list = records(t, fd) {
		for _, e := range list {
			if e != 2 {
				t.Fatalf("an event of %d", e)
			}
			n++
		}
		p.retry()
	}
	if n != 1<<14 {
		t.Errorf("%d events of the other, want %d", n, 1<<14)
	}
	if len(p.pending)+len(p.alike) != 0 {
		t.Errorf("%d events are kept", len(p.pending)+len(p.alike))
	}
	if p.abandoned() {
		t.Error("the program has its end")
	}
	unix.Close(fd)
	p.abandon()
	if !p.abandoned() {
		t.Error("the program has closed its end")
	}
	p.send(record{element: 2, of: b})
}

// A program that does not read costs no more than what its events are of.
func TestPipeOfManyEvents(t *testing.T) {
	t.Parallel()
	p, fd, err := newPipe(8)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		t.Fatal(err)
	}
	a, b := new(tally), new(tally)
	for range 1 << 17 {
		p.send(record{element: 1, of: a})
		p.send(record{element: 2, of: b})
	}
	if there, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil || there > 2*pipeRoom {
		t.Errorf("%d bytes are in the pipe, %v", there, err)
	}
	kept := func() (events, names int) {
		p.mu.Lock() // a timer tries again what has found no room
		defer p.mu.Unlock()
		return len(p.pending), len(p.alike)
	}
	if n, _ := kept(); n != 2 {
		t.Errorf("%d events are kept apart", n)
	}
	p.takeBack(1, a)
	if n, names := kept(); n != 1 || names != 1 {
		t.Errorf("%d events are kept, %d by name", n, names)
	}
}

// A pipe that has ended shows that after what was in it. An object that goes
// leaves the counts of others right, whose events cannot be put back.
func TestPipeEnds(t *testing.T) {
	t.Parallel()
	p, fd, err := newPipe(8)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	defer unix.Close(fd)
	var a, b tally
	p.send(record{element: 1, of: &a})
	p.send(record{element: 2, of: &b})
	p.send(record{element: 2, of: &b})
	p.end()
	p.end()
	p.send(record{element: 1, of: &a})
	buf := make([]byte, 8)
	if n, err := unix.Read(fd, buf); n != 8 || buf[0] != 1 {
		t.Fatalf("%d bytes, %v: %x", n, err, buf)
	}
	if n := p.takeBack(1, &a); n != 1 {
		t.Errorf("%d events of an object are reported, 1 was read", n)
	}
	if n, err := unix.Read(fd, buf); n != 0 || err != nil {
		t.Errorf("%d bytes, %v; want the end", n, err)
	}
	if n := p.takeBack(2, &b); n != 0 {
		t.Errorf("%d events of an object are reported, none was read", n)
	}
	if got := p.files(); len(got) != 1 {
		t.Errorf("files %v", got)
	}
}
