//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// config is what the host puts on the kernel command line, as rocev2.KEY=VALUE.
type config map[string]string

func readConfig() (config, error) {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	c := config{}
	for _, f := range strings.Fields(string(b)) {
		if k, v, ok := strings.Cut(f, "="); ok && strings.HasPrefix(k, "rocev2.") {
			c[strings.TrimPrefix(k, "rocev2.")] = v
		}
	}
	for _, k := range []string{"mac", "addr4", "addr6", "mtu", "ctlmac", "ctladdr"} {
		if c[k] == "" {
			return nil, fmt.Errorf("rocev2.%s is missing on the kernel command line", k)
		}
	}
	return c, nil
}

func setUp() error {
	os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	os.Setenv("HOME", "/root")
	if err := mountAll(); err != nil {
		return err
	}
	if err := run("/bin/busybox", "--install", "-s", "/bin"); err != nil {
		return err
	}
	conf, err := readConfig()
	if err != nil {
		return err
	}
	if err := loadModules("/modules.list"); err != nil {
		return err
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return err
	}
	if err := setUpNetwork(conf); err != nil {
		return err
	}
	return waitForGIDs(conf)
}

func mountAll() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"},
		{"tmpfs", "/run"}, {"devpts", "/dev/pts"}, {"tmpfs", "/dev/shm"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

// loadModules inserts the modules that the list names, dependencies first.
func loadModules(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if err := loadModule(s.Text()); err != nil {
			// A module that only helps on another CPU refuses to
			// load; what is really missing shows up when it is
			// used.
			fmt.Println("agent:", err)
		}
	}
	return s.Err()
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", filepath.Base(path), err)
	}
	return nil
}

func setUpNetwork(c config) error {
	for dev, mac := range map[string]string{"eth0": c["mac"], "eth1": c["ctlmac"]} {
		b, err := os.ReadFile("/sys/class/net/" + dev + "/address")
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(b)); got != mac {
			return fmt.Errorf("%s has MAC address %s, not %s", dev, got, mac)
		}
	}
	for _, args := range []string{
		"link set lo up",
		"link set eth0 mtu " + c["mtu"] + " up",
		"addr add " + c["addr4"] + " dev eth0",
		"-6 addr add " + c["addr6"] + " dev eth0 nodad",
		"link set eth1 up",
		"addr add " + c["ctladdr"] + " dev eth1",
		"route add 239.0.0.0/8 dev eth0",
	} {
		if err := run("ip", strings.Fields(args)...); err != nil {
			return err
		}
	}
	return run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
}

// waitForGIDs waits until the kernel's GID table has the two addresses where
// the tests name them: index 1 is the IPv4 address, 2 the IPv6 address.
func waitForGIDs(c config) error {
	var want [3]netip.Addr
	for i, k := range []string{"addr4", "addr6"} {
		p, err := netip.ParsePrefix(c[k])
		if err != nil {
			return err
		}
		want[i+1] = p.Addr()
	}
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = checkGIDs(want); last == nil {
			return nil
		}
	}
	return last
}

func checkGIDs(want [3]netip.Addr) error {
	for i := 1; i < len(want); i++ {
		b, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/rxe0/ports/1/gids/%d", i))
		if err != nil {
			return err
		}
		got, err := netip.ParseAddr(strings.TrimSpace(string(b)))
		if err != nil {
			return err
		}
		if got.Unmap() != want[i] {
			return fmt.Errorf("GID %d is %v, not %v", i, got.Unmap(), want[i])
		}
	}
	return nil
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(fmt.Sprintf("%s %s: %v %s", name, strings.Join(args, " "), err, out)))
	}
	return nil
}
