package programs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
)

// Peer is a process that opens a device file.
type Peer struct {
	PID      int // below 0 of a process in another PID namespace
	UID, GID uint32

	life *os.File // a pidfd; nil where the kernel has none

	copier abi.File // the socket of a thread that copies memory, or nil
}

// ended reports whether the process is not there any more. Then its number may
// be that of another one, and whoever has its connection is not who connected.
func (p Peer) ended() bool {
	if p.life == nil {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(p.life.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 0)
		if err != unix.EINTR {
			return err != nil || n != 0
		}
	}
}

// credentials asks the kernel who is at the other end.
func credentials(conn *net.UnixConn) (p Peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, err
	}
	var cred *unix.Ucred
	life := -1
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && cred.Pid > 0 {
			life, err = pidfd(int(fd), int(cred.Pid))
		} else if err == nil {
			if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
				life = n
			}
		}
	}); e != nil {
		return p, e
	}
	if err != nil {
		return p, err
	}
	p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}
	if life >= 0 {
		p.life = os.NewFile(uintptr(life), "process")
	}
	return p, nil
}

// pidfd returns a pidfd of who has connected a socket, and -1 where the kernel
// has none. Linux before 6.5 says who that was by the number alone.
func pidfd(socket, pid int) (fd int, err error) {
	fd, err = unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if errors.Is(err, unix.ENOSYS) {
		return -1, nil
	}
	return fd, err
}

// Capabilities that commands ask for.
const (
	capNetBindService = 10
	capNetRaw         = 13
)

// bindsLow reports whether the process may have ports below 1024 in the
// connection manager.
func (p Peer) bindsLow() bool { return p.capable(capNetBindService) }

// raw reports whether the process may send management datagrams.
func (p Peer) raw() bool { return p.capable(capNetRaw) }

// capable reports whether the process has a capability, in the user namespace
// of the daemon as Linux asks, or is of the user of the daemon.
func (p Peer) capable(capability int) bool {
	if p.UID == uint32(os.Geteuid()) {
		return true
	}
	if p.PID <= 0 {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/", p.PID)
	var own, theirs unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &own) != nil || unix.Stat(dir+"ns/user", &theirs) != nil || own.Ino != theirs.Ino || own.Dev != theirs.Dev {
		return false
	}
	text, err := os.ReadFile(dir + "status")
	if err != nil || p.ended() {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && caps>>capability&1 != 0
		}
	}
	return false
}
