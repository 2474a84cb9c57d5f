//go:build !portable

package owner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport/lease"
)

// door is a Unix socket where processes ask.
type door struct {
	*net.UnixListener
	dir   *os.File // all goes through its descriptor, which is short as a socket's address must be
	name  string
	inode uint64
}

// directories returns where the doors of an owner are: where the configuration
// says, and where processes of the user look.
func (c *Config) directories() (list []string) {
	if c.Dir != "" {
		list = append(list, c.Dir)
	}
	return append(list, lease.UserDirs()...)
}

// name is that of the socket.
func (c *Config) name() string { return lease.SocketName(c.Addr, c.UDP.Port) }

// abandoned reports whether there is a socket without a listener: an owner
// has ended.
func (c *Config) abandoned() bool {
	for _, path := range c.directories() {
		conn, err := lease.Dial(filepath.Join(path, c.name()))
		switch {
		case err == nil:
			conn.Close() // an owner lives
		case errors.Is(err, unix.ECONNREFUSED):
			return true
		}
	}
	return false
}

// openDoors listens in every directory that can be used, and in Config.Dir.
func (o *Owner) openDoors() error {
	o.cfg.Addr = o.slots.Local().Addr() // with its zone
	var last error
	for _, path := range o.cfg.directories() {
		d, err := o.cfg.openDoor(path)
		if err == nil {
			o.doors = append(o.doors, d)
			continue
		}
		last = fmt.Errorf("listen for processes in %s: %w", path, err)
		if path == o.cfg.Dir {
			return last
		}
		o.log.Warn("processes do not find the port's owner there", "directory", path, "err", err)
	}
	if len(o.doors) == 0 {
		return last
	}
	return nil
}

// openDoor makes a socket in a directory. One that is there is of an owner that
// has ended: this one has the port.
func (c *Config) openDoor(path string) (*door, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := &door{dir: dir, name: c.name()}
	if err := d.listen(c.Allow != nil); err != nil {
		dir.Close()
		return nil, err
	}
	return d, nil
}

// path returns how to reach a file of the directory.
func (d *door) path(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.dir.Fd(), name) }

// listen makes the socket, which gets its name when it can be connected to. So
// one that refuses is of a process that has ended.
func (d *door) listen(everybody bool) (err error) {
	var random [8]byte
	rand.Read(random[:])
	temp := ".new-" + hex.EncodeToString(random[:])
	if d.UnixListener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: d.path(temp), Net: "unixpacket"}); err != nil {
		return err
	}
	d.SetUnlinkOnClose(false)
	mode := os.FileMode(0o600)
	if everybody {
		mode = 0o666
	}
	fd := int(d.dir.Fd())
	if err = os.Chmod(d.path(temp), mode); err == nil {
		d.inode = d.inodeOf(temp)
		err = os.NewSyscallError("renameat", unix.Renameat(fd, temp, fd, d.name))
	}
	if err != nil {
		_ = unix.Unlinkat(fd, temp, 0)
		d.UnixListener.Close()
	}
	return err
}

// socket returns the path of the socket, for those that have it from here.
func (d *door) socket() string { return filepath.Join(d.dir.Name(), d.name) }

func (d *door) inodeOf(name string) uint64 {
	var st unix.Stat_t
	if unix.Fstatat(int(d.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Ino
}

// close ends listening, and takes the socket away if it is still there.
func (d *door) close() error {
	if d.inodeOf(d.name) == d.inode {
		_ = unix.Unlinkat(int(d.dir.Fd()), d.name, 0)
	}
	return errors.Join(d.UnixListener.Close(), d.dir.Close())
}
