// Command isolated runs a program in a network namespace of its own, which has
// nothing but lo. So no port is taken there, and no other process is met. go
// test runs test binaries with it:
//
//	go test -exec $PWD/bin/isolated ./...
//
// Where the system allows no namespace, the program runs without one. isolated
// without arguments says which of the two it is, and why; its exit status is 1
// if there is none.
//
// Root needs CAP_SYS_ADMIN for it, and other users user namespaces. The program
// has the user, the directory and the environment of the caller, and no more
// capabilities.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside is the name by which the program starts itself in the namespace.
const inside = "isolated-inside"

// unable is the exit status inside where the namespace cannot be used, while
// the program has not been started. Go and shells use none like it.
const unable = 211

func main() {
	// Death signals, capabilities and namespaces are those of threads.
	runtime.LockOSThread()
	if os.Args[0] == inside {
		enter(os.Args[1:])
	}
	args := os.Args[1:]
	if len(args) == 0 {
		os.Exit(report())
	}
	status, err := isolate(args)
	if err != nil { // the program runs all the same
		status, err = run(exec.Command(args[0], args[1:]...))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolated:", err)
		status = 127
	}
	os.Exit(status)
}

// report says whether programs are isolated here, and returns the exit status.
func report() int {
	if _, err := isolate(nil); err != nil {
		fmt.Printf("Tests run without network namespaces of their own: %v. They fail where another program has UDP port 4791.\n", err)
		return 1
	}
	fmt.Println("Each package's tests run in a network namespace of their own.")
	return 0
}

// isolate runs a program in a namespace, or none to try, and returns its exit
// status. An error says why the program was not started.
func isolate(args []string) (int, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{inside}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		// The user is the same in both. Its capabilities end at an
		// execve, all but those that are ambient.
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	status, err := run(cmd)
	if err != nil {
		return 0, fmt.Errorf("this user may not make one (run as root, or allow user namespaces: sysctl user.max_user_namespaces): %w", err)
	}
	if status == unable {
		return 0, errors.New("the system restricts what a user namespace may do (sysctl kernel.apparmor_restrict_unprivileged_userns)")
	}
	return status, nil
}

// run runs a command with the standard streams of this process, passes signals
// on to it, and returns its exit status as a shell would.
func run(cmd *exec.Cmd) (int, error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, err
			}
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
				return 128 + int(ws.Signal()), nil
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}

// enter makes the namespace usable and becomes the program.
func enter(args []string) {
	if err := prepare(); err != nil {
		os.Exit(unable)
	}
	if len(args) == 0 {
		os.Exit(0)
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	fmt.Fprintf(os.Stderr, "isolated: %s: %v\n", args[0], err)
	os.Exit(127)
}

// prepare brings lo up and lets the user's group send echo requests, and then
// gives up the capability that is needed for it.
func prepare() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	// Kernels without the setting refuse these requests everywhere.
	_ = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", fmt.Appendf(nil, "%d %[1]d", os.Getgid()), 0)
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}
