package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport/owner"
)

// Config is how a host serves programs.
type Config struct {
	// Dir is the directory: an absolute path, short enough for the name of
	// a Unix socket in it.
	Dir string

	// Allow reports whether another user's programs may use the devices.
	// Nil allows no others than the user of this process.
	Allow func(uid uint32) bool

	// Quota bounds each lease, see owner.Quota.
	Quota owner.Quota

	// Hardware has programs see the RDMA devices of the kernel, too.
	Hardware bool

	Log *slog.Logger // nil: none
}

// Host is the directory of programs. Its methods may be called from any
// goroutine.
type Host struct {
	config Config
	log    *slog.Logger
	lock   *os.File
	tree   tree
	door   *net.UnixListener // for Hold
	eyes   *eyes             // nil: the system cannot tell of reads

	mu      sync.Mutex
	devices []*device
	holders map[net.Conn]struct{}
	changed chan struct{} // closed when a holder or a lease comes or goes
	ready   bool          // processes may hold the host
	came    bool          // a process has been there
	leaving bool          // Wait has returned: no more are let in
	closed  bool

	done       chan struct{} // closed by Close
	refreshing sync.Mutex
	wg         sync.WaitGroup
}

// ErrInUse is wrapped by the error of Listen where another process serves the
// directory.
var ErrInUse = errors.New("another daemon serves this directory")

// maxSocketPath is what a Unix socket's address has room for.
const maxSocketPath = 107

// Listen makes the directory. Programs find no device before Ready.
func Listen(c Config) (*Host, error) {
	h := &Host{config: c, log: c.Log, tree: tree{dir: c.Dir, hardware: c.Hardware}, holders: map[net.Conn]struct{}{}, changed: make(chan struct{}), done: make(chan struct{})}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if err := h.listen(); err != nil {
		if h.lock != nil {
			h.lock.Close()
		}
		return nil, fmt.Errorf("serve programs in %s: %w", c.Dir, err)
	}
	return h, nil
}

// Ready has programs find the devices that are there, all at once, and lets
// processes hold the host. Until then Hold waits, and a program that looks for
// devices.
func (h *Host) Ready() error {
	h.refreshing.Lock()
	defer h.refreshing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready || h.closed {
		return nil
	}
	if err := h.tree.show(); err != nil {
		return fmt.Errorf("serve programs in %s: %w", h.config.Dir, err)
	}
	h.ready = true
	h.wg.Go(h.accept)
	return nil
}

func (h *Host) listen() (err error) {
	path := filepath.Join(h.config.Dir, holdSocket)
	if !filepath.IsAbs(path) {
		return errors.New("the directory must be an absolute path")
	}
	if len(path) > maxSocketPath {
		return fmt.Errorf("the path of the socket has %d bytes; a Unix socket's has at most %d: use a shorter directory", len(path), maxSocketPath)
	}
	if err := makeFolder(h.config.Dir); err != nil {
		return err
	}
	if err := h.trust(h.config.Dir); err != nil {
		return err
	}
	if h.lock, err = lockFile(filepath.Join(h.config.Dir, "lock")); err != nil {
		return err
	}
	if err := h.tree.begin(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	h.door, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o666) // Allow decides
}

// trust returns an error for a directory of another user, who could put
// something else in the place of what the host makes. One that others may
// write, as a volume of a pod, is worth a warning.
func (h *Host) trust(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		if st, err = os.Stat(dir); err != nil {
			return err
		}
	}
	var u unix.Stat_t
	if err := unix.Stat(dir, &u); err != nil {
		return os.NewSyscallError("stat", err)
	}
	switch {
	case !st.IsDir():
		return unix.ENOTDIR
	case u.Uid != 0 && u.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("the directory belongs to user %d, who could put other devices there: use one of your own", u.Uid)
	case st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0:
		h.log.Warn("other users may write to the directory of programs, and put other devices there: chmod go-w, if there are others", "directory", dir)
	}
	return nil
}

// lockFile holds a file for as long as the process lives.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, err
	}
	// The process that had it may have removed it meanwhile.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(name); err == nil && !os.SameFile(held, there) || errors.Is(err, os.ErrNotExist) {
			err = ErrInUse
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// PortDir returns the directory of the owners' sockets.
func (h *Host) PortDir() string { return filepath.Join(h.config.Dir, "port") }

// allows reports whether a user's programs may use the devices.
func (h *Host) allows(uid uint32) bool {
	return uid == uint32(os.Geteuid()) || h.config.Allow != nil && h.config.Allow(uid)
}

// changes tells Wait that something has come or gone. The host is locked.
func (h *Host) changes() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// leasesChange is owner.Config.Changed.
func (h *Host) leasesChange() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes()
}

// idle reports whether no process holds the host, and none has a lease but
// this one.
func (h *Host) idle() bool {
	h.mu.Lock()
	holders, devices := len(h.holders), slices.Clone(h.devices)
	h.mu.Unlock()
	if holders > 0 {
		return false
	}
	for _, d := range devices {
		if d.port != nil && d.port.Stats().Leases > 1 {
			return false
		}
	}
	return true
}

// Close removes the directory, and closes the devices that the host has opened,
// with their owners: programs' devices fail.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.wg.Wait()
		return nil
	}
	h.closed = true
	close(h.done)
	for c := range h.holders {
		c.Close()
	}
	devices := h.devices
	h.mu.Unlock()
	err := h.door.Close()
	if h.eyes != nil {
		err = errors.Join(err, h.eyes.close())
	}
	h.wg.Wait()
	for _, d := range devices {
		if d.own {
			err = errors.Join(err, d.close())
		}
	}
	h.tree.remove()
	h.lock.Close()
	return err
}
