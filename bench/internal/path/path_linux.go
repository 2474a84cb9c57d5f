package path

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/e2e/tun"
	"golang.org/x/sys/unix"
)

// Path is a path that is open.
type Path struct {
	ends   [2]end
	wake   int // eventfd: ends the thread
	done   chan struct{}
	counts Counts // once done is closed
}

// end is a namespace, which lives as long as the thread that made it.
type end struct {
	tun int
	do  chan func()
}

// Available says why paths cannot be opened here, "" if they can.
func Available() string {
	if os.Geteuid() != 0 {
		return "a path needs root"
	}
	for _, program := range []string{"ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " (package iproute2) is not installed"
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "a path needs TUN devices: " + err.Error()
	}
	return ""
}

// Open makes two namespaces and the path between them.
func Open(c Config) (*Path, error) {
	if why := Available(); why != "" {
		return nil, errors.New(why)
	}
	p := &Path{done: make(chan struct{}), wake: -1}
	for i := range p.ends {
		p.ends[i].tun = -1
	}
	addrs := [2]string{AddrA, AddrB}
	for i := range p.ends {
		if err := p.ends[i].open(c, addrs[i], addrs[1-i]); err != nil {
			p.release()
			return nil, fmt.Errorf("a path: %w", err)
		}
	}
	return p, p.begin(c)
}

// Between carries packets between two devices that do not block, and are
// closed with the path. It has no ends for Start.
func Between(c Config, a, b int) (*Path, error) {
	p := &Path{done: make(chan struct{}), wake: -1, ends: [2]end{{tun: a}, {tun: b}}}
	return p, p.begin(c)
}

// begin has packets carried.
func (p *Path) begin(c Config) (err error) {
	if p.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		p.release()
		return err
	}
	go p.carry(c)
	return nil
}

// open makes the namespace and its device.
func (e *end) open(c Config, addr, peer string) error {
	e.do = make(chan func())
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine, and with it the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("a network namespace: %w", err)
			return
		}
		fd, err := tun.Open("path0", tun.Packets)
		if err != nil {
			result <- err
			return
		}
		e.tun = fd
		for _, args := range []string{
			"link set lo up",
			"link set path0 mtu " + strconv.Itoa(c.MTU) + " txqueuelen 10000 up",
			"addr add " + addr + " peer " + peer + " dev path0",
		} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				result <- fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
				return
			}
		}
		result <- nil
		for f := range e.do {
			f()
		}
	}()
	return <-result
}

// start starts a program in the namespace of an end.
func (p *Path) start(i int, cmd *exec.Cmd) error {
	if p.ends[i].do == nil {
		return errors.New("no program runs at the end of this path")
	}
	result := make(chan error)
	p.ends[i].do <- func() { result <- cmd.Start() }
	return <-result
}

// batch is how many packets go one way before the other has its turn.
const batch = 64

// carry moves packets until the path is closed.
func (p *Path) carry(c Config) {
	defer close(p.done)
	runtime.LockOSThread()
	// A path is no program that waits for a processor.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	rng := rand.New(rand.NewPCG(c.Seed, 0x9a7))
	begin := time.Now()
	clock := func() int64 { return int64(time.Since(begin)) }
	dirs := [2]direction{{cfg: c}, {cfg: c}}
	polled := []unix.PollFd{
		{Fd: int32(p.ends[0].tun), Events: unix.POLLIN},
		{Fd: int32(p.ends[1].tun), Events: unix.POLLIN},
		{Fd: int32(p.wake), Events: unix.POLLIN},
	}
	for {
		moved := false
		for i := range dirs {
			moved = move(&dirs[i], p.ends[i].tun, p.ends[1-i].tun, clock, rng) || moved
		}
		if moved {
			continue
		}
		wait, now := int64(100e6), clock()
		for i := range dirs {
			if at, ok := dirs[i].next(); ok {
				wait = min(wait, max(at-now, 0))
			}
		}
		ts := unix.NsecToTimespec(wait)
		if n, err := unix.Ppoll(polled, &ts, nil); n > 0 && polled[2].Revents != 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	for i := range dirs {
		d := &dirs[i]
		p.counts.Packets += d.packets
		p.counts.Lost += d.lost
		p.counts.Overflows += d.overflows
	}
}

// move takes what was sent at one end and gives what has arrived at the other.
func move(d *direction, from, to int, clock func() int64, rng *rand.Rand) (moved bool) {
	for range batch {
		b := d.buffer()
		n, err := unix.Read(from, b)
		if err != nil || n <= 0 {
			d.recycle(b)
			break
		}
		d.take(clock(), b[:n], rng.Float64())
		moved = true
	}
	now := clock()
	for b := d.give(now); b != nil; b = d.give(now) {
		_, _ = unix.Write(to, b) // a device that is gone loses packets as a network does
		d.recycle(b)
		moved = true
	}
	return moved
}

// Counts returns what happened; the path must be closed.
func (p *Path) Counts() Counts { return p.counts }

// Close ends the path. The programs at its ends must have ended.
func (p *Path) Close() {
	one := [8]byte{1}
	_, _ = unix.Write(p.wake, one[:])
	<-p.done
	p.release()
}

func (p *Path) release() {
	for i := range p.ends {
		e := &p.ends[i]
		if e.do != nil {
			close(e.do)
		}
		if e.tun >= 0 {
			unix.Close(e.tun)
		}
	}
	if p.wake >= 0 {
		unix.Close(p.wake)
	}
}
