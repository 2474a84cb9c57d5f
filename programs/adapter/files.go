//go:build linux && cgo

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs"
)

// ownFiles are the files that this library has for itself: the program must not
// close them, and a child of it must.
var ownFiles runtimeFiles

// runtimeFiles are those that Go's runtime has.
type runtimeFiles struct {
	mu  sync.Mutex
	fds []int
}

// begin has the runtime open what it waits with, and looks which that are: two
// of the lowest numbers that are free.
func (r *runtimeFiles) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := lowest()
	a, b, err := os.Pipe()
	if err != nil {
		return
	}
	a.Close()
	b.Close()
	r.fds = slices.DeleteFunc(free, func(fd int) bool { return !isWaitFile(fd) })
}

// lowest returns some numbers that are free. Other threads of the program may
// take one of them.
func lowest() (free []int) {
	for range 8 {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			break
		}
		defer unix.Close(fd)
		free = append(free, fd)
	}
	return free
}

// isWaitFile reports whether a number is of an epoll instance or an eventfd.
func isWaitFile(fd int) bool {
	to, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err == nil && (strings.HasPrefix(to, "anon_inode:[eventpoll]") || strings.HasPrefix(to, "anon_inode:[eventfd]"))
}

// list returns all of them.
func (r *runtimeFiles) list() []int {
	r.mu.Lock()
	all := append([]int(nil), r.fds...)
	r.mu.Unlock()
	all = append(all, uverbs.Files()...)
	for _, f := range handles.all() {
		all = append(all, f.files()...)
	}
	devices.Lock()
	defer devices.Unlock()
	for _, d := range devices.open {
		all = append(all, d.core.Program().Files()...)
	}
	return all
}
