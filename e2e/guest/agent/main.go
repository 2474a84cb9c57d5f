//go:build linux

// The agent is the first process of a kernel guest: it loads the modules,
// brings the two network interfaces and the Soft-RoCE device rxe0 up, reports
// on the console, and runs commands for the test host (package proto).
//
// It expects the layout that package guest puts into the initramfs and is of
// no use elsewhere.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// The lines by which the host recognises the outcome of a boot.
const (
	readyLine = "ROCEV2-GUEST-READY"
	failLine  = "ROCEV2-GUEST-FAILED"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Println(failLine, serve())
		os.Exit(1)
	}
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := setUp(); err != nil {
		fmt.Println(failLine, err)
	} else {
		fmt.Println(failLine, superviseServer())
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// superviseServer returns when the command server has ended, which it should
// not. It runs the server as a child of its own and reaps every orphan
// of the guest; the two cannot share a process, since os/exec
// waits for its own children.
func superviseServer() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if pid == cmd.Process.Pid {
			return fmt.Errorf("command server ended: status %#x", int(ws))
		}
	}
}
