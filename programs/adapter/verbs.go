//go:build linux && cgo

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// verbsFile is an open file of a device.
type verbsFile struct {
	*device
	client *uverbs.Client
}

// openVerbs opens a device file, and returns the number that the program gets.
func openVerbs(path string, flags int) (file, int, error) {
	n, err := readNode(path)
	if err != nil {
		return nil, 0, err
	}
	d, err := use(n)
	if err != nil {
		return nil, 0, err
	}
	c, err := d.served().Open()
	if err != nil {
		d.release()
		return nil, 0, err
	}
	f := &verbsFile{d, c}
	fd, err := duplicate(c.Memory(), flags)
	if err != nil {
		f.close()
		return nil, 0, err
	}
	return f, fd, nil
}

// duplicate returns another number for a file, which is the program's.
func duplicate(fd, flags int) (int, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil && flags&unix.O_NONBLOCK != 0 {
		err = unix.SetNonblock(fd, true)
	}
	return fd, err
}

// poll looks for packets.
func (f *verbsFile) poll() bool {
	f.client.PostLeft()
	return f.core.Program().Poll()
}

func (f *verbsFile) doorbells() uintptr { return uintptr(unsafe.Pointer(f.client.Doorbells())) }

func (f *verbsFile) command(b []byte) abi.Reply { return f.client.Command(b) }
func (f *verbsFile) response(b []byte) int      { return responseOf(b) }
func (f *verbsFile) waitsFor() *device          { return f.device }
func (f *verbsFile) news() uint64               { return f.client.Events() }
func (f *verbsFile) files() []int               { return append(f.client.Files(), f.client.Memory()) }

func (f *verbsFile) close() {
	_ = f.client.Close()
	f.device.release()
}
