package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

// afterLast is how long a daemon that run has started outlives the last
// program.
const afterLast = time.Second

// untilFirst is how long it waits for the first one: on a busy machine the run
// that has started it may not come at once.
const untilFirst = time.Minute

// heldDaemon is a connection that keeps a daemon.
type heldDaemon struct{ file *os.File }

func hold(dir string) (*heldDaemon, error) {
	f, err := programs.Hold(dir)
	if err != nil {
		return nil, err
	}
	return &heldDaemon{f}, nil
}

// keepOverExec gives the connection a number that stays open in the program, up
// where it is not in the way.
func (h *heldDaemon) keepOverExec() error {
	for _, least := range []int{900, 200, 3} {
		if _, err := unix.FcntlInt(h.file.Fd(), unix.F_DUPFD, least); err == nil {
			return nil
		}
	}
	return errors.New("too many open files")
}

// holdOrStart connects to the daemon of a directory. One run at a time starts
// one.
func holdOrStart(ctx context.Context, dir string, f programFlags, addrs []netip.Addr) (*heldDaemon, error) {
	if held, err := hold(dir); err == nil || errors.Is(err, programs.ErrRefused) {
		return held, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	starting, err := os.OpenFile(dir+".start", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer starting.Close()
	if err := unix.Flock(int(starting.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	if held, err := hold(dir); err == nil {
		return held, nil
	}
	if err := startDaemon(ctx, dir, f, addrs); err != nil {
		return nil, fmt.Errorf("start a daemon for %s: %w", addrText(addrs), err)
	}
	held, err := hold(dir)
	if err != nil {
		return nil, fmt.Errorf("the daemon that was started does not answer: %w", err)
	}
	return held, nil
}

func addrText(addrs []netip.Addr) string {
	var names []string
	for _, a := range addrs {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// startDaemon returns when the daemon is ready.
func startDaemon(ctx context.Context, dir string, f programFlags, addrs []netip.Addr) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"run", "--serve", dir}
	for _, a := range addrs {
		args = append(args, "--device", a.String())
	}
	if f.hardware {
		args = append(args, "--hardware")
	}
	if f.shm {
		args = append(args, "--shm")
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	log, err := os.OpenFile(dir+".log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		theirs.Close()
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, args...)
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Env = append(withoutRun(os.Environ()), readyEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	defer cmd.Process.Release()
	defer context.AfterFunc(ctx, func() { ready.Close() })()
	said, err := io.ReadAll(io.LimitReader(ready, 1<<16))
	switch text := strings.TrimSpace(string(said)); {
	case text == readyText:
		return nil
	case text != "":
		return errors.New(text)
	default:
		return errors.Join(errors.New("it ended; see "+dir+".log"), err)
	}
}

// The daemon tells the process that starts it when it is ready, on the file
// that this variable names.
const (
	readyEnv  = "ROCEV2_READY_FD"
	readyText = "ready"
)

// servePrograms is the daemon.
func servePrograms(ctx context.Context, s streams, f programFlags) error {
	ready := io.Discard
	if os.Getenv(readyEnv) == "3" {
		file := os.NewFile(3, "ready")
		unix.CloseOnExec(3)
		defer file.Close()
		ready = file
	}
	host, err := openPrograms(ctx, s, f)
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	fmt.Fprintln(ready, readyText)
	if c, ok := ready.(io.Closer); ok {
		c.Close()
	}
	host.Wait(ctx, untilFirst, afterLast)
	err = host.Close()
	if st, e := os.Stat(f.serve + ".log"); e == nil && st.Size() == 0 {
		os.Remove(f.serve + ".log")
	}
	return err
}

func openPrograms(ctx context.Context, s streams, f programFlags) (*programs.Host, error) {
	addrs, err := deviceAddrs(f.devices)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(s.err, nil))
	var host *programs.Host
	err = patiently(ctx, func() error {
		host, err = programs.Listen(programs.Config{Dir: f.serve, Hardware: f.hardware, Log: log})
		return err
	})
	if err != nil {
		return nil, err
	}
	config := verbs.Config{Loopback: true, SharedMemory: f.shm}
	for _, a := range addrs {
		if err := patiently(ctx, func() error { return openOrShare(host, a, config) }); err != nil {
			return nil, errors.Join(err, host.Close())
		}
	}
	if err := host.Ready(); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return host, nil
}

// openOrShare opens a device on an address. Where another process owns its port
// the device has a part of that, which keeps a daemon that run has started.
func openOrShare(host *programs.Host, addr netip.Addr, c verbs.Config) error {
	err := host.OpenDevice(addr, c)
	if errors.Is(err, syscall.EADDRINUSE) && host.ShareDevice(addr, c) == nil {
		return nil
	}
	return err
}

// patiently tries for a while. Another daemon that run has started may have the
// directory or the address, and be about to end.
func patiently(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 4*afterLast)
	defer cancel()
	tick := time.NewTicker(afterLast / 20)
	defer tick.Stop()
	for {
		err := try()
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, programs.ErrInUse) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
