//go:build !portable

package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/userdir"
)

// directories returns where the sockets of this user may be. There may be
// several: a service and a shell of one user need not have the same
// environment.
func directories() (list []string) {
	if d := userdir.Runtime(); d != "" {
		list = append(list, filepath.Join(d, "rocev2"))
	}
	return append(list, filepath.Join(os.TempDir(), userdir.Name()))
}

// directory is one that only this user can enter. All goes through its
// descriptor, so it stays the one that was checked.
type directory struct{ f *os.File }

// openDirectory opens a directory, and makes it if it is not there.
func openDirectory(path string) (*directory, error) {
	f, err := userdir.Open(path)
	if err != nil {
		return nil, err
	}
	return &directory{f}, nil
}

func (d *directory) close() { d.f.Close() }

// path returns how to reach a file of the directory, whatever is at the
// directory's own path by now. It is short, as the address of a socket must be.
func (d *directory) path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.f.Fd(), name)
}

func (d *directory) dial(name string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: d.path(name), Net: "unixpacket"})
}

// listener is a socket in a directory.
type listener struct {
	*net.UnixListener
	dir   *directory
	names []string
	inode uint64
}

// unfinished begins the names of sockets that cannot be connected to yet. After
// a while their processes have ended.
const (
	unfinished     = ".new-"
	unfinishedLife = time.Minute
)

// listen makes a socket of these names. One that is there is of a process that
// has ended: two cannot have the same name, because they would have the same
// UDP port, or slot of it. The socket gets its names when it can be connected
// to. So one that refuses is of a process that has ended.
func (d *directory) listen(names ...string) (*listener, error) {
	defer d.lock(unix.LOCK_SH)()
	var random [8]byte
	rand.Read(random[:])
	temp := unfinished + hex.EncodeToString(random[:])
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: d.path(temp), Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	made := &listener{UnixListener: l, dir: d, inode: d.inode(temp)}
	fd := int(d.f.Fd())
	for i, name := range names {
		from, err := temp, error(nil)
		if i < len(names)-1 { // the last one takes the first name away
			from = temp + "+"
			err = os.NewSyscallError("linkat", unix.Linkat(fd, temp, fd, from, 0))
		}
		if err == nil {
			err = os.NewSyscallError("renameat", unix.Renameat(fd, from, fd, name))
		}
		if err != nil {
			_ = unix.Unlinkat(fd, from, 0)
			_ = unix.Unlinkat(fd, temp, 0)
			made.remove()
			return nil, err
		}
		made.names = append(made.names, name)
	}
	return made, nil
}

// remove ends listening, and takes the socket out of the directory if it is
// still there.
func (l *listener) remove() {
	for _, name := range l.names {
		if l.dir.inode(name) == l.inode {
			_ = unix.Unlinkat(int(l.dir.f.Fd()), name, 0)
		}
	}
	l.Close()
}

func (d *directory) inode(name string) uint64 {
	var st unix.Stat_t
	if unix.Fstatat(int(d.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Ino
}

// lock takes the lock of the directory, if it can be had at once: the process
// that holds it may be stopped. Without it a socket may be lost, and its peers
// use UDP.
func (d *directory) lock(how int) (unlock func()) {
	// A description of its own: those of one are not locked against each
	// other.
	fd, err := unix.Openat(int(d.f.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	if unix.Flock(fd, how|unix.LOCK_NB) != nil {
		unix.Close(fd)
		if how == unix.LOCK_EX {
			return nil
		}
		return func() {}
	}
	return func() { unix.Close(fd) }
}

// sweepNames is how many names one sweep looks at.
const sweepNames = 4 * maxSlots

// sweep takes out the sockets of processes that have ended without doing that
// themselves.
func (d *directory) sweep() {
	unlock := d.lock(unix.LOCK_EX)
	if unlock == nil {
		return
	}
	defer unlock()
	f, err := os.Open(d.path("."))
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(sweepNames) // at the end there is an error
	for _, name := range names {
		if !strings.HasPrefix(name, unfinished) && !strings.HasPrefix(name, socketPrefix) {
			continue
		}
		c, err := d.dial(name)
		if err == nil {
			c.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) && !d.beginning(name) {
			_ = unix.Unlinkat(int(d.f.Fd()), name, 0)
		}
	}
}

// beginning reports whether a socket may be one that another process is making,
// which may not have got the lock.
func (d *directory) beginning(name string) bool {
	if !strings.HasPrefix(name, unfinished) {
		return false
	}
	var st unix.Stat_t
	if unix.Fstatat(int(d.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return true
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	return age >= 0 && age < unfinishedLife
}
