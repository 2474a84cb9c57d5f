//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// foreignEnv tells TestForeignSide what it does, our address, and the guest's.
const foreignEnv = "ROCEV2_E2E_FOREIGN"

// foreignPort is that of rdma_client and rdma_server.
const foreignPort = 7471

// foreignPeers has package rdma exchange messages with rdma_client and
// rdma_server, which know nothing of its protocol, and asks a program of
// librdmacm what it makes of an unknown vendor in the request (ECE).
func foreignPeers(t *testing.T, h *guest.Host, g *guest.Guest) {
	for _, ipv6 := range []bool{false, true} {
		family := "ipv4"
		if ipv6 {
			family = "ipv6"
		}
		t.Run("rdma listens/"+family, func(t *testing.T) {
			f := newForeign(t, h, g, ipv6, "listen")
			if err := until(f.ctx, f.h, "grep -q waits "+f.said()); err != nil {
				t.Errorf("we do not listen: %v", err)
			}
			if _, err := guest.Run(f.ctx, g, "rdma_client", "-s", f.ours.String()); err != nil {
				t.Error(err)
			}
			f.passes()
		})
		for _, role := range []string{"dial", "ece"} {
			t.Run("rdma dials/"+role+"/"+family, func(t *testing.T) {
				p, err := g.Start(t.Context(), "rdma_server", "-s", g.Addr(ipv6).String())
				if err != nil {
					t.Fatal(err)
				}
				if err := (meeting{space: "TCP"}).inGuest(t.Context(), g, foreignPort); err != nil {
					t.Fatal(err)
				}
				f := newForeign(t, h, g, ipv6, role)
				f.passes()
				late := time.AfterFunc(grace, func() { _ = p.Signal(syscall.SIGKILL) })
				defer late.Stop()
				if err := ended("rdma_server", p); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// foreign is our side, a process of its own, and the capture of what it does.
type foreign struct {
	t    *testing.T
	ctx  context.Context
	h    *guest.Host
	role string
	dir  string
	ours netip.Addr
	p    *guest.Process
	capt *capture
}

func newForeign(t *testing.T, h *guest.Host, g *guest.Guest, ipv6 bool, role string) *foreign {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	f := &foreign{t: t, ctx: ctx, h: h, role: role, dir: t.TempDir(), ours: g.Host(ipv6)}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f.capt, err = startCapture(t.Context(), h, g.Tap, filepath.Join(f.dir, "frames.pcap")); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("%s='%s %v %v' exec %s -test.run='^TestForeignSide$' -test.v >%s 2>&1", foreignEnv, role, f.ours, g.Addr(ipv6), self, f.said())
	if f.p, err = h.Start(ctx, "sh", "-c", line); err != nil {
		t.Fatal(err)
	}
	return f
}

// said is the file with what our side says.
func (f *foreign) said() string { return filepath.Join(f.dir, "said.txt") }

// passes waits for our side and checks what went over the wire.
func (f *foreign) passes() {
	f.t.Helper()
	err := ended("we", f.p)
	if _, stopErr := f.capt.stop(); stopErr != nil {
		f.t.Error(stopErr)
	}
	said, _ := os.ReadFile(f.said()) // what is missing is an error
	if err != nil || !bytes.Contains(said, []byte("--- PASS: TestForeignSide")) {
		f.t.Errorf("%v\n%s", err, said)
	}
	if _, err := checkCapture(f.capt.file); err != nil {
		f.t.Error(err)
	}
	if f.role == "listen" {
		return
	}
	// The kernel must have taken the first request, as we have made it.
	vendor, options := uint32(cm.Vendor), uint32(0)
	if f.role == "ece" {
		vendor, options = strange.VendorID, strange.Options
	}
	requests, err := requestsIn(f.capt.file, f.ours)
	if err != nil || len(requests) != 1 || requests[0].VendorID != vendor || options != 0 && requests[0].Options != options {
		f.t.Errorf("our requests were %+v, expected one of the vendor %#x (%v)", requests, vendor, err)
	}
}

// requestsIn returns what the requests of one sender say of it, each
// communication ID once.
func requestsIn(file string, src netip.Addr) (list []mad.ECE, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := dissect.Open(f)
	if err != nil {
		return nil, err
	}
	seen := map[mad.CommID]bool{}
	for {
		p, err := c.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if req, ok := p.Mgmt.Message.(*mad.REQ); ok && p.IP.Src == src && !seen[req.LocalID] {
			seen[req.LocalID] = true
			list = append(list, req.ECE)
		}
	}
}

// strange is a vendor that no driver knows.
var strange = cm.ECE{VendorID: 0xabcdef, Options: 0x1234567}

// TestForeignSide is the part of foreignPeers that runs in the network
// namespace.
func TestForeignSide(t *testing.T) {
	what := strings.Fields(os.Getenv(foreignEnv))
	if len(what) != 3 {
		t.Skip("nothing is missing: TestKernelTarget runs it, in a process of its own")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	dev := must(verbs.Open(what[1]))(t)
	defer dev.Close()
	ours, theirs := netip.AddrPortFrom(dev.Addr(), foreignPort), netip.AddrPortFrom(netip.MustParseAddr(what[2]), foreignPort)
	switch what[0] {
	case "listen":
		l := must((&rdma.ListenConfig{Device: dev}).Listen(ctx, ours.String()))(t)
		defer l.Close()
		fmt.Println("it waits")
		c := must(l.Accept(ctx))(t)
		// rdma_client sends first. It disconnects when it has our
		// answer.
		echo(ctx, t, c, true)
	case "dial":
		c := must((&rdma.Dialer{Device: dev}).Dial(ctx, theirs.String()))(t)
		echo(ctx, t, c, false)
	case "ece":
		dialStrange(ctx, t, dev, theirs)
	}
}

// foreignSize is the length of the messages of rdma_client.
const foreignSize = 16

// echo exchanges one message each way.
func echo(ctx context.Context, t *testing.T, c *rdma.Conn, answers bool) {
	defer c.Close()
	if !c.Foreign() {
		t.Error("the peer is taken for package rdma")
	}
	send := func() {
		if err := c.Send(ctx, make([]byte, foreignSize)); err != nil {
			t.Errorf("send: %v", err)
		}
	}
	if !answers {
		send()
	}
	b := make([]byte, 64)
	if n, err := c.Recv(ctx, b); n != foreignSize || err != nil {
		t.Errorf("received %d bytes, not %d: %v", n, foreignSize, err)
	}
	if answers {
		send()
	}
	// Both tools disconnect when they are done.
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Error("the peer does not disconnect")
	}
}

// dialStrange connects with the ECE of an unknown vendor, and does what
// rdma_client does.
func dialStrange(ctx context.Context, t *testing.T, dev *verbs.Device, to netip.AddrPort) {
	pd := must(dev.AllocPD())(t)
	cq := must(dev.CreateCQ(16))(t)
	qp := must(pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
	mr := must(pd.AllocMemory(foreignSize, verbs.LocalWrite))(t)
	if err := qp.Init(); err != nil {
		t.Fatal(err)
	}
	sg := []verbs.SGE{mr.Slice(0, foreignSize)}
	if err := qp.PostRecv(verbs.RecvWR{SGList: sg}); err != nil {
		t.Fatal(err)
	}
	c := must(cm.Dial(ctx, qp, to, cm.DialConfig{ECE: strange}))(t)
	defer c.Close()
	if got := c.ECE(); got != (cm.ECE{}) {
		t.Logf("the kernel says of itself: %v", got)
	}
	if err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: sg}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var wc [1]verbs.WC
		if _, err := cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != verbs.StatusSuccess {
			t.Fatalf("%v, %v", wc[0], err)
		}
	}
	if err := c.Disconnect(ctx); err != nil {
		t.Error(err)
	}
}
