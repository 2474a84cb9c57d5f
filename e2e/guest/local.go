//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest/proto"
)

// Local is this machine as it is, without a namespace: the place of programs
// that need nothing but loopback.
type Local struct{}

// Name returns "local".
func (Local) Name() string { return "local" }

// Start starts a program: as an ordinary user if this process is root. The
// kernel kills it when this process dies.
func (Local) Start(ctx context.Context, argv ...string) (*Process, error) {
	run := argv
	if os.Geteuid() == 0 {
		run = append(append([]string{}, drop...), argv...)
	}
	cmd := exec.CommandContext(ctx, run[0], run[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 2 * time.Second
	return startLocal(ctx, cmd, argv)
}

// WaitListen returns when a TCP socket of this machine listens on port.
func (Local) WaitListen(ctx context.Context, port int) error {
	return waitListen(ctx, port, func() (bool, error) { return proto.Listening("self", port) })
}

func waitListen(ctx context.Context, port int, listening func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond) // the kernel has no event for it
	defer tick.Stop()
	for {
		if ok, err := listening(); err != nil || ok {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on TCP port %d: %w", port, context.Cause(ctx))
		}
	}
}

// Alone is a namespace without guests: a host with two addresses in a network
// without other hosts.
type Alone struct {
	Host  *Host
	Addrs [2]netip.Addr
}

// NewAlone makes such a namespace. It needs root; its error is [*Unavailable]
// where the machine is at fault.
func NewAlone(ctx context.Context) (*Alone, error) {
	if os.Geteuid() != 0 {
		return nil, &Unavailable{"not root; network namespaces need it"}
	}
	ns, err := newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	// A bridge without a port has no carrier.
	for _, c := range []string{
		fmt.Sprintf("link add v0 mtu %d type veth peer name v1", linkMTU),
		"link set v0 master br0", "link set v0 addrgenmode none up", "link set v1 addrgenmode none up",
	} {
		if err := ip(ctx, "-n "+ns.name+" "+c); err != nil {
			return nil, errors.Join(&Unavailable{err.Error()}, ns.remove())
		}
	}
	return &Alone{Host: &Host{ns: ns}, Addrs: HostAddrs()}, nil
}

// HostAddrs are the IPv4 addresses of our side, in every namespace.
func HostAddrs() [2]netip.Addr { return [2]netip.Addr{host4(0), host4(1)} }

// Close removes the namespace.
func (a *Alone) Close() error { return a.Host.ns.remove() }
