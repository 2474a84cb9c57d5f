package programs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
)

// What a program has time for: to say hello, and to take an answer.
const (
	helloTime = 10 * time.Second
	replyTime = 10 * time.Second
)

// session is a connection: an open device file in one process.
type session struct {
	host *Host
	conn *net.UnixConn
	peer Peer
	file *openFile // nil before hello; set with the host's mu held

	attached bool // to what another process has opened

	thaw func() // lets threads go on that are stopped; or nil

	held      bool      // the connection is of who starts programs
	stranger  bool      // the user may not use devices
	foreigner foreigner // if it is one

	parting bool // the process has closed it; guarded by the host's mu
	turns   turns
}

// shutDown has the session end soon. It never waits.
func (s *session) shutDown() {
	_, _ = s.conn.CloseRead(), s.conn.CloseWrite()
}

// hangUp closes what the session itself has. It may wait for what is closed
// with it: files that the program has sent, and nobody has received.
func (s *session) hangUp() {
	s.conn.Close()
	if s.peer.life != nil {
		s.peer.life.Close()
	}
}

func (s *session) run() {
	defer s.host.leave(s)
	defer s.drop()
	defer s.linger()
	defer s.unfreeze()
	in, out := make([]byte, requestSize+maxPayload+1), make([]byte, 0, 1024)
	oob := make([]byte, unix.CmsgSpace(16*4))
	s.conn.SetReadDeadline(time.Now().Add(helloTime))
	for {
		if s.file != nil || s.held {
			s.conn.SetReadDeadline(time.Time{})
		}
		q, err := receive(s.conn, in, oob)
		if err != nil {
			s.ended(err)
			return
		}
		s.turns.begin()
		r, done, err := s.answer(q)
		s.turns.end()
		if err == nil {
			s.conn.SetWriteDeadline(time.Now().Add(replyTime))
			err = send(s.conn, r, out)
		}
		done()
		for _, f := range q.files {
			f.Close() // which may wait: no other session does for this one
		}
		if err != nil {
			s.ended(err)
			return
		}
		if s.stranger {
			return
		}
	}
}

// ended logs why a session ended, unless the program just closed the file.
func (s *session) ended(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return
	}
	s.host.warn("a program's device file is closed", s.peer, "error", err)
}

func nothing() {}

// answer handles a question. done is called when the answer is sent.
func (s *session) answer(q request) (r reply, done func(), err error) {
	done = nothing
	switch {
	case q.op == opHold && s.file == nil:
		if s.held = s.allowed(); !s.held {
			r = fail(unix.EACCES)
		}
	case q.op == opRefresh && s.file == nil:
		if s.allowed() {
			s.host.refresh()
		}
	case q.op == opHello && s.file == nil:
		r = s.hello(q)
	case q.op == opAttach && s.file == nil:
		r = s.attach(q)
	case s.file == nil:
		return r, done, errMalformed
	case q.op == opCommand:
		return s.commanded(s.file.Command(s.peer, q.payload))
	case q.op == opImport:
		return s.commanded(s.imported(q))
	case q.op == opMap || q.op == opUnmap:
		r = s.mapping(q)
	case q.op == opFreeze:
		r = s.freeze(int(int32(q.arg)))
	case q.op == opThaw:
		s.unfreeze()
	case q.op == opForget:
		if f, ok := s.file.File.(forgetter); ok {
			f.ForgetChannel(uint32(q.arg))
		}
	case q.op == opLend:
		s.lend(q.arg)
	case q.op == opBye:
		if s.bye(); !s.awaited() {
			s.drop()
		}
	default:
		return r, done, errMalformed
	}
	return r, done, nil
}

func (s *session) commanded(c abi.Reply) (r reply, done func(), err error) {
	return commandReply(c), func() { closeFiles(c.Files) }, nil
}

func closeFiles(files []abi.ReplyFile) {
	for _, f := range files {
		f.File.Close()
	}
}

