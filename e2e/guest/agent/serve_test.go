//go:build linux

package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/e2e/guest/proto"
)

// converse opens a conversation with the agent's side of a connection.
func converse(t *testing.T, r proto.Request) (net.Conn, *proto.Conn, chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	served := make(chan struct{})
	go func() {
		defer close(served)
		handle(there)
	}()
	pc := proto.NewConn(here)
	if err := pc.WriteJSON(proto.FrameRequest, r); err != nil {
		t.Fatal(err)
	}
	return here, pc, served
}

// finish collects the output until the exit.
func finish(t *testing.T, pc *proto.Conn) (stdout, stderr string, x proto.Exit) {
	t.Helper()
	var out, errs strings.Builder
	for {
		typ, b, err := pc.Read()
		if err != nil {
			t.Fatal(err)
		}
		switch typ {
		case proto.FrameStdout:
			out.Write(b)
		case proto.FrameStderr:
			errs.Write(b)
		case proto.FrameExit:
			x, err := proto.ParseExit(b)
			if err != nil {
				t.Fatal(err)
			}
			return out.String(), errs.String(), x
		}
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	_, pc, _ := converse(t, proto.Request{Op: proto.OpExec, Argv: []string{"sh", "-c", "cat; echo $GREETING >&2; exit 7"}, Env: []string{"GREETING=hello"}, Stdin: true})
	for _, err := range []error{pc.Write(proto.FrameStdin, []byte("input")), pc.Write(proto.FrameStdinEOF, nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, errs, x := finish(t, pc); out != "input" || errs != "hello\n" || x != (proto.Exit{Code: 7}) {
		t.Errorf("standard output %q, error %q, exit %+v", out, errs, x)
	}
}

func TestExecEnds(t *testing.T) {
	t.Parallel()
	_, pc, _ := converse(t, proto.Request{Op: proto.OpExec, Argv: []string{"sleep", "1000"}, Timeout: 10 * time.Millisecond})
	if _, _, x := finish(t, pc); x != (proto.Exit{Code: 137, TimedOut: true}) {
		t.Errorf("after its time: %+v", x)
	}
	_, pc, _ = converse(t, proto.Request{Op: proto.OpExec, Argv: []string{"sleep", "1000"}})
	if err := pc.Write(proto.FrameSignal, []byte{15}); err != nil {
		t.Fatal(err)
	}
	if _, _, x := finish(t, pc); x != (proto.Exit{Code: 143}) {
		t.Errorf("after SIGTERM: %+v", x)
	}
	conn, _, served := converse(t, proto.Request{Op: proto.OpExec, Argv: []string{"sleep", "1000"}})
	conn.Close()
	<-served // hanging up kills
}

func TestExecRefuses(t *testing.T) {
	t.Parallel()
	for _, r := range []proto.Request{{Op: proto.OpExec}, {Op: "dance"}, {Op: proto.OpExec, Argv: []string{"/no/such/program"}}} {
		_, pc, _ := converse(t, r)
		if _, _, x := finish(t, pc); x.Code != -1 || x.Err == "" {
			t.Errorf("%+v ended with %+v", r, x)
		}
	}
}

func TestWaitListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, p, _ := net.SplitHostPort(l.Addr().String())
	port, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	_, pc, _ := converse(t, proto.Request{Op: proto.OpWaitListen, Port: port})
	if _, _, x := finish(t, pc); x != (proto.Exit{}) {
		t.Errorf("a listening port: %+v", x)
	}
	l.Close()
	port = silentPort(t)
	_, pc, _ = converse(t, proto.Request{Op: proto.OpWaitListen, Port: port, Timeout: time.Millisecond})
	if _, _, x := finish(t, pc); !x.TimedOut {
		t.Errorf("a port on which nothing listens: %+v", x)
	}
	conn, _, served := converse(t, proto.Request{Op: proto.OpWaitListen, Port: port})
	conn.Close()
	<-served
}

// silentPort returns a TCP port on which no program listens, or can listen
// until the test ends: a socket is bound to it on all addresses and does not
// listen. Another process may take a port that was just closed.
func silentPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	var all unix.Sockaddr = &unix.SockaddrInet6{} // IPv4 as well
	if err == unix.EAFNOSUPPORT {                 // no IPv6 here
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		all = &unix.SockaddrInet4{}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, all); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := name.(*unix.SockaddrInet6); ok {
		return a.Port
	}
	return name.(*unix.SockaddrInet4).Port
}
