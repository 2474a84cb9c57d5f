//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// What the agent prints when it is done, on the serial console.
const (
	readyLine = "ROCEV2-GUEST-READY"
	failLine  = "ROCEV2-GUEST-FAILED"
)

// Guest is a running kernel with a Soft-RoCE device rxe0 on eth0.
type Guest struct {
	Line         string
	Image        Image
	Addr4, Addr6 netip.Addr // GID index 1 and 2
	Host4, Host6 netip.Addr // our side towards this guest
	Tap          string     // its port of the bridge, for captures

	ns     *namespace
	index  int
	ctl    netip.Addr
	serial *serialLog
	cmd    *exec.Cmd
	initrd string
	exited chan struct{}
}

func newGuest(ns *namespace, i int, img Image) *Guest {
	return &Guest{
		Line: img.Line, Image: img, ns: ns, index: i,
		Addr4: guest4(i), Addr6: guest6(i), Host4: host4(i), Host6: host6(i),
		ctl: netip.AddrFrom4([4]byte{198, 19, 0, byte(2 + 2*i)}),
		Tap: fmt.Sprintf("t%d", i+1), exited: make(chan struct{}),
	}
}

// Name returns the kernel line.
func (g *Guest) Name() string { return g.Line }

// GIDIndex returns the guest's GID index for an address family: 1 for IPv4, 2
// for IPv6.
func (g *Guest) GIDIndex(ipv6 bool) int {
	if ipv6 {
		return 2
	}
	return 1
}

// Addr returns the guest's address of a family.
func (g *Guest) Addr(ipv6 bool) netip.Addr {
	if ipv6 {
		return g.Addr6
	}
	return g.Addr4
}

// Host returns the address of our side of a family, as this guest's peer.
func (g *Guest) Host(ipv6 bool) netip.Addr {
	if ipv6 {
		return g.Host6
	}
	return g.Host4
}

// boot starts QEMU; life ends it.
func (g *Guest) boot(ctx, life context.Context, dir string) error {
	g.initrd = filepath.Join(dir, "initrd."+g.Line)
	if err := writeInitrd(g.initrd, g.Image.Initramfs, dir); err != nil {
		return err
	}
	control := fmt.Sprintf("c%d", g.index+1)
	if err := g.ns.addTap(ctx, g.Tap, "br0", linkMTU); err != nil {
		return err
	}
	if err := g.ns.addTap(ctx, control, "ctl0", 1500); err != nil {
		return err
	}
	mac, ctlMAC := fmt.Sprintf("52:54:00:12:34:%02x", g.index+1), fmt.Sprintf("52:54:00:12:35:%02x", g.index+1)
	// A starved guest answers ARP too late.
	if err := ip(ctx, fmt.Sprintf("-n %s neigh add %v lladdr %s dev ctl0 nud permanent", g.ns.name, g.ctl, ctlMAC)); err != nil {
		return err
	}
	cmdline := fmt.Sprintf("console=ttyS0 panic=-1 quiet rdinit=/agent rocev2.mac=%s rocev2.addr4=%v/24 rocev2.addr6=%v/64 rocev2.mtu=%d rocev2.ctlmac=%s rocev2.ctladdr=%v/24",
		mac, g.Addr4, g.Addr6, linkMTU, ctlMAC, g.ctl)
	// QEMU before 8.0 leaves out the memory barriers of a guest with one
	// processor, and then a notification can be lost. With event_idx that
	// is for ever: the interface stands still. Without, the next packet
	// makes up for it.
	argv := []string{
		"qemu-system-x86_64", "-nodefaults", "-no-user-config", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "768",
		"-display", "none", "-no-reboot",
		"-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial",
		"-kernel", g.Image.Kernel, "-initrd", g.initrd, "-append", cmdline,
		"-netdev", "tap,id=n0,ifname=" + g.Tap + ",script=no,downscript=no,vhost=off",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=n0,mac=%s,host_mtu=%d,romfile=,addr=4,event_idx=off", mac, linkMTU),
		"-netdev", "tap,id=n1,ifname=" + control + ",script=no,downscript=no,vhost=off",
		"-device", "virtio-net-pci,netdev=n1,mac=" + ctlMAC + ",romfile=,addr=5,event_idx=off",
	}
	log, err := os.Create(filepath.Join(dir, "serial."+g.Line+".log"))
	if err != nil {
		return err
	}
	g.serial = &serialLog{file: log, ready: make(chan struct{})}
	g.cmd = g.ns.command(life, argv)
	g.cmd.Stdout, g.cmd.Stderr = g.serial, g.serial
	if err := g.cmd.Start(); err != nil {
		log.Close()
		return err
	}
	go func() {
		defer close(g.exited)
		_ = g.cmd.Wait() // its status says nothing that the serial log does not
		log.Close()
	}()
	return nil
}