func commandReply(c abi.Reply) reply {
	r := reply{ret: int32(c.N), resp: c.Resp}
	if c.Errno != 0 {
		r.ret = -int32(c.Errno)
	}
	if len(c.Files) > maxFiles {
		return fail(unix.EMFILE)
	}
	for _, f := range c.Files {
		r.files = append(r.files, int(f.File.Fd()))
		r.offsets = append(r.offsets, uint32(f.Offset))
	}
	return r
}

// nodeName returns the name of a device file in a payload, or "".
func nodeName(payload []byte) string {
	name, rest, ok := bytes.Cut(payload, []byte{0})
	if !ok || len(rest) != 0 {
		return ""
	}
	return string(name)
}

// allowed reports whether the user may use devices.
func (s *session) allowed() bool {
	if !s.stranger {
		return true
	}
	s.host.warn("a user may not use the devices", s.peer)
	return false
}

// greeted checks what hello and attach have in common.
func (s *session) greeted(q request) unix.Errno {
	switch {
	case q.arg != Version:
		return unix.EPROTO
	case !s.allowed():
		return unix.EACCES
	}
	return 0
}

func (s *session) hello(q request) reply {
	if errno := s.greeted(q); errno != 0 {
		return fail(errno)
	}
	h, name := s.host, nodeName(q.payload)
	h.mu.Lock()
	o := h.openers[name]
	h.mu.Unlock()
	if o == nil {
		return fail(unix.ENODEV)
	}
	if errno := s.identify(q.files); errno != 0 {
		return fail(errno)
	}
	file, err := o.Open(s.offering(q.files))
	if err != nil {
		s.refused("open a device for a program", q, err)
		return fail(errnoOf(err))
	}
	id, err := inodeOf(file.Visible())
	if err != nil {
		file.Close()
		return fail(unix.EIO)
	}
	if s.peer.ended() { // what was opened may be the memory of another one
		file.Close()
		return fail(unix.ESRCH)
	}
	h.mu.Lock()
	h.tokens++
	s.file = &openFile{File: file, id: id, name: name, token: h.tokens, uid: s.peer.UID, uses: 1}
	h.files[id] = s.file
	h.mu.Unlock()
	return s.welcome()
}

// offering is the peer with the copier that came with a greeting, if one did.
func (s *session) offering(files []received) Peer {
	p := s.peer
	if len(files) == 1 {
		p.copier = files[0]
	}
	return p
}

// refused logs why a greeting fails. Whose memory cannot be reached offers a
// copier when it hears of that.
func (s *session) refused(what string, q request, err error) {
	if errors.Is(err, os.ErrPermission) && len(q.files) < 2 && (q.op == opAttach || len(q.files) == 0) {
		s.host.log.Debug(what, "file", nodeName(q.payload), "pid", s.peer.PID, "uid", s.peer.UID, "error", err)
		return
	}
	s.host.warn(what, s.peer, "file", nodeName(q.payload), "error", err)
}

// welcome is the answer to hello and attach.
func (s *session) welcome() reply {
	major, minor := deviceNumber(s.file.name)
	var b []byte
	for _, v := range []uint32{uint32(os.Getpid()), s.file.token, major, minor} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	r := reply{resp: b, files: []int{int(s.file.Visible().Fd())}}
	if bell := s.file.Bell(); bell != nil {
		r.files = append(r.files, int(bell.Fd()))
	}
	return r
}

