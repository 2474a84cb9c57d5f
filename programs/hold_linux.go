package programs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Hold connects to the host of a directory, which then does not find itself
// idle. The file that it returns is the connection.
func Hold(dir string) (*os.File, error) {
	path := filepath.Join(dir, "socket")
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: a socket's path has at most %d bytes: use a shorter directory", path, maxSocketPath)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(helloTime))
	if _, err := conn.Write(request{op: opHold}.appendTo(nil)); err != nil {
		return nil, err
	}
	b := make([]byte, replySize)
	if n, err := conn.Read(b); err != nil || n != replySize {
		return nil, errors.Join(errors.New(path+": no daemon of programs answers"), err)
	}
	ret := int32(binary.NativeEndian.Uint32(b))
	if errno := unix.Errno(-ret); errno == unix.EACCES || errno == unix.EPERM {
		return nil, fmt.Errorf("%s: %w", path, ErrRefused)
	}
	if ret < 0 {
		return nil, fmt.Errorf("%s: %w", path, unix.Errno(-ret))
	}
	return conn.File()
}
