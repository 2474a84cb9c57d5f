package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/loglimit"
	"github.com/gosoftroce/rocev2/uverbs"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// Opener opens a device file for a program.
type Opener interface {
	// Open returns an error number of package abi or of the system, or
	// another error that the log shows and the program sees as ENODEV.
	Open(p Peer) (File, error)
}

// File is an open device file.
type File interface {
	// Command takes what a process wrote. Several may write at once.
	Command(p Peer, b []byte) abi.Reply

	// Visible is what the program gets as the file, and Bell what wakes
	// the file's goroutine; nil where it needs none.
	Visible() abi.File
	Bell() abi.File

	// Close frees everything that the program had.
	Close() error
}

// What a File may also do.
type (
	attacher interface { // other processes write commands, too
		Attach(p Peer) error
		Detach(p Peer)
	}
	forgetter interface{ ForgetChannel(handle uint32) }
	importer  interface { // contexts of one file
		Import(p Peer, b []byte) abi.Reply
		HasPD(handle uint32) bool
		Keys(handle uint32) (lkey, rkey uint32, length uint64, ok bool)
	}
	mapper interface { // memory of a process is that of a file
		Map(p Peer, fd int, addr, n, off uint64) error
		Unmap(p Peer, addr, n uint64) error
	}
	freezer interface { // threads of a process stop until thaw is called
		Freeze(p Peer, except int) (thaw func(), err error)
	}
)

// Config is how a host serves programs.
type Config struct {
	// Dir is the directory with the socket and the tree of files.
	Dir string

	// Allow reports whether a user may open devices. Nil means everybody
	// whom the permissions of Dir let in.
	Allow func(uid uint32) bool

	// MaxConnections bounds the open device files of all programs, and
	// MaxPerUser those of one user (root's are not counted). 0 means 4096
	// and 1024, or less where the system grants few files.
	MaxConnections, MaxPerUser int

	// Quota is how much each open file of a device may hold, and User how
	// much all of a user may. Where User says nothing there is no limit for
	// root and the user of the daemon, and a generous one for others.
	Quota uverbs.Quota
	User  quota.Limits

	// Hardware has programs see the RDMA devices of the kernel, too.
	Hardware bool

	Log *slog.Logger // nil: none
}

// Host serves programs. Its methods may be called from any goroutine.
type Host struct {
	config   Config
	log      *slog.Logger
	listener *net.UnixListener
	lock     *os.File
	tree     tree

	mu       sync.Mutex
	openers  map[string]Opener
	sessions map[*session]struct{}
	users    map[uint32]int
	unknown  int // sessions of users who may not use devices
	accounts map[uint32]*quota.Account
	turns    map[uint32]turns
	all      *quota.Account // of all users
	files    map[inode]*openFile
	tokens   uint32
	devices  []*device
	idle     chan struct{} // closed while nobody is connected
	visited  chan struct{} // closed when somebody has been for the first time
	closed   bool
	leaving  bool // Wait has returned because nobody was connected

	foreigners map[foreigner]*known // processes without a number here
	foreign    int                  // of them there have been

	refreshing sync.Mutex
	refreshed  time.Time // what the tree says of ports and counters

	wg      sync.WaitGroup
	refused undertaker
	logged  loglimit.Limit
}

// inode is the identity of a file.
type inode struct{ dev, ino uint64 }

// openFile is a device file that one or more processes have open.
type openFile struct {
	File
	id    inode
	name  string
	token uint32
	uid   uint32 // who has opened it

	// Guarded by the host's mu:
	uses      int  // sessions
	lent      int  // how often it is on its way to another process
	inherited bool // exec keeps it
}

// ErrInUse is wrapped by the error of Listen where another process serves the
// directory.
var ErrInUse = errors.New("another daemon serves this directory")

// ErrRefused is wrapped by the error of Hold where the daemon does not serve
// programs of this user.
var ErrRefused = errors.New("the daemon serves no programs of this user: its configuration says whose (programs.users)")

// maxSocketPath is what a Unix socket's address has room for.
const maxSocketPath = 107

