//go:build !portable

package lease

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// patience is how long an owner may take to answer.
const patience = 5 * time.Second

// mostShards is more than an owner has slots.
const mostShards = 128

// Lease is a part of a port that an owner has leased to this process. It ends
// when its links are closed, or when the owner ends: then the links fail.
type Lease struct {
	conn  *net.UnixConn
	grant Grant
	links []transport.Link
	raw   []*udp.Link
	open  atomic.Int32         // links that are not closed
	use   func() transport.Use // of the device; under mu
	over  chan struct{}        // closed when the lease has ended
	reply answers              // to requests
	turn  chan struct{}        // held by the request that waits
	mu    sync.Mutex           // guards use
	once  sync.Once            // of end
	stray strayer              // sends what came astray
	wants chan Want            // of keys
}

// Open asks the owner of an address for a lease. The error is ErrNoOwner if
// there is none that can be asked, or else says what the owner refuses. An
// owner that has ended without closing, because it was killed, is perhaps about
// to be started again. Open waits for that, for half a second: a process that
// bound the port meanwhile would keep the new owner out.
func Open(addr netip.Addr, c Config) (*Lease, error) {
	if a, err := udp.Resolve(addr.String()); err == nil {
		addr = a // with its zone
	}
	for end := time.Now().Add(restartTime); ; {
		l, err := openAnywhere(SocketName(addr, c.UDP.Port), &c)
		if !errors.Is(err, errAbandoned) || time.Now().After(end) {
			return l, err
		}
		<-time.After(restartLook)
	}
}

const (
	restartTime = 500 * time.Millisecond
	restartLook = 10 * time.Millisecond
)

// errAbandoned says that an owner has ended without closing.
var errAbandoned = fmt.Errorf("%w any more", ErrNoOwner)

// openAnywhere is OpenAt of the first place where there is an owner.
func openAnywhere(name string, c *Config) (*Lease, error) {
	none := ErrNoOwner
	for _, p := range places() {
		l, err := OpenAt(filepath.Join(p.dir, name), *c)
		switch {
		case errors.Is(err, errAbandoned):
			none = errAbandoned
		case errors.Is(err, ErrNoOwner):
		case err != nil:
			return nil, err
		case p.here && l.grant.Namespace != udp.OwnNamespace():
			l.end()
		default:
			return l, nil
		}
	}
	return nil, none
}

// OpenAt is Open of an owner whose socket has the path. An owner that is asked
// by very many at once lets go of those that are slow to ask, which try again.
// So does one whose slots rest: that of a process that has ended is free again
// after 2 s, most often.
func OpenAt(path string, c Config) (*Lease, error) {
	end := time.Now().Add(patience)
	for {
		l, err := openOnce(path, c)
		no := (*Refusal)(nil)
		rests := errors.As(err, &no) && no.Reason == Resting
		if !rests && !errors.Is(err, errNoAnswer) || time.Now().After(end) {
			return l, err
		}
		pause := mostPause
		if rests {
			pause = restPause
		}
		<-time.After(time.Millisecond + rand.N(pause))
	}
}

// mostPause is between two tries, restPause while slots rest.
const (
	mostPause = 20 * time.Millisecond
	restPause = 200 * time.Millisecond
)

var errNoAnswer = errors.New("it has closed the connection without an answer")

func openOnce(path string, c Config) (*Lease, error) {
	conn, err := Dial(path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, errAbandoned
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, ErrNoOwner
	case errors.Is(err, fs.ErrPermission):
		return nil, ErrNoOwner // if it has the port, binding that says so
	case err != nil:
		return nil, fmt.Errorf("lease: ask the port's owner at %s: %w", path, err)
	}
	who := ownerOf(conn)
	l, err := open(conn, &c)
	if err != nil {
		return nil, fmt.Errorf("lease: ask the port's owner (%s) at %s: %w", who, path, err)
	}
	return l, nil
}

