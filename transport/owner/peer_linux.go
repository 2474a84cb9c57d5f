//go:build !portable

package owner

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// pending reports whether something has come that is not read yet, or the end.
func pending(conn *net.UnixConn) (is bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var one [1]byte
	e := raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return e == nil && !errors.Is(err, unix.EAGAIN)
}

// peerOf returns the process at the other end and its user, as the kernel has
// noted when it connected.
func peerOf(conn *net.UnixConn) (pid int, uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, 0, e
	}
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return int(cred.Pid), cred.Uid, nil
}

var errEnded = errors.New("owner: the process has ended")

// peerProcess returns a non-blocking pidfd of the process at the other end of a
// connection, whose ID was pid when it connected. That process may have ended,
// and another one have its ID. So the kernel is asked for the process of the
// socket, and only one that does not know (Linux before 6.5) for that of the
// ID. The error is errEnded if the process has ended.
func peerProcess(conn *net.UnixConn, pid int) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(s uintptr) { fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD) }); e != nil {
		return -1, e
	}
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL): // the second before Linux 6.16
		return -1, errEnded
	case err != nil:
		if fd, err = unix.PidfdOpen(pid, 0); errors.Is(err, unix.ESRCH) && pid != 0 {
			return -1, errEnded
		}
	}
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