// writeInitrd appends our programs to the cached initramfs: the kernel unpacks
// archives one after another.
func writeInitrd(path, base, dir string) error {
	t := tree{}
	for _, name := range ownPrograms {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		t.file("/"+name, b, 0o755)
	}
	in, err := os.Open(base)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return t.writeCPIO(out)
}

// waitReady returns when the agent serves.
func (g *Guest) waitReady(ctx context.Context) error {
	select {
	case <-g.serial.ready:
		_ = os.Remove(g.initrd) // loaded; what is left goes with the directory
		return g.serial.failure()
	case <-g.exited:
		return fmt.Errorf("guest %s ended during boot; its console:\n%s", g.Line, tail(g.Serial(), 20))
	case <-ctx.Done():
		return fmt.Errorf("guest %s is not ready: %w; its console:\n%s", g.Line, context.Cause(ctx), tail(g.Serial(), 20))
	}
}

// Serial returns what the console has shown so far, warnings of the kernel
// among it.
func (g *Guest) Serial() string { return g.serial.String() }

// Exited is closed when the guest has ended.
func (g *Guest) Exited() <-chan struct{} { return g.exited }

// SetLoss makes the guest lose the given share of what it sends and of what it
// receives on eth0, in percent; 0 ends that. Commands are not affected.
func (g *Guest) SetLoss(ctx context.Context, percent float64) error {
	script := "(tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root) 2>/dev/null; set -e\n"
	if percent > 0 {
		netem := fmt.Sprintf("netem limit 100000 loss %g%%\n", percent)
		script += "ip link show ifb0 >/dev/null 2>&1 || ip link add ifb0 type ifb\n" +
			fmt.Sprintf("ip link set ifb0 mtu %d up\n", linkMTU) +
			"tc qdisc add dev eth0 root " + netem +
			"tc qdisc add dev eth0 handle ffff: ingress\n" +
			"tc filter add dev eth0 parent ffff: protocol all matchall action mirred egress redirect dev ifb0\n" +
			"tc qdisc add dev ifb0 root " + netem
	}
	_, err := Run(ctx, g, "sh", "-c", script)
	return err
}

// Loss is what SetLoss has done in one direction, in packets.
type Loss struct{ Passed, Lost int }

// Losses returns what the guest has lost since SetLoss, of what it sent and of
// what it received.
func (g *Guest) Losses(ctx context.Context) (sent, received Loss, err error) {
	r, err := Run(ctx, g, "tc", "-s", "-j", "qdisc", "show")
	if err != nil {
		return sent, received, err
	}
	return parseLosses(r.Stdout)
}

func parseLosses(qdiscs string) (sent, received Loss, err error) {
	var list []struct {
		Kind, Dev      string
		Packets, Drops int
	}
	if err := json.Unmarshal([]byte(qdiscs), &list); err != nil {
		return sent, received, fmt.Errorf("tc: %w", err)
	}
	for _, q := range list {
		switch {
		case q.Kind == "netem" && q.Dev == "eth0":
			sent = Loss{q.Packets, q.Drops}
		case q.Kind == "netem" && q.Dev == "ifb0":
			received = Loss{q.Packets, q.Drops}
		}
	}
	return sent, received, nil
}

// serialLog keeps the console and notices when the agent reports.
type serialLog struct {
	mu    sync.Mutex
	file  *os.File
	buf   bytes.Buffer
	ready chan struct{}
	done  bool
}

func (s *serialLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buf.Len() < maxOutput {
		s.buf.Write(p)
	}
	if !s.done && (bytes.Contains(s.buf.Bytes(), []byte(readyLine)) || lineComplete(s.buf.Bytes(), failLine)) {
		s.done = true
		close(s.ready)
	}
	return s.file.Write(p)
}

// lineComplete reports whether b has a whole line that contains mark.
func lineComplete(b []byte, mark string) bool {
	i := bytes.Index(b, []byte(mark))
	return i >= 0 && bytes.IndexByte(b[i:], '\n') >= 0
}

func (s *serialLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *serialLog) failure() error {
	for line := range strings.Lines(s.String()) {
		if i := strings.Index(line, failLine); i >= 0 {
			return fmt.Errorf("guest: %s", strings.TrimSpace(line[i+len(failLine):]))
		}
	}
	return nil
}
