//go:build darwin || freebsd || portable

package udp

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveTOS has the system tell the traffic class of what arrives by IPv4,
// which golang.org/x/net does not know.
func receiveTOS(c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}

// tosOf returns the traffic class that control messages tell, or 0.
func tosOf(oob []byte) uint8 {
	kind := int32(unix.IP_RECVTOS)
	if runtime.GOOS == "linux" {
		kind = unix.IP_TOS
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		if err == nil && m.Header.Level == unix.IPPROTO_IP && m.Header.Type == kind && len(m.Data) > 0 {
			return m.Data[0]
		}
	}
	return 0
}