// OwnerPID returns the process that owns the port of an address and can be
// asked for a lease, 0 if none is visible here. It asks for nothing.
func OwnerPID(addr netip.Addr, port uint16) int {
	for _, p := range places() {
		conn, err := Dial(filepath.Join(p.dir, SocketName(addr, port)))
		if err != nil {
			continue
		}
		pid := pidOf(conn)
		conn.Close()
		if pid != 0 {
			return pid
		}
	}
	return 0
}

// DialOwners connects to each owner of a port of that name that is found: one,
// or several where directories are shared by network namespaces.
func DialOwners(addr netip.Addr, port uint16) (list []*net.UnixConn) {
	for _, p := range places() {
		if conn, err := Dial(filepath.Join(p.dir, SocketName(addr, port))); err == nil {
			list = append(list, conn)
		}
	}
	return list
}

// ownerOf names the process at the other end, as far as it is visible.
func ownerOf(conn *net.UnixConn) string {
	if pid := pidOf(conn); pid != 0 {
		return fmt.Sprintf("process %d", pid)
	}
	return "a process that is not visible here"
}

// pidOf returns the process at the other end, 0 if it is not visible here.
func pidOf(conn *net.UnixConn) (pid int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// open takes over conn.
func open(conn *net.UnixConn, c *Config) (*Lease, error) {
	shards := cmp.Or(c.Shards, 1)
	grant, fds, table, err := ask(conn, &Hello{Version: Version, Shards: shards, RecvBuffer: c.UDP.RecvBuffer, SendBuffer: c.UDP.SendBuffer,
		Command: filepath.Base(os.Args[0]), Run: ownRun()})
	if err != nil {
		conn.Close()
		return nil, err
	}
	raw, err := udp.Adopt(fds, udp.Adopted{Local: grant.Local, Scope: grant.Scope, LinkMTU: grant.LinkMTU, Namespace: grant.Namespace}, c.UDP)
	if err != nil {
		conn.Close()
		return nil, err
	}
	l := &Lease{conn: conn, grant: *grant, raw: raw, over: make(chan struct{}), reply: newAnswers(), turn: make(chan struct{}, 1)}
	l.open.Store(int32(len(raw)))
	l.stray.init(raw[0], grant)
	local := grant.Local.Addr().WithZone("")
	for i, u := range raw {
		l.links = append(l.links, l.secure(newLink(u, l, local), i, table))
	}
	go l.serve()
	return l, nil
}

// ask says what is wanted, and takes the answer with the descriptors of
// sockets, and the table of keys if the port is secured.
func ask(conn *net.UnixConn, h *Hello) (*Grant, []int, *guard.Table, error) {
	if h.Shards > mostShards {
		return nil, nil, nil, fmt.Errorf("%d shards: an owner leases %d sockets at most", h.Shards, mostShards)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, nil, err
	}
	if _, err := conn.Write((&Message{Hello: h}).Append(nil)); err != nil {
		return nil, nil, nil, noAnswer(err)
	}
	b, control := make([]byte, MaxMessage+1), make([]byte, unix.CmsgSpace(4*(h.Shards+1)))
	n, cn, flags, _, err := conn.ReadMsgUnix(b, control)
	switch {
	case err != nil:
		return nil, nil, nil, noAnswer(err)
	case n == 0:
		return nil, nil, nil, errNoAnswer
	}
	fds := descriptors(control[:cn])
	m, err := Parse(b[:n])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errFiles
	}
	if err == nil {
		err = checkGrant(m, h, len(fds))
	}
	var table *guard.Table
	if err == nil && m.Grant.Secured {
		table, err = guard.MapTable(fds[h.Shards])
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, nil, nil, err
	}
	for _, fd := range fds[h.Shards:] { // that of the table, which is mapped
		unix.Close(fd)
	}
	return m.Grant, fds[:h.Shards], table, nil
}

var errFiles = fmt.Errorf("the sockets cannot be taken over: %w: close some, or raise the limit (ulimit -n)", unix.EMFILE)