// Listen makes the directory and its socket. Programs find no device before
// AddVerbs.
func Listen(c Config) (*Host, error) {
	if c.MaxConnections == 0 {
		c.MaxConnections = 4096
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	h := &Host{config: c, log: log, tree: tree{dir: c.Dir, hardware: c.Hardware}, openers: map[string]Opener{}, sessions: map[*session]struct{}{},
		users: map[uint32]int{}, accounts: map[uint32]*quota.Account{}, turns: map[uint32]turns{}, all: quota.New("the daemon", nil, quota.Limits{quota.Mappings: maxMappings()}),
		files: map[inode]*openFile{}, idle: make(chan struct{}), visited: make(chan struct{})}
	close(h.idle)
	if err := h.listen(); err != nil {
		if h.lock != nil {
			h.lock.Close()
		}
		return nil, fmt.Errorf("serve programs in %s: %w", c.Dir, err)
	}
	preferWakeups()
	h.wg.Go(h.accept)
	return h, nil
}

func (h *Host) listen() (err error) {
	path := filepath.Join(h.config.Dir, "socket")
	if !filepath.IsAbs(path) {
		return errors.New("the directory must be an absolute path")
	}
	if len(path) > maxSocketPath {
		return fmt.Errorf("the path of the socket has %d bytes; a Unix socket's has at most %d: use a shorter directory", len(path), maxSocketPath)
	}
	if err := makeFolder(h.config.Dir); err != nil {
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
	h.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o666) // Allow and the directory decide
}

// lockFile holds a file for as long as the process lives.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
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
	// Whoever had it may have removed it meanwhile.
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

// add has a device file served.
func (h *Host) add(name string, o Opener) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.openers[name] != nil {
		return fmt.Errorf("there is a device file %s already", name)
	}
	h.openers[name] = o
	return h.tree.node(name)
}

// AddVerbs makes a device visible to programs, whose files o opens.
func (h *Host) AddVerbs(a Attributes, o Opener) error {
	if err := h.tree.device(a); err != nil {
		return err
	}
	return h.add(a.node(), o)
}

// AddCM has programs find the connection manager, whose files o opens.
func (h *Host) AddCM(o Opener) error {
	if err := h.tree.manager(); err != nil {
		return err
	}
	return h.add(cmNode, o)
}

// Wait returns when nobody has been connected for a time (quiet), or when ctx
// ends. In the first case nobody is let in afterwards: the host is to be
// closed. For the first one to connect it waits another time: whoever has
// started the host may be slow.
func (h *Host) Wait(ctx context.Context, first, quiet time.Duration) {
	select {
	case <-h.visited:
	case <-time.After(first):
	case <-ctx.Done():
		return
	}
	for {
		h.mu.Lock()
		idle := h.idle
		h.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		same := h.idle == idle && len(h.sessions) == 0
		h.leaving = h.leaving || same
		h.mu.Unlock()
		if same {
			return
		}
	}
}

// Close ends all sessions, frees what programs have, and removes the socket.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.wg.Wait()
		return nil
	}
	h.closed = true
	for s := range h.sessions {
		s.shutDown()
	}
	h.mu.Unlock()
	err := errors.Join(h.listener.Close(), h.end())
	for _, d := range h.devices {
		err = errors.Join(err, d.Close())
	}
	h.tree.remove()
	h.lock.Close()
	return err
}

// endTime is what sessions have to end.
const endTime = 20 * time.Second

// end waits for all sessions. One may be held up by its program, in closing a
// file that this has sent.
func (h *Host) end() error {
	ended := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(ended)
	}()
	timer := time.NewTimer(endTime)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return errors.New("programs: some sessions have not ended")
	}
}

func (h *Host) accept() {
	for {
		conn, err := h.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			h.log.Error("accept a program", "error", err)
			h.breathe()
			continue
		}
		h.admit(conn)
	}
}

// breathe lets time pass where files have run out.
func (h *Host) breathe() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	<-ctx.Done()
}

// maxStrangers is how many who may not use the devices are told so at once.
const maxStrangers = 64

// admit begins a session, if there is room for one.
func (h *Host) admit(conn *net.UnixConn) {
	s := &session{host: h, conn: conn}
	var err error
	if s.peer, err = credentials(conn); err != nil {
		conn.Close()
		return
	}
	uid := s.peer.UID
	s.stranger = h.config.Allow != nil && !h.config.Allow(uid)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.leaving || len(h.sessions) >= h.config.MaxConnections || h.users[uid] >= h.connections(uid) ||
		s.stranger && h.unknown >= maxStrangers {
		if !h.closed && !h.leaving && !s.stranger {
			h.warn("too many open device files", s.peer)
		}
		h.refused.take(s)
		return
	}
	s.forgetForeigner()
	if s.stranger {
		h.unknown++
	}
	if len(h.sessions) == 0 {
		h.idle = make(chan struct{})
		select {
		case <-h.visited:
		default:
			close(h.visited)
		}
	}
	s.turns = h.turnsOf(uid)
	h.sessions[s] = struct{}{}
	h.users[uid]++
	h.wg.Go(s.run)
}

// leave is the end of a session.
func (h *Host) leave(s *session) {
	s.hangUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	if h.users[s.peer.UID]--; h.users[s.peer.UID] == 0 {
		delete(h.users, s.peer.UID)
		delete(h.turns, s.peer.UID)
		if h.accounts[s.peer.UID].Empty() { // or what is left counts when he comes again
			delete(h.accounts, s.peer.UID)
		}
	}
	if s.stranger {
		h.unknown--
	}
	if len(h.sessions) == 0 {
		close(h.idle)
	}
}
