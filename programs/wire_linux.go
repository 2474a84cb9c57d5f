package programs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Version is that of the protocol between the library and the host.
const Version = 2

// The questions of the library.
const (
	opHello   = 1 // open a device file; payload: its name and a NUL; a copier's socket, or none
	opAttach  = 2 // join what another process has opened; its name, or none; a file as proof, and a copier's socket, or none
	opCommand = 3 // what the program wrote
	opMap     = 4 // memory of the program is that of a file
	opUnmap   = 5
	opForget  = 7  // a completion channel is closed
	opBye     = 8  // the file is closed
	opHold    = 9  // nothing; whoever starts programs is connected
	opLend    = 10 // the file goes to another process
	opImport  = 11 // what another context has made; arg: what, and its handle
	opFreeze  = 12 // stop all threads but the one that is named
	opThaw    = 13 // they go on
	opRefresh = 20 // files that change are about to be read
)

const (
	requestSize = 16
	replySize   = 32
	maxPayload  = 1 << 16
	maxFiles    = 4
	noOffset    = ^uint32(0)
)

// request is a question of the library.
type request struct {
	op      uint32
	arg     uint64
	payload []byte
	files   []received // that came with it
}

// errMalformed ends a session: its library does not speak the protocol.
var errMalformed = errors.New("malformed message")

func parseRequest(b []byte) (request, error) {
	if len(b) < requestSize {
		return request{}, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	q := request{
		op:      binary.NativeEndian.Uint32(b),
		arg:     binary.NativeEndian.Uint64(b[8:]),
		payload: b[requestSize:],
	}
	if n := binary.NativeEndian.Uint32(b[4:]); uint64(n) != uint64(len(q.payload)) {
		return request{}, fmt.Errorf("%w: %d bytes announced, %d there", errMalformed, n, len(q.payload))
	}
	return q, nil
}

// reply is an answer. Its files stay open.
type reply struct {
	ret     int32 // or a negative error number
	resp    []byte
	files   []int
	offsets []uint32 // in resp, where the numbers of the files go
}

func (r reply) appendTo(b []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(r.ret))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(r.resp)))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(r.files)))
	for i := range maxFiles {
		off := noOffset
		if i < len(r.offsets) {
			off = r.offsets[i]
		}
		b = binary.NativeEndian.AppendUint32(b, off)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, r.resp...)
}

// fail answers with an error number.
func fail(e unix.Errno) reply { return reply{ret: -int32(e)} }

// receive reads one message. The files that come with it are the caller's.
func receive(c *net.UnixConn, b, oob []byte) (request, error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	files := takeFiles(oob[:oobn])
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("%w: more than %d bytes", errMalformed, len(b))
	}
	var q request
	if err == nil {
		q, err = parseRequest(b[:n])
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return request{}, err
	}
	q.files = files
	return q, nil
}

// received is a file that a program has sent. It is of any kind, and whatever
// is done with it may wait for the program: a file system in userspace may
// belong to that. So it is none of package os, which has the poller look at a
// file: it would wait with all others.
type received int

// Fd implements abi.File.
func (f received) Fd() uintptr { return uintptr(f) }

// Close implements abi.File.
func (f received) Close() error { return unix.Close(int(f)) }

// errNotOurs is of a file that is none of those that programs get here.
var errNotOurs = errors.New("neither a memfd nor a pipe")

// inode returns the identity of a memfd or a pipe. Other files are not asked.
func (f received) inode() (inode, error) {
	_, noSeals := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	_, noPipe := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
	if noSeals != nil && noPipe != nil {
		return inode{}, errNotOurs
	}
	return inodeOf(f)
}

// takeFiles returns the files of a control message, all of them.
func takeFiles(oob []byte) []received {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var files []received
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, received(fd))
		}
	}
	return files
}

func send(c *net.UnixConn, r reply, b []byte) error {
	var rights []byte
	if len(r.files) > 0 {
		rights = unix.UnixRights(r.files...)
	}
	_, _, err := c.WriteMsgUnix(r.appendTo(b[:0]), rights, nil)
	return err
}

func (q request) appendTo(b []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, q.op)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(q.payload)))
	b = binary.NativeEndian.AppendUint64(b, q.arg)
	return append(b, q.payload...)
}