// attach joins the file that the program proves to have.
func (s *session) attach(q request) reply {
	if errno := s.greeted(q); errno != 0 {
		return fail(errno)
	}
	if len(q.files) == 0 {
		return fail(unix.EINVAL)
	}
	id, err := q.files[0].inode()
	if err != nil {
		return fail(unix.ENODEV)
	}
	if errno := s.identify(q.files[1:]); errno != 0 {
		return fail(errno)
	}
	h := s.host
	h.mu.Lock()
	f := h.files[id]
	if name := nodeName(q.payload); f != nil && name != "" && name != f.name {
		f = nil
	}
	if f != nil {
		f.uses++
		s.file = f
	}
	h.mu.Unlock()
	if f == nil {
		return fail(unix.ENODEV)
	}
	if !f.proven(s.peer.UID, q.files[0]) {
		s.drop()
		return fail(unix.EPERM)
	}
	if a, ok := f.File.(attacher); ok {
		if err := a.Attach(s.offering(q.files[1:])); err != nil {
			s.refused("share a device between programs", q, err)
			s.drop()
			return fail(errnoOf(err))
		}
		s.attached = true
	}
	if s.peer.ended() {
		s.drop()
		return fail(unix.ESRCH)
	}
	if nodeName(q.payload) == "" { // and not a child of fork
		h.mu.Lock()
		f.lent = max(f.lent-1, 0)
		h.mu.Unlock()
	}
	return s.welcome()
}

// mapping tells the file of memory that the program shares.
func (s *session) mapping(q request) reply {
	m, ok := s.file.File.(mapper)
	if !ok {
		return fail(unix.EOPNOTSUPP)
	}
	if len(q.payload) != 24 {
		return fail(unix.EINVAL)
	}
	addr, n, off := binary.NativeEndian.Uint64(q.payload), binary.NativeEndian.Uint64(q.payload[8:]), binary.NativeEndian.Uint64(q.payload[16:])
	var err error
	switch {
	case q.op == opUnmap:
		err = m.Unmap(s.peer, addr, n)
	case len(q.files) != 1:
		return fail(unix.EINVAL)
	default:
		err = m.Map(s.peer, int(q.files[0]), addr, n, off)
	}
	if err != nil {
		return fail(errnoOf(err))
	}
	return reply{}
}

// freeze stops the threads of the program, but the one that asks for it.
func (s *session) freeze(except int) reply {
	f, ok := s.file.File.(freezer)
	switch {
	case !ok:
		return fail(unix.EOPNOTSUPP)
	case s.thaw != nil:
		return fail(unix.EBUSY)
	}
	thaw, err := f.Freeze(s.peer, except)
	if err != nil {
		return fail(errnoOf(err))
	}
	s.thaw = thaw
	return reply{}
}

// unfreeze lets them go on.
func (s *session) unfreeze() {
	if s.thaw != nil {
		s.thaw()
		s.thaw = nil
	}
}

// drop gives up the session's share of its file. The last one closes it.
func (s *session) drop() {
	f := s.file
	if f == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	s.file = nil
	f.uses--
	last := f.uses == 0
	if last {
		delete(h.files, f.id)
	}
	h.mu.Unlock()
	if a, ok := f.File.(attacher); ok && s.attached {
		a.Detach(s.peer)
		s.attached = false
	}
	if !last {
		return
	}
	if err := f.Close(); err != nil {
		h.warn("free what a program had", s.peer, "error", err)
	}
}

// proven reports whether a user may join f by a descriptor with its inode. The
// numbers of inodes come again, of pipes after 2^32 of them: who has the
// patience must not get the file of another user.
func (f *openFile) proven(uid uint32, by abi.File) bool {
	return f.uid == uid || sameFile(by, f.Visible())
}

// sameFile reports whether two descriptors are of one open file.
func sameFile(a, b abi.File) bool {
	const kcmpFile = 0
	own := uintptr(os.Getpid())
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, own, own, kcmpFile, a.Fd(), b.Fd(), 0)
	return errno == 0 && order == 0
}

func inodeOf(f abi.File) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return inode{}, err
	}
	return inode{uint64(st.Dev), st.Ino}, nil
}

// errnoOf returns what a program gets for an error.
func errnoOf(err error) unix.Errno {
	var sys unix.Errno
	var own abi.Errno
	switch {
	case errors.Is(err, os.ErrPermission):
		return unix.EPERM
	case errors.As(err, &own):
		return unix.Errno(own)
	case errors.As(err, &sys):
		return sys
	}
	return unix.ENODEV
}
