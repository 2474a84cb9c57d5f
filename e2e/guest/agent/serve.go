//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest/proto"
)

// serve returns only with an error.
func serve() error {
	c, err := readConfig()
	if err != nil {
		return err
	}
	addr, _, err := net.ParseCIDR(c["ctladdr"])
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: addr, Port: proto.Port})
	if err != nil {
		return err
	}
	fmt.Println(readyLine)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go handle(conn)
	}
}

func handle(conn net.Conn) {
	defer conn.Close()
	pc := proto.NewConn(conn)
	t, b, err := pc.Read()
	if err != nil {
		return
	}
	req, err := proto.ParseRequest(t, b)
	exit := proto.Exit{Code: -1}
	switch {
	case err != nil:
		exit.Err = err.Error()
	case req.Op == proto.OpExec && len(req.Argv) > 0:
		exit = execute(pc, req)
	case req.Op == proto.OpWaitListen:
		exit = waitListen(pc, req)
	default:
		exit.Err = fmt.Sprintf("bad request %+v", req)
	}
	_ = pc.WriteJSON(proto.FrameExit, exit)
}

// execute runs the command until it ends, its time is over or the host hangs
// up.
func execute(pc *proto.Conn, req proto.Request) proto.Exit {
	cmd := exec.Command(req.Argv[0], req.Argv[1:]...)
	cmd.Env = append(os.Environ(), req.Env...)
	cmd.Stdout, cmd.Stderr = pc.Writer(proto.FrameStdout), pc.Writer(proto.FrameStderr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a child in the background may hold the pipes
	var stdin io.WriteCloser
	if req.Stdin {
		var err error
		if stdin, err = cmd.StdinPipe(); err != nil {
			return proto.Exit{Code: -1, Err: err.Error()}
		}
	}
	if err := cmd.Start(); err != nil {
		return proto.Exit{Code: -1, Err: err.Error()}
	}
	signalGroup := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }
	go func() {
		feed(pc, stdin, signalGroup)
		signalGroup(syscall.SIGKILL)
	}()
	timedOut := make(chan bool, 1)
	if req.Timeout > 0 {
		t := time.AfterFunc(req.Timeout, func() { timedOut <- true; signalGroup(syscall.SIGKILL) })
		defer t.Stop()
	}
	err := cmd.Wait()
	exit := proto.Exit{Code: cmd.ProcessState.ExitCode(), TimedOut: len(timedOut) > 0}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		exit.Code = 128 + int(ws.Signal())
	}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) && !errors.Is(err, exec.ErrWaitDelay) {
		exit.Err = err.Error()
	}
	return exit
}

// feed passes the host's input and signals on until the host hangs up.
func feed(pc *proto.Conn, stdin io.WriteCloser, signalGroup func(syscall.Signal)) {
	for {
		t, b, err := pc.Read()
		if err != nil {
			return
		}
		switch {
		case t == proto.FrameStdin && stdin != nil:
			_, _ = stdin.Write(b) // a command that reads no more is not an error
		case t == proto.FrameStdinEOF && stdin != nil:
			_ = stdin.Close()
		case t == proto.FrameSignal && len(b) == 1:
			signalGroup(syscall.Signal(b[0]))
		}
	}
}

// waitListen polls the socket table: the kernel has no event for it.
func waitListen(pc *proto.Conn, req proto.Request) proto.Exit {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _, _ = pc.Read() // returns when the host hangs up
	}()
	timeout := req.Timeout
	if timeout <= 0 {
		timeout = time.Minute
	}
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := proto.Listening("self", req.Port)
		if err != nil {
			return proto.Exit{Code: -1, Err: err.Error()}
		}
		if ok {
			return proto.Exit{}
		}
		select {
		case <-tick.C:
		case <-gone:
			return proto.Exit{Code: -1, Err: "host hung up"}
		case <-deadline.C:
			return proto.Exit{Code: 1, TimedOut: true, Err: fmt.Sprintf("nothing listens on TCP port %d after %v", req.Port, timeout)}
		}
	}
}
