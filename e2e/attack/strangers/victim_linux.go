package strangers

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/gosoftroce/rocev2/rdma"
)

// Addresses and ports. The network is the process's own.
const (
	victimAddr = "127.199.0.1"
	honestAddr = "127.198.0.2"

	regionsPort = 7470 // of rocev2d
	rpingPort   = 7174
	streamPort  = 7471
	listenPort  = 7777 // of the program of package rdma

	adminPort  = 14791
	healthPort = 14792

	region = "scratch"
	token  = "0123456789abcdef0123456789abcdef"
)

// ListenEnv is set in the process that is the victim of package rdma: its main
// function calls Listen.
const ListenEnv = "ROCEATTACK_LISTEN"

// Listen is a program of package rdma: it takes every connection, reads what
// comes, and exports some memory. It ends when its standard input does.
func Listen(ctx context.Context) error {
	l, err := rdma.Listen(ctx, net.JoinHostPort(victimAddr, strconv.Itoa(listenPort)))
	if err != nil {
		return err
	}
	if _, err := l.Export(region, rdma.Region{Size: 4096, Writable: true}); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	fmt.Println("ready")
	for {
		c, err := l.Accept(ctx)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			for {
				if _, err := c.Recv(ctx, make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
	}
}

// victim is a process that is attacked.
type victim struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startListen starts this program as the victim of package rdma.
func startListen() (*victim, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), ListenEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	v, err := start(cmd)
	if err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		v.stop()
		return nil, fmt.Errorf("the victim does not listen: %q, %w", line, err)
	}
	return v, nil
}

// startDaemon starts a rocev2d, which everybody may use.
func startDaemon(path string) (*victim, error) {
	cmd := exec.Command(path, "--device", victimAddr, "--region", region+"=4MiB;write;allow=any",
		"--admin", net.JoinHostPort(victimAddr, strconv.Itoa(adminPort)), "--health", net.JoinHostPort(victimAddr, strconv.Itoa(healthPort)))
	cmd.Env = append(os.Environ(), "ROCEV2D_TOKEN="+token)
	v, err := start(cmd)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err = get(healthPort, "/readyz"); err == nil {
			return v, nil
		}
		if time.Now().After(end) {
			v.stop()
			return nil, fmt.Errorf("%s is not ready: %w", path, err)
		}
	}
}

func start(cmd *exec.Cmd) (*victim, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &victim{cmd, in}, nil
}

func (v *victim) stop() {
	v.in.Close()
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// memory returns the resident memory of the process in MiB, and whether it
// lives.
func (v *victim) memory() (float64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
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

// get asks the daemon for something, from the honest address.
func get(port int, path string) (time.Duration, error) {
	begin := time.Now()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(honestAddr)}}
	c := http.Client{Timeout: dialLimit, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	r, err := http.NewRequest("GET", fmt.Sprintf("http://%s:%d%s", victimAddr, port, path), nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return time.Since(begin), nil
}
