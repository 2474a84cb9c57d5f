package victim

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a process that is attacked. It ends with this one.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// Start starts a process. Its standard input stays open until Stop.
func Start(cmd *exec.Cmd) (*Process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{cmd, in}, nil
}

// Stop ends the process.
func (p *Process) Stop() {
	p.in.Close()
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stopped waits until the process is stopped by a signal.
func (p *Process) Stopped() error {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && !status.Stopped():
			return fmt.Errorf("process %d has ended: %v", p.cmd.Process.Pid, status)
		default:
			return err
		}
	}
}

// Memory returns the resident memory of the process in MiB, and whether it
// lives.
func (p *Process) Memory() (float64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, err := strconv.ParseFloat(f[1], 64)
			return n / 1024, err == nil
		}
	}
	return 0, false // a zombie has no memory
}

// Files returns how many files the process has open.
func (p *Process) Files() (int, error) { return p.entries("fd") }

// Threads returns how many threads the process has.
func (p *Process) Threads() (int, error) { return p.entries("task") }

func (p *Process) entries(of string) (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, of))
	return len(list), err
}

// Ports of a daemon.
const (
	AdminPort  = 14791
	HealthPort = 14792
)

const (
	token      = "0123456789abcdef0123456789abcdef"
	readyLimit = 20 * time.Second
	getLimit   = 20 * time.Second
)

// Daemon is a rocev2d.
type Daemon struct {
	*Process
	Addr string
	from string
}

// StartDaemon starts the rocev2d at a path, with a device on addr, and waits
// until it is ready. It is asked from another address of the host.
func StartDaemon(path, addr, from string, args ...string) (*Daemon, error) {
	cmd := exec.Command(path, append([]string{"--device", addr,
		"--admin", net.JoinHostPort(addr, strconv.Itoa(AdminPort)), "--health", net.JoinHostPort(addr, strconv.Itoa(HealthPort))}, args...)...)
	cmd.Env = append(os.Environ(), "ROCEV2D_TOKEN="+token)
	p, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	d := &Daemon{p, addr, from}
	for end := time.Now().Add(readyLimit); ; time.Sleep(20 * time.Millisecond) {
		if _, err = d.Get(HealthPort, "/readyz"); err == nil {
			return d, nil
		}
		if time.Now().After(end) {
			d.Stop()
			return nil, fmt.Errorf("%s is not ready: %w", path, err)
		}
	}
}

// Get asks the daemon for something.
func (d *Daemon) Get(port int, path string) ([]byte, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(d.from)}}
	c := http.Client{Timeout: getLimit, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	r, err := http.NewRequest("GET", fmt.Sprintf("http://%s:%d%s", d.Addr, port, path), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return b, err
}
