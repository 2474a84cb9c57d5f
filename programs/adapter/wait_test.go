//go:build linux && cgo

package main

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/verbs"
)

// stub is a file of a device that does nothing.
type stub struct {
	of     *device
	closed *bool
}

func (s stub) command([]byte) abi.Reply { return abi.Reply{} }
func (s stub) response([]byte) int      { return 0 }
func (s stub) waitsFor() *device        { return s.of }
func (s stub) news() uint64             { return 0 }
func (s stub) doorbells() uintptr       { return 0 }
func (s stub) files() []int             { return nil }
func (s stub) close() {
	if s.closed != nil {
		*s.closed = true
	}
}

// testThread is the number of the thread that waits.
const testThread = 7

// waitFor begins a wait, and reports whether it receives.
func waitFor(handle uint64) bool {
	var fds [8]pollFD
	timeout := int64(-1)
	return beginWait(handle, fds[:], &timeout, testThread) > 0
}

// A thread waits for a file, and another one closes that meanwhile. Then others
// receive for the device, as after any wait.
func TestFileIsClosedWhileAThreadWaits(t *testing.T) {
	t.Parallel()
	n := rand.Uint32()
	addr := netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
	dev, err := verbs.OpenAddr(addr, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &device{verbs: dev, core: verbs.HCA(dev)}
	first, second := handles.add(stub{of: d}), handles.add(stub{of: d})
	defer handles.take(second)
	wire, err := net.Dial("udp", netip.AddrPortFrom(addr, 4791).String())
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	// The device's own receiver gives way when it learns that others
	// receive.
	receives := func(handle uint64) {
		for !waitFor(handle) {
			d.core.Program().Tell()
			if _, err := wire.Write(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			endWait(handle, testThread)
			runtime.Gosched()
		}
	}
	receives(first)
	if waitFor(second) {
		t.Fatal("two threads receive")
	}
	handles.take(first)
	endWait(second, testThread)
	endWait(first, testThread)
	receives(second)
	endWait(second, testThread)
}

// A wait for a file that is gone is none.
func TestWaitForNothing(t *testing.T) {
	t.Parallel()
	if waitFor(1 << 40) {
		t.Error("it receives for no device")
	}
	endWait(1<<40, testThread)
}

// A file that has no place is closed, and so is the number that the program
// would have got.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	var of table
	for range mostFiles {
		if _, errno := of.enter(stub{}, -1); errno != 0 {
			t.Fatal(errno)
		}
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	closed := false
	if handle, errno := of.enter(stub{closed: &closed}, ends[1]); handle != 0 || errno != unix.EMFILE || !closed {
		t.Errorf("handle %d, %v, closed: %v", handle, errno, closed)
	}
	if n, err := unix.Read(ends[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("its number is open: %d, %v", n, err)
	}
}
