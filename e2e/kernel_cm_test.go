//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// cmTool is a tool that connects by the connection manager. @s stands for the
// server's address, and @c for the client's. Ours has the flags of the
// original, and @d for what names its device.
type cmTool struct {
	name           string
	server, client string // arguments
	ours           string // our command, if it is not the name
	kernel         string // flags of the original alone
	only4          bool   // it connects over IPv4 only
	endless        bool   // the original's server does not end
	unreliable     bool   // it does not repeat what is lost
}

var cmTools = []cmTool{
	{name: "rping", server: "-s -v -S 1000 -a @s", client: "-c -v -V -C 20 -S 1000 -I @c -a @s"},
	{name: "ucmatose", server: "-b @s -c 5 -C 20 -S 2000", client: "-b @c -s @s -c 5 -C 20 -S 2000"},
	{name: "udaddy", server: "-b @s -c 3", client: "-b @c -s @s -c 3", unreliable: true},
	{name: "rdma_client", server: "-s @s", client: "-s @s @d"},
	{name: "rdma_xclient", server: "@d", client: "-s @s @d", only4: true},
	{name: "cmtime", server: "-b @s -c 20", client: "-b @c -s @s -c 20", endless: true},
	{name: "ib_write_bw", ours: "perf write_bw", server: "-z -n 20 @d", client: "-z -n 20 @d @s", kernel: "-d rxe0 -x 1 -F", only4: true},
	{name: "ib_write_bw", ours: "perf write_bw", server: "-R -n 20 -q 2 @d", client: "-R -n 20 -q 2 @d @s", kernel: "-d rxe0 -x 1 -F", only4: true},
	{name: "ib_read_bw", ours: "perf read_bw", server: "-R -n 20 @d", client: "-R -n 20 @d @s", kernel: "-d rxe0 -x 1 -F", only4: true},
	{name: "ib_send_lat", ours: "perf send_lat", server: "-R -n 20 @d", client: "-R -n 20 @d @s", kernel: "-d rxe0 -x 1 -F", only4: true},
	{name: "ib_write_lat", ours: "perf write_lat", server: "-R -n 20 @d", client: "-R -n 20 @d @s", kernel: "-d rxe0 -x 1 -F", only4: true},
}

// cell names the tool with what tells it from others.
func (c cmTool) cell() string {
	for _, flag := range []string{"-z", "-R"} {
		if strings.Contains(c.client+" ", flag+" ") && c.kernel != "" {
			return c.name + flag
		}
	}
	return c.name
}

// argv is the command of one side.
func (c cmTool) argv(bin string, weAre, serves bool, server, client netip.Addr) []string {
	name, args, device := c.name, c.client, client
	if serves {
		name, args, device = strings.Replace(c.name, "client", "server", 1), c.server, server
	}
	at := "-d " + device.String()
	switch {
	case !weAre:
		at = c.kernel
	case c.ours != "":
		name = bin + " " + c.ours
	default:
		name = bin + " " + name
	}
	return strings.Fields(name + " " + strings.NewReplacer("@s", server.String(), "@c", client.String(), "@d", at).Replace(args))
}

// TestKernelCM runs the tools that connect by the connection manager, in both
// roles, and then those that repeat what is lost while the guest loses packets.
func TestKernelCM(t *testing.T) {
	lab := startLab(t)
	bin := buildTool(t, lab.Host)
	for _, g := range lab.Guests {
		t.Run(g.Line, func(t *testing.T) {
			t.Parallel() // every guest has an address of ours to itself
			for _, weServe := range []bool{true, false} {
				cmColumn(t, lab.Host, bin, g, weServe, false)
			}
			withLoss(t, g, func() {
				for _, weServe := range []bool{true, false} {
					cmColumn(t, lab.Host, bin, g, weServe, true)
				}
			})
		})
	}
}