// noAnswer tells an end of the connection from other errors.
func noAnswer(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return errNoAnswer
	}
	return silent(err)
}

// silent says what it means that an owner does not answer.
func silent(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it does not answer within %v; is the process stopped?", patience)
	}
	return err
}

// descriptors returns those that came with a message.
func descriptors(control []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds
}

var errGrant = errors.New("its answer makes no sense")

// checkGrant says why an answer is no lease.
func checkGrant(m *Message, h *Hello, fds int) error {
	switch g := m.Grant; {
	case m.Refused != nil:
		return m.Refused
	case g == nil:
		return errGrant
	case g.Version != Version:
		return fmt.Errorf("it speaks version %d of the protocol, this program %d: use the same release of both", g.Version, Version)
	case !g.Secured && fds != h.Shards, g.Secured && fds != h.Shards+1, g.Slots < 2, g.Slots&(g.Slots-1) != 0, g.Slots > mostSlots,
		g.Slot < 0, g.Slot+h.Shards > g.Slots, g.Slot%h.Shards != 0, !g.Local.IsValid():
		return errGrant
	}
	return nil
}

// mostSlots is as many as there are numbers of a byte, in which connection
// managers have the slot.
const mostSlots = 256

// Links returns a link for each shard. Closing them ends the lease.
func (l *Lease) Links() []transport.Link { return l.links }

// serve takes what the owner sends, until the lease ends.
func (l *Lease) serve() {
	defer l.end()
	b := make([]byte, MaxMessage+1)
	for {
		n, err := l.conn.Read(b)
		if err != nil || n == 0 {
			return
		}
		m, err := Parse(b[:n])
		switch {
		case err != nil:
			return
		case m.Ask:
			if !l.tell(false) {
				return
			}
		case m.Done, m.Refused != nil:
			l.reply.came(m)
		}
	}
}

// end ends the lease. The links fail, and with them the device.
func (l *Lease) end() {
	l.once.Do(func() {
		close(l.over)
		l.tell(true)
		l.conn.Close()
		for _, u := range l.raw {
			_ = u.Close()
		}
		l.stray.close()
	})
}

// partingTime is how long an owner may take to see a lease end.
const partingTime = time.Second

// closed counts down the links, and ends the lease with the last one. It
// returns when the owner has passed on what was sent last: the DREQs of a
// program must not be lost if the owner ends with it.
func (l *Lease) closed() {
	if l.open.Add(-1) != 0 {
		return
	}
	if l.tell(true) && l.conn.CloseWrite() == nil {
		select {
		case <-l.over: // the owner has closed
		case <-time.After(partingTime):
		}
	}
	l.end()
}

// tell tells the owner the counters, the last ones where the lease ends. It
// does not wait.
func (l *Lease) tell(last bool) bool {
	var udp transport.LinkStats
	for _, u := range l.raw {
		s := u.Stats()
		udp.Add(&s)
	}
	l.mu.Lock()
	use := l.use
	l.mu.Unlock()
	c := countsOf(&udp, use)
	c.Last, c.Guard = last, l.guarded()
	return l.write(&Message{Tell: c}) == nil
}

func (l *Lease) write(m *Message) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := l.conn.Write(m.Append(nil))
	return err
}

// request sends a message and waits for the answer.
func (l *Lease) request(m *Message) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-l.over:
		return errOver
	case <-late.C:
		return silent(os.ErrDeadlineExceeded)
	}
	l.reply.expect()
	if err := l.write(m); err != nil {
		return errOver
	}
	select {
	case r := <-l.reply.c:
		return r.refusal()
	case <-l.over:
		return errOver
	case <-late.C:
	}
	if r := l.reply.giveUp(); r != nil {
		return r.refusal()
	}
	return silent(os.ErrDeadlineExceeded)
}

var errOver = fmt.Errorf("lease: the port's owner has ended, or the device is closed: %w", transport.ErrClosed)
