package strangers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/gosoftroce/rocev2/e2e/attack/victim"
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

	region = "scratch"
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

// startListen starts this program as the victim of package rdma.
func startListen() (*victim.Process, error) {
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
	v, err := victim.Start(cmd)
	if err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		v.Stop()
		return nil, fmt.Errorf("the victim does not listen: %q, %w", line, err)
	}
	return v, nil
}

// startDaemon starts a rocev2d that every host may use.
func startDaemon(path string) (*victim.Daemon, error) {
	return victim.StartDaemon(path, victimAddr, honestAddr, "--region", region+"=4MiB;write;allow=any")
}
