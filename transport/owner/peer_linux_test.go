//go:build !portable

package owner

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The process of a connection is found by its socket: its ID may be that of
// another process by now. Here it is that of the test, which lives.
func TestProcessOfConnectionWhoseIDIsReused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cmd := exec.Command(os.Args[0], socket)
	cmd.Env = append(os.Environ(), "ROCEV2_TEST_OWNER_ROLE=leaver")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // ends the child that has the other end of the connection
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1<<12)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "grant"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if raw, err := conn.SyscallConn(); err != nil {
		t.Fatal(err)
	} else if raw.Control(func(s uintptr) { _, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD) }); err == unix.ENOPROTOOPT {
		t.Skip("the kernel does not name the process of a socket: Linux 6.5 and later do")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait()
	fd, err := peerProcess(conn, os.Getpid())
	if err == errEnded {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); err != nil || n != 1 {
		t.Errorf("the process that has connected is dead, and does not seem so: %d, %v", n, err)
	}
}
