//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest/proto"
)

// Options say what Start boots.
type Options struct {
	Lines []string                         // kernel lines; nil = all of Lines
	Dir   string                           // for serial logs and the like; "" = a temporary directory, removed by Close
	Logf  func(format string, args ...any) // progress; nil = none
}

// Lab is a set of guests on one bridge and our side of it.
type Lab struct {
	Guests []*Guest
	Host   *Host
	Dir    string // serial logs: serial.LINE.log

	ns      *namespace
	tempDir bool
	cancel  context.CancelFunc
}

// Start prepares the images, makes the namespace, boots the guests at the same
// time and returns when all are ready. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Lab, error) {
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Lines == nil {
		o.Lines = Lines
	}
	images, err := Prepare(ctx, o.Logf)
	if err != nil {
		return nil, err
	}
	l := &Lab{Dir: o.Dir}
	if l.Dir == "" {
		if l.Dir, err = TempDir("lab"); err != nil {
			return nil, err
		}
		l.tempDir = true
	}
	life, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	if err := l.boot(ctx, life, o, images); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) boot(ctx, life context.Context, o Options, images []Image) (err error) {
	for _, program := range ownPrograms {
		if err := buildProgram(ctx, l.Dir, program); err != nil {
			return err
		}
	}
	if l.ns, err = newNamespace(ctx); err != nil {
		return err
	}
	l.Host = &Host{ns: l.ns}
	start := time.Now()
	for _, line := range o.Lines {
		i := indexLine(images, line)
		if i < 0 {
			return fmt.Errorf("no kernel line %q; there are %v", line, Lines)
		}
		g := newGuest(l.ns, i, images[i])
		o.Logf("booting Linux %s (%s)", g.Line, images[i].Package)
		if err := g.boot(ctx, life, l.Dir); err != nil {
			return err
		}
		l.Guests = append(l.Guests, g)
	}
	for _, g := range l.Guests {
		if err := g.waitReady(ctx); err != nil {
			return err
		}
	}
	if err := l.warmUp(ctx); err != nil {
		return err
	}
	o.Logf("guests are ready after %.1f s in network namespace %s", time.Since(start).Seconds(), l.ns.name)
	return nil
}

// warmUp makes every guest reach its peers once. Until a neighbour's address is
// known, a kernel holds QP changes up or lets them fail, and link-local
// addresses are on trial for the first second or two.
func (l *Lab) warmUp(ctx context.Context) error {
	for _, g := range l.Guests {
		peers := []netip.Addr{g.Host4, g.Host6}
		for _, other := range l.Guests {
			if other != g {
				peers = append(peers, other.Addr4, other.Addr6)
			}
		}
		for _, p := range peers {
			if _, err := Run(ctx, g, "ping", "-q", "-c", "1", "-w", "10", p.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

func indexLine(images []Image, line string) int {
	for i, img := range images {
		if img.Line == line {
			return i
		}
	}
	return -1
}

// ownPrograms are compiled for the guests, from the source beside this file.
// They are in the root of a guest.
var ownPrograms = []string{"agent", "placement"}

// buildProgram compiles one of them.
func buildProgram(ctx context.Context, dir, name string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "github.com/gosoftroce/rocev2/e2e/guest/"+name)
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		cmd.Dir = filepath.Dir(file)
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest's program %s: %w\n%s", name, err, b)
	}
	return nil
}

// Namespace returns the name of the lab's network namespace.
func (l *Lab) Namespace() string { return l.ns.name }

// Guest returns the guest of a kernel line, or nil.
func (l *Lab) Guest(line string) *Guest {
	for _, g := range l.Guests {
		if g.Line == line {
			return g
		}
	}
	return nil
}

// Close ends the guests and removes the namespace.
func (l *Lab) Close() error {
	l.cancel()
	var errs []error
	for _, g := range l.Guests {
		<-g.exited
	}
	if l.ns != nil {
		errs = append(errs, l.ns.remove())
	}
	if l.tempDir {
		errs = append(errs, os.RemoveAll(l.Dir))
	}
	return errors.Join(errs...)
}

// The addresses of guest i and of our side as that guest's peer.
func guest4(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(2 + 2*i)}) }
func guest6(i int) netip.Addr { return addr6(2 + 2*i) }
func host4(i int) netip.Addr  { return netip.AddrFrom4([4]byte{198, 18, 0, byte(1 + 10*i)}) }
func host6(i int) netip.Addr  { return addr6(1 + 10*i) }

// addr6 writes the decimal digits of n as the last group, as people do.
func addr6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:aa::%d", n)) }

// Host is our side of the bridge.
type Host struct{ ns *namespace }

// Name returns "host".
func (h *Host) Name() string { return "host" }

// Namespace returns the name of its network namespace, for ip(8).
func (h *Host) Namespace() string { return h.ns.name }

// Start starts a program in the lab's namespace as root.
func (h *Host) Start(ctx context.Context, argv ...string) (*Process, error) {
	return startLocal(ctx, h.ns.command(ctx, argv), argv)
}

// Unprivileged returns our side with programs run as an ordinary user without
// any capability.
func (h *Host) Unprivileged() Node { return unprivileged{h} }

type unprivileged struct{ *Host }

func (u unprivileged) Start(ctx context.Context, argv ...string) (*Process, error) {
	return startLocal(ctx, u.ns.command(ctx, append(append([]string{}, drop...), argv...)), argv)
}

// drop makes a program one of an ordinary user without any capability.
var drop = []string{"setpriv", fmt.Sprintf("--reuid=%d", Nobody), fmt.Sprintf("--regid=%d", Nobody), "--clear-groups", "--bounding-set=-all", "--no-new-privs", "--pdeathsig=KILL"}

// The user and the group of programs without privileges.
const Nobody = 65534

// WaitListen returns when a TCP socket of the namespace listens on port.
func (h *Host) WaitListen(ctx context.Context, port int) error {
	return waitListen(ctx, port, func() (ok bool, err error) {
		err = h.ns.do(func() (err error) {
			ok, err = proto.Listening("thread-self", port)
			return err
		})
		return ok, err
	})
}

// Command prepares a program in the namespace for callers that wire up its
// streams themselves.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd { return h.ns.command(ctx, argv) }

// String lists the addresses for people.
func (l *Lab) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "network namespace %s\n", l.ns.name)
	for _, g := range l.Guests {
		fmt.Fprintf(&b, "guest %-5s Linux %-22s %v  %v   our side towards it: %v  %v\n", g.Line, g.Image.Release, g.Addr4, g.Addr6, g.Host4, g.Host6)
	}
	return b.String()
}
