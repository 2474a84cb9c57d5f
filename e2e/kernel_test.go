//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// TestGuestPair runs the tools between two kernels: if it fails, the harness
// or the machine is broken, not this project's stack. Loss is not part of it by
// default: a server of the originals leaves when it has all, and if its last
// acknowledgement was lost, the kernel of the client asks for it for ever.
func TestGuestPair(t *testing.T) {
	lab := startLab(t)
	clean := []scenario{
		cell{op: "pingpong", mtu: 1024, size: 4096, iters: 100},
		cell{op: "pingpong", mtu: 4096, size: 4096, iters: 100, ipv6: true},
		cell{op: "write_bw", mtu: 4096, size: 65536, iters: 100},
		cmCell{tool: "rping", size: 64, iters: 10},
	}
	var lossy []scenario
	if os.Getenv(pairEnv) == "all" {
		clean, lossy = cleanCells(), lossCells()
	}
	a, b := lab.Guests[0], lab.Guests[1]
	for _, roles := range []struct{ server, client *guest.Guest }{{a, b}, {b, a}} {
		each := func(cells []scenario) {
			for _, c := range cells {
				t.Run("server="+roles.server.Line+"/"+c.name(), func(t *testing.T) {
					runCell(t, &run{
						cell: c, server: kernelSide(roles.server, c), client: kernelSide(roles.client, c),
						serverAddr: roles.server.Addr(c.traits().ipv6).String(), clientAddr: roles.client.Addr(c.traits().ipv6).String(),
						tap: roles.server.Tap, host: lab.Host,
					}, a, b)
				})
			}
		}
		each(clean)
		if len(lossy) > 0 {
			withLoss(t, roles.server, func() { each(lossy) })
		}
	}
	t.Run("between", func(t *testing.T) { testBetween(t, lab, a, b) })
}