// cmColumn runs the tools in one role of ours.
func cmColumn(t *testing.T, h *guest.Host, bin string, g *guest.Guest, weServe, lossy bool) {
	for _, c := range cmTools {
		for _, ipv6 := range []bool{false, true} {
			if ipv6 && (c.only4 || lossy) || lossy && c.unreliable {
				continue
			}
			role, family := "client", "ipv4"
			if weServe {
				role = "server"
			}
			if ipv6 {
				family = "ipv6"
			}
			name := fmt.Sprintf("we=%s/%s/%s", role, c.cell(), family)
			if lossy {
				name += fmt.Sprintf("/loss%d%%", lossPercent)
			}
			t.Run(name, func(t *testing.T) {
				r := &cmRun{tool: c, bin: bin, host: h, guest: g, weServe: weServe, ours: g.Host(ipv6), theirs: g.Addr(ipv6), out: failureDir(t)}
				if err := r.do(t.Context()); err != nil {
					t.Errorf("%v\ncapture and output of both sides: %s", err, r.out)
					return
				}
				_ = os.RemoveAll(r.out)
				_ = os.Remove(filepath.Dir(r.out)) // only when empty
			})
		}
	}
}

// cmRun is one cell.
type cmRun struct {
	tool         cmTool
	bin          string
	host         *guest.Host
	guest        *guest.Guest
	weServe      bool
	ours, theirs netip.Addr
	out          string
}

func (r *cmRun) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not done after 2 minutes"))
	defer cancel()
	if err := errors.Join(alive(ctx, r.guest), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	capt, err := startCapture(context.WithoutCancel(ctx), r.host, r.guest.Tap, filepath.Join(r.out, "frames.pcap"))
	if err != nil {
		return err
	}
	toolErr := r.tools(ctx)
	dropped, err := capt.stop()
	if err != nil {
		return errors.Join(toolErr, err)
	}
	sum, err := checkCapture(capt.file)
	if err != nil || dropped > 0 {
		return errors.Join(toolErr, err)
	}
	for _, a := range []netip.Addr{r.ours, r.theirs} {
		if sum[a] == nil || sum[a].frames == 0 {
			err = errors.Join(err, fmt.Errorf("%v sent no frames", a))
		} else if a == r.ours && sum[a].changed != "" {
			err = errors.Join(err, fmt.Errorf("we broke the protocol: %s", sum[a].changed))
		}
	}
	return errors.Join(toolErr, err)
}

// tools runs server and client to their ends.
func (r *cmRun) tools(ctx context.Context) error {
	us := guest.Node(r.host.Unprivileged())
	server, client, serverAddr, clientAddr := us, guest.Node(r.guest), r.ours, r.theirs
	if !r.weServe {
		server, client, serverAddr, clientAddr = client, server, clientAddr, serverAddr
	}
	srv, err := server.Start(ctx, r.tool.argv(r.bin, r.weServe, true, serverAddr, clientAddr)...)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	rec := &run{out: r.out}
	defer rec.record("server", server, srv)
	if err := r.listening(ctx, srv); err != nil {
		_ = srv.Signal(syscall.SIGKILL)
		return errors.Join(err, ended("server", srv))
	}
	cl, err := client.Start(ctx, r.tool.argv(r.bin, !r.weServe, false, serverAddr, clientAddr)...)
	if err != nil {
		_ = srv.Signal(syscall.SIGKILL)
		return fmt.Errorf("client: %w", err)
	}
	defer rec.record("client", client, cl)
	stop := context.AfterFunc(ctx, func() { _ = cl.Signal(syscall.SIGKILL) })
	defer stop()
	err = ended("client", cl)
	limit := grace
	if err != nil {
		limit = graceFailed
	}
	if r.tool.endless && !r.weServe {
		_ = srv.Signal(syscall.SIGKILL)
		<-srv.Done()
		return err
	}
	late := time.AfterFunc(limit, func() { _ = srv.Signal(syscall.SIGKILL) })
	defer late.Stop()
	return errors.Join(err, ended("server", srv))
}

// listening waits until the server listens: ours says so, and of a guest the
// kernel tells.
func (r *cmRun) listening(ctx context.Context, srv *guest.Process) error {
	for {
		if r.weServe {
			if _, said := srv.Output(); strings.Contains(said, "waiting on port") {
				return nil
			}
		} else if res, err := guest.Run(ctx, r.guest, "rdma", "resource", "show", "cm_id"); err == nil && strings.Contains(res.Stdout, "state LISTEN") {
			return nil
		}
		select {
		case <-srv.Done():
			return errors.New("the server ended before it listened")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
