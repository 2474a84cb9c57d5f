//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/verbs"
)

// multicastEnv tells TestMulticastSide what it is: "send" or "receive", our
// address, the guest's, and the group.
const multicastEnv = "ROCEV2_E2E_MULTICAST"

// What mckey of rdma-core does: so many datagrams of so many bytes, with the
// number of the sender's queue pair as immediate data, and the Q_Key of the
// connection manager.
const (
	mckeyMessages = 10
	mckeySize     = 100
	mckeyQKey     = 0x01234567
	mckeySlot     = verbs.GRHLen + mckeySize

	// mckey does not wait for the completions of what it sends before it
	// leaves, and Linux 6.12 then sends a part of it: one at least.
	mckeySure = 1
)

// TestKernelMulticast sends datagrams to a multicast group, from a kernel to us
// and from us to a kernel. Linux's rdma_cm joins IPv4 groups only.
func TestKernelMulticast(t *testing.T) {
	lab := startLab(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range lab.Guests {
		group := netip.AddrFrom4([4]byte{239, 18, 0, byte(i + 1)})
		side := func(ctx context.Context, role string) *exec.Cmd {
			cmd := lab.Host.Command(ctx, self, "-test.run=^TestMulticastSide$", "-test.v")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v %v %v", multicastEnv, role, g.Host4, g.Addr4, group))
			return cmd
		}
		t.Run(g.Line+"/kernel sends", func(t *testing.T) { kernelSends(t, g, group, side) })
		t.Run(g.Line+"/we send", func(t *testing.T) { weSend(t, g, group, side) })
	}
}

// mckeyArgv is the tool in a guest. It ends when it has sent or received all
// its messages.
func mckeyArgv(g *guest.Guest, group netip.Addr, more ...string) []string {
	return append([]string{"mckey", "-b", g.Addr4.String(), "-m", group.String()}, more...)
}

// kernelSends starts us, and then the sender, which waits for 3 s before it
// sends.
func kernelSends(t *testing.T, g *guest.Guest, group netip.Addr, side func(context.Context, string) *exec.Cmd) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	us := side(ctx, "receive")
	said, err := us.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	out, ready := bufio.NewReader(said), ""
	for err == nil && !strings.Contains(ready, joined) {
		ready, err = out.ReadString('\n')
	}
	sent, err := guest.Run(ctx, g, mckeyArgv(g, group, "-s")...)
	if err == nil {
		err = sent.Err()
	}
	if err != nil {
		t.Errorf("mckey -s: %v", err)
		_ = us.Process.Kill()
	}
	rest, _ := io.ReadAll(out) // what is missing is an error
	if err := us.Wait(); err != nil || !bytes.Contains(rest, []byte("--- PASS: TestMulticastSide")) {
		t.Errorf("we: %v\n%s", err, rest)
	}
}

// weSend starts the receiver, and sends until it has all that it wants.
func weSend(t *testing.T, g *guest.Guest, group netip.Addr, side func(context.Context, string) *exec.Cmd) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := g.Start(ctx, mckeyArgv(g, group)...)
	if err != nil {
		t.Fatal(err)
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	us := side(sending, "send")
	var out bytes.Buffer
	us.Stdout, us.Stderr = &out, &out
	us.Cancel = func() error { return us.Process.Signal(syscall.SIGTERM) }
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	if err := ended("the receiver", p); err != nil {
		t.Error(err)
	}
	stop()
	_ = us.Wait() // it was ended
	if t.Failed() {
		t.Logf("we: %s", out.String())
	}
}

// TestMulticastSide is the part of TestKernelMulticast that runs in the network
// namespace.
func TestMulticastSide(t *testing.T) {
	what := strings.Fields(os.Getenv(multicastEnv))
	if len(what) != 4 {
		t.Skip("nothing is missing: TestKernelMulticast runs it, in a process of its own")
	}
	dev, err := verbs.Open(what[1])
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m := newMulticast(t, dev, netip.MustParseAddr(what[3]))
	if what[0] == "send" {
		m.send()
		return
	}
	m.receive(netip.MustParseAddr(what[2]))
}

// multicast is a queue pair of ours that takes part in a group.
type multicast struct {
	t     *testing.T
	group netip.Addr
	pd    *verbs.PD
	mr    *verbs.MR
	cq    *verbs.CQ
	qp    *verbs.QP
}

func newMulticast(t *testing.T, dev *verbs.Device, group netip.Addr) *multicast {
	t.Helper()
	m := &multicast{t: t, group: group}
	var err error
	check := func() {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	m.pd, err = dev.AllocPD()
	check()
	m.mr, err = m.pd.AllocMemory(mckeyMessages*mckeySlot, verbs.LocalWrite)
	check()
	m.cq, err = dev.CreateCQ(64)
	check()
	m.qp, err = m.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: m.cq, RecvCQ: m.cq, MaxSendWR: 1, MaxRecvWR: 32})
	check()
	err = m.qp.Init()
	check()
	return m
}

// next waits for a completion.
func (m *multicast) next() verbs.WC {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 45*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := m.cq.Wait(ctx, wc[:]); err != nil {
		m.t.Fatal(err)
	}
	return wc[0]
}

// joined is what our side says when it takes part in the group.
const joined = "takes part in"

// receive takes what mckey sends to the group.
func (m *multicast) receive(from netip.Addr) {
	t := m.t
	for i := range mckeyMessages {
		wr := verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{m.mr.Slice(i*mckeySlot, mckeySlot)}}
		if err := m.qp.PostRecv(wr); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.qp.Activate(mckeyQKey); err != nil {
		t.Fatal(err)
	}
	if err := m.qp.Attach(m.group); err != nil {
		t.Fatal(err)
	}
	fmt.Println(joined, m.group)
	for i := range mckeySure {
		wc := m.next()
		grh, err := verbs.ParseGRH(m.mr.Bytes()[wc.ID*mckeySlot:])
		if err != nil || grh.Src != from || grh.Dst != m.group {
			t.Errorf("message %d: header %+v, %v; expected from %v to %v", i, grh, err, from, m.group)
		}
		if wc.Status != verbs.StatusSuccess || wc.ByteLen != mckeySlot || !wc.WithImm || verbs.QPN(wc.Imm) != wc.SrcQPN {
			t.Errorf("message %d: %+v", i, wc)
		}
	}
}

// send sends what mckey waits for, slowly and again and again: it joins the
// group some time after it is started.
func (m *multicast) send() {
	t := m.t
	if err := m.qp.Activate(mckeyQKey); err != nil {
		t.Fatal(err)
	}
	ah, err := m.pd.CreateAH(verbs.AddressVector{DGID: m.group})
	if err != nil {
		t.Fatal(err)
	}
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for range pace.C {
		err := m.qp.PostSend(verbs.SendWR{
			Opcode: verbs.OpSendImm, Imm: uint32(m.qp.QPN()), Signaled: true, SGList: []verbs.SGE{m.mr.Slice(0, mckeySize)},
			AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: mckeyQKey,
		})
		if err != nil {
			t.Fatal(err)
		}
		if wc := m.next(); wc.Status != verbs.StatusSuccess {
			t.Fatalf("%+v", wc)
		}
	}
}
