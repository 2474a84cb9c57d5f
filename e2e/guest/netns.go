//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	nsPrefix = "rocev2-e2e-"
	nsDir    = "/run/netns"
	linkMTU  = 9000 // carries path MTU 4096
)

// namespace is a network namespace with the two bridges of a lab.
type namespace struct{ name string }

var nsCount atomic.Int32

// newNamespace makes a namespace named after this process, so that the next
// run can tell leftovers of a killed one.
func newNamespace(ctx context.Context) (*namespace, error) {
	removeStale(ctx)
	n := &namespace{fmt.Sprintf("%s%d-%d", nsPrefix, os.Getpid(), nsCount.Add(1))}
	if err := ip(ctx, "netns add "+n.name); err != nil {
		return nil, &Unavailable{err.Error()}
	}
	cmds := []string{
		"link set lo up",
		fmt.Sprintf("link add br0 mtu %d type bridge mcast_snooping 0", linkMTU),
		"link add ctl0 type bridge",
		"link set br0 up", "link set ctl0 up",
		"addr add 198.19.0.1/24 dev ctl0",
	}
	for i := range Lines {
		cmds = append(cmds, fmt.Sprintf("addr add %v/24 dev br0", host4(i)), fmt.Sprintf("-6 addr add %v/64 dev br0 nodad", host6(i)))
	}
	for _, c := range cmds {
		if err := ip(ctx, "-n "+n.name+" "+c); err != nil {
			return nil, errors.Join(&Unavailable{err.Error()}, n.remove())
		}
	}
	return n, nil
}

// removeStale removes the namespaces and temporary directories of processes
// that are gone. Their guests ended with them.
func removeStale(ctx context.Context) {
	for _, dir := range []string{nsDir, os.TempDir()} {
		found, _ := filepath.Glob(filepath.Join(dir, nsPrefix+"*")) // the pattern is good
		for _, path := range found {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), nsPrefix), "-")
			if p, err := strconv.Atoi(pid); err != nil || !errors.Is(unix.Kill(p, 0), unix.ESRCH) {
				continue
			}
			if dir == nsDir {
				_ = ip(ctx, "netns delete "+filepath.Base(path)) // another run may be faster
			} else {
				_ = os.RemoveAll(path)
			}
		}
	}
}

// TempDir makes a temporary directory that the next run removes if this
// process is killed.
func TempDir(name string) (string, error) {
	return os.MkdirTemp("", fmt.Sprintf("%s%d-%s-", nsPrefix, os.Getpid(), name))
}

func ip(ctx context.Context, args string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// remove deletes the namespace and with it bridges and taps.
func (n *namespace) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return ip(ctx, "netns delete "+n.name)
}

// addTap makes a tap device on a bridge for QEMU to open by name.
func (n *namespace) addTap(ctx context.Context, tap, bridge string, mtu int) error {
	if err := ip(ctx, fmt.Sprintf("-n %s tuntap add %s mode tap", n.name, tap)); err != nil {
		return &Unavailable{err.Error()}
	}
	return ip(ctx, fmt.Sprintf("-n %s link set %s mtu %d master %s up", n.name, tap, mtu, bridge))
}

// command prepares a program that runs inside the namespace. It is killed when
// ctx ends, and when this process dies.
func (n *namespace) command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.name}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// dial connects from inside the namespace. A socket belongs to the namespace
// in which its thread was when it was made.
func (n *namespace) dial(ctx context.Context, addr string) (net.Conn, error) {
	var conn net.Conn
	err := n.do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// do runs f on a thread that is inside the namespace.
func (n *namespace) do(f func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			errc <- err
			return
		}
		defer home.Close()
		there, err := os.Open(filepath.Join(nsDir, n.name))
		if err != nil {
			runtime.UnlockOSThread()
			errc <- err
			return
		}
		defer there.Close()
		if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			errc <- err
			return
		}
		err = f()
		// A thread that cannot come home stays locked and dies with
		// this goroutine.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		errc <- err
	}()
	return <-errc
}
