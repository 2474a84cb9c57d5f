// Package testnet runs tests in network namespaces of their own, where they may
// make interfaces and set them up as they like.
package testnet

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const inside = "ROCEV2_TESTNET"

// Isolated runs the calling test again in another process, which has a network
// namespace of its own with nothing but lo, which is up. There it returns true.
// In the first process it reports the result and returns false: the test then
// returns. It skips the test where it cannot make a namespace.
func Isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		IP(t, "link set lo up")
		return true
	}
	if strings.Contains(t.Name(), "/") {
		t.Fatal("Isolated is for tests, not for subtests")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip is not installed (on Debian: apt-get install iproute2)")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// The death signal is of the thread that starts the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Skipf("this user may not make a network namespace (run as root, or allow user namespaces: sysctl user.max_user_namespaces): %v", err)
	}
	err := cmd.Wait()
	switch text := out.String(); {
	case err != nil:
		t.Fatalf("in a network namespace of its own: %v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skipf("in a network namespace of its own:\n%s", text)
	case !strings.Contains(text, "--- PASS: "+t.Name()+" "):
		t.Fatalf("the test did not run in its network namespace:\n%s", text)
	}
	return false
}

// IP runs the ip command with the words of args. An IPv6 address that it adds
// to an interface that is up can be used when IP returns.
func IP(t *testing.T, args string) {
	t.Helper()
	words := strings.Fields(args)
	if out, err := exec.CommandContext(t.Context(), "ip", words...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	if len(words) < 5 || words[0] != "address" && words[0] != "addr" || words[1] != "add" || words[3] != "dev" {
		return
	}
	if p, err := netip.ParsePrefix(words[2]); err == nil && p.Addr().Is6() {
		awaitAddr(t, p.Addr(), words[4])
	}
}

// awaitAddr waits until a datagram to an IPv6 address of an interface arrives
// there. The kernel makes the local route of a new address in a task of its
// own: until then such a datagram leaves by the interface.
func awaitAddr(t *testing.T, addr netip.Addr, iface string) {
	t.Helper()
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	if ifi.Flags&net.FlagUp == 0 {
		return // nothing arrives before it is up
	}
	if addr.IsLinkLocalUnicast() {
		addr = addr.WithZone(iface)
	}
	for end := time.Now().Add(2 * time.Minute); ; runtime.Gosched() {
		if err = arrives(addr); err == nil {
			return
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("a datagram to the new address %v does not arrive: %v", addr, err)
		}
	}
}

// arrives sends a datagram from addr to addr.
func arrives(addr netip.Addr) error {
	c, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return err // duplicate address detection is under way
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if _, err := c.WriteTo([]byte{1}, c.LocalAddr()); err != nil {
		return err
	}
	// One that stays on this host has arrived by now.
	if e := raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT)
	}); e != nil {
		return e
	}
	return err
}

// Veth makes two interfaces that are the ends of a cable, both up, with the MTU
// given. It skips the test where the kernel has none.
func Veth(t *testing.T, a, b, mtu string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "link", "add", a, "mtu", mtu, "type", "veth", "peer", "name", b, "mtu", mtu).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not supported") || strings.Contains(string(out), "nknown") {
			t.Skipf("this kernel has no veth interfaces (modprobe veth; CONFIG_VETH): %s", out)
		}
		t.Fatalf("make veth interfaces %s and %s: %v: %s", a, b, err, out)
	}
	for _, name := range []string{a, b} {
		IP(t, "link set "+name+" addrgenmode none")
		IP(t, "link set "+name+" up")
	}
	awaitRunning(t, a)
	awaitRunning(t, b)
}

// awaitRunning waits until the kernel has taken note of an interface's carrier,
// which may be a second after both its ends are up; until then it drops
// packets.
func awaitRunning(t *testing.T, iface string) {
	t.Helper()
	for t.Context().Err() == nil {
		ifi, err := net.InterfaceByName(iface)
		if err != nil {
			t.Fatal(err)
		}
		if ifi.Flags&net.FlagRunning != 0 {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("interface %s does not run: %v", iface, t.Context().Err())
}

// Elsewhere runs f on a thread in a network namespace of its own. It first
// moves the interface there; the other end, far, stays. Both ends are running
// when f begins. Sockets that f opens stay there. Elsewhere returns after f.
func Elsewhere(t *testing.T, iface, far string, f func()) {
	t.Helper()
	done, moved, ready := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer close(done)
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- os.NewSyscallError("unshare", err)
			return
		}
		// The ip command is started here: in the new namespace it
		// brings lo up; the interface is moved by one that is in the
		// old one.
		there, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer there.Close()
		move := exec.Command("nsenter", "--net=/proc/self/fd/3", "ip", "link", "set", iface, "netns", "/proc/self/fd/4")
		move.ExtraFiles = []*os.File{home, there}
		for _, cmd := range []*exec.Cmd{move, exec.Command("ip", "link", "set", "lo", "up"),
			exec.Command("ip", "link", "set", iface, "addrgenmode", "none"), exec.Command("ip", "link", "set", iface, "up")} {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v: %s", cmd.Args, err, out)
				return
			}
		}
		awaitRunning(t, iface)
		moved <- struct{}{}
		<-ready
		f()
	}()
	select {
	case <-moved:
		awaitRunning(t, far) // which was without a carrier meanwhile
		close(ready)
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