// testBetween is the network between two guests: they reach each other over it
// alone, and over the bridge again afterwards.
func testBetween(t *testing.T, lab *guest.Lab, a, b *guest.Guest) {
	ping := func(wait string) int {
		t.Helper()
		p, err := a.Start(t.Context(), "ping", "-q", "-c", "1", "-w", wait, b.Addr4.String())
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return r.Code
	}
	ends, restore, err := lab.Between(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	if ping("1") == 0 {
		t.Error("an answer, though nothing is carried")
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		carry(ends, stop)
	}()
	if code := ping("10"); code != 0 {
		t.Errorf("no answer to frames that are carried: exit status %d", code)
	}
	close(stop)
	<-done
	for _, fd := range ends {
		unix.Close(fd)
	}
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := ping("10"); code != 0 {
		t.Errorf("no answer over the bridge: exit status %d", code)
	}
}

// carry moves frames both ways until stop is closed.
func carry(ends [2]int, stop chan struct{}) {
	frame := make([]byte, guest.FrameHeader+guest.FrameMTU)
	polled := []unix.PollFd{{Fd: int32(ends[0]), Events: unix.POLLIN}, {Fd: int32(ends[1]), Events: unix.POLLIN}}
	for {
		select {
		case <-stop:
			return
		default:
		}
		_, _ = unix.Poll(polled, 20) // an interruption is as good as nothing
		for i := range ends {
			for n, err := unix.Read(ends[i], frame); err == nil && n > 0; n, err = unix.Read(ends[i], frame) {
				_, _ = unix.Write(ends[1-i], frame[:n])
			}
		}
	}
}

// TestKernelMatrix runs every tool between this project's programs, as an
// ordinary user without capabilities, and the kernels, in both roles, without
// and with packet loss, and prints the matrix.
func TestKernelMatrix(t *testing.T) {
	lab := startLab(t)
	bin := buildTool(t, lab.Host)
	m := newMatrix(lab.Guests, version(t, lab.Host, bin))
	t.Run("kernel", func(t *testing.T) {
		for _, g := range lab.Guests {
			t.Run(g.Line, func(t *testing.T) {
				t.Parallel() // every guest has an address of ours to itself
				for _, weServe := range []bool{true, false} {
					runColumn(t, m, lab.Host, bin, g, weServe, cleanCells())
				}
				withLoss(t, g, func() {
					for _, weServe := range []bool{true, false} {
						runColumn(t, m, lab.Host, bin, g, weServe, lossCells())
					}
				})
			})
		}
	})
	t.Run("daemon", func(t *testing.T) {
		d := startDaemon(t, lab, bin)
		t.Run("of", func(t *testing.T) {
			for _, g := range lab.Guests {
				t.Run(g.Line, func(t *testing.T) {
					t.Parallel()
					d.runClients(t, m, lab.Host, g)
				})
			}
		})
	})
	fmt.Print(m.text())
	if file := os.Getenv(matrixEnv); file != "" {
		if err := os.WriteFile(file, []byte(m.markdown()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// runColumn runs the cells of one column of the matrix.
func runColumn(t *testing.T, m *matrix, h *guest.Host, bin string, g *guest.Guest, weServe bool, cells []scenario) {
	role := "client"
	if weServe {
		role = "server"
	}
	for _, c := range cells {
		if !c.playable(weServe) {
			continue
		}
		ours, kernel, ipv6 := ourSide(h, bin, g, c), kernelSide(g, c), c.traits().ipv6
		r := &run{cell: c, tap: g.Tap, host: h, ours: g.Host(ipv6).String()}
		r.left = func(ctx context.Context, server *guest.Process) error { return c.left(ctx, bin, g, weServe, server) }
		if weServe {
			r.server, r.serverAddr, r.client, r.clientAddr = ours, g.Host(ipv6).String(), kernel, g.Addr(ipv6).String()
		} else {
			r.client, r.clientAddr, r.server, r.serverAddr = ours, g.Host(ipv6).String(), kernel, g.Addr(ipv6).String()
		}
		t.Run("we="+role+"/"+c.name(), func(t *testing.T) {
			start := time.Now()
			faults := 0
			defer func() { m.set(g.Line, weServe, c, result{outcome(t), faults, time.Since(start)}) }()
			if err := alive(t.Context(), g); err != nil {
				t.Fatalf("guest does not answer: %v", err)
			}
			faults = runCell(t, r, g)
		})
	}
}

func outcome(t *testing.T) string {
	switch {
	case t.Failed():
		return "FAIL"
	case t.Skipped():
		return "SKIP"
	}
	return "PASS"
}

// alive tells a dead guest from a failing tool, quickly.
func alive(ctx context.Context, g *guest.Guest) error {
	select {
	case <-g.Exited():
		return fmt.Errorf("it has ended")
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := guest.Run(ctx, g, "true")
	return err
}

// withLoss runs f while the guest loses packets, and checks that it did.
func withLoss(t *testing.T, g *guest.Guest, f func()) {
	t.Helper()
	set := func(ctx context.Context, percent float64) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := g.SetLoss(ctx, percent); err != nil {
			t.Error(err)
		}
	}
	set(t.Context(), lossPercent)
	f()
	sent, received, err := g.Losses(t.Context())
	t.Logf("guest %s lost %d of %d packets sent and %d of %d received", g.Line, sent.Lost, sent.Passed+sent.Lost, received.Lost, received.Passed+received.Lost)
	const enough = 1000 // then losing none is no chance
	if err != nil || sent.Passed > enough && sent.Lost == 0 || received.Passed > enough && received.Lost == 0 {
		t.Errorf("guest %s did not lose packets as it should: %v", g.Line, err)
	}
	set(t.Context(), 0)
}

// buildTool builds the program under test where an ordinary user can run it.
func buildTool(t *testing.T, h *guest.Host) string {
	t.Helper()
	dir, err := guest.TempDir("bin") // t.TempDir is for its owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "rocev2")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if given := os.Getenv(binEnv); given != "" {
		for from, to := range map[string]string{given: bin, given + "d": bin + "d"} {
			b, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, b, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	} else if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "github.com/gosoftroce/rocev2/cmd/rocev2", "github.com/gosoftroce/rocev2/cmd/rocev2d").CombinedOutput(); err != nil {
		t.Fatalf("build cmd/rocev2 and cmd/rocev2d: %v\n%s", err, out)
	}
	if err := writeFiles(bin); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Run(t.Context(), h.Unprivileged(), "test", "-x", bin); err != nil {
		t.Fatalf("an ordinary user cannot run the program: %v", err)
	}
	return bin
}

// writeFiles makes what rcopy copies, and the directory that it copies to.
func writeFiles(bin string) error {
	data := make([]byte, rcopySize)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // it does not fail
	err := errors.Join(os.WriteFile(sourceOf(bin), data, 0o644), os.Mkdir(filesOf(bin), 0o777))
	return errors.Join(err, os.Chmod(filesOf(bin), 0o777)) // without the umask
}

// version asks our program.
func version(t *testing.T, h *guest.Host, bin string) string {
	t.Helper()
	res, err := guest.Run(t.Context(), h.Unprivileged(), bin, "version")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(res.Stdout, "\n")
	return first
}
