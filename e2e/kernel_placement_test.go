//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/verbs"
)

// placementEnv tells TestPlacementSide where it is: our address, the guest's,
// its TCP port and its kernel.
const placementEnv = "ROCEV2_E2E_PLACEMENT"

// TestKernelPlacement runs ATOMIC WRITE and FLUSH between us and the kernels,
// in both roles, with a program of ours in the guest. Linux has them since
// 6.12: before, both sides must say so.
func TestKernelPlacement(t *testing.T) {
	lab := startLab(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range lab.Guests {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ipv6=%v", g.Line, ipv6), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				port := 7000 + 2*i + g.GIDIndex(ipv6)
				p, err := g.Start(ctx, "/placement", "-p", strconv.Itoa(port), "-x", strconv.Itoa(g.GIDIndex(ipv6)))
				if err != nil {
					t.Fatal(err)
				}
				if err := g.WaitListen(ctx, port); err != nil {
					_ = p.Signal(syscall.SIGKILL)
					t.Fatalf("%v: %v", err, ended("the program in the guest", p))
				}
				cmd := lab.Host.Command(ctx, self, "-test.run=^TestPlacementSide$", "-test.v")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v %v %v %d %s", placementEnv, g.Host(ipv6), g.Addr(ipv6), g.Addr4, port, g.Line))
				out, err := cmd.CombinedOutput()
				if err != nil || !bytes.Contains(out, []byte("--- PASS: TestPlacementSide")) {
					stdout, stderr := p.Output()
					t.Errorf("%v\n%s\nin the guest: %s%s\n%s", err, out, stdout, stderr, lastLines(g))
				} else {
					t.Logf("%s", out)
				}
				_ = p.Signal(syscall.SIGKILL)
			})
		}
	}
}

func lastLines(g *guest.Guest) string {
	lines := strings.Split(strings.TrimSpace(g.Serial()), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// placement is our side of a connection to the program in a guest.
type placement struct {
	t        *testing.T
	conn     net.Conn
	lines    *bufio.Scanner
	cq       *verbs.CQ
	qp       *verbs.QP
	mem      *verbs.MR
	file     *verbs.MR
	fileName string
	peer     verbs.RemoteMemory
}

// TestPlacementSide is the part of TestKernelPlacement that runs in the network
// namespace.
func TestPlacementSide(t *testing.T) {
	where := strings.Fields(os.Getenv(placementEnv))
	if len(where) != 5 {
		t.Skip("nothing is missing: TestKernelPlacement runs it, in a process of its own")
	}
	p := newPlacement(t, where[0], where[1], net.JoinHostPort(where[2], where[3]))
	if where[4] == "6.1" {
		p.notThere()
		return
	}
	p.toGuest()
	p.fromGuest()
	// A guest's memory has no storage below it.
	if wc := p.do(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.Persistence, Length: 8, Remote: p.peer.At(0)}); wc.Status != verbs.StatusRemInvReqErr && wc.Status != verbs.StatusRemAccessErr {
		t.Errorf("a FLUSH to storage that is not there: %v", wc)
	}
}

func newPlacement(t *testing.T, ours, theirs, control string) *placement {
	p := &placement{t: t, fileName: filepath.Join(t.TempDir(), "file")}
	dev := must(verbs.Open(ours))(t)
	t.Cleanup(func() { dev.Close() })
	pd := must(dev.AllocPD())(t)
	p.cq = must(dev.CreateCQ(64))(t)
	rights := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.FlushGlobal
	p.mem = must(pd.RegisterMemory(make([]byte, 1<<16), rights))(t)
	f := must(os.Create(p.fileName))(t)
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.file, err = pd.MapFile(f, 0, 1<<16, rights|verbs.FlushPersistent); err != nil {
		t.Logf("without persistence: %v", err) // the file is in memory itself
		p.file = must(pd.MapFile(f, 0, 1<<16, rights))(t)
	}
	p.qp = must(pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, MaxSendWR: 16, MaxRecvWR: 16}))(t)
	p.conn = must(net.Dial("tcp", control))(t)
	t.Cleanup(func() { p.conn.Close() })
	p.lines = bufio.NewScanner(p.conn)
	var qpn verbs.QPN
	var length uint64
	if _, err := fmt.Sscanf(p.line(), "qp %d mem %v %v %v", &qpn, &p.peer.Addr, &p.peer.RKey, &length); err != nil {
		t.Fatal(err)
	}
	p.peer.Length = length
	me := p.qp.Endpoint()
	if got := p.command("connect %d %d %s", me.QPN, me.PSN, ours); got != "ok" {
		t.Fatal(got)
	}
	peer := verbs.Endpoint{Addr: netip.MustParseAddr(theirs), QPN: qpn, PSN: me.PSN}
	if err := p.qp.Connect(t.Context(), peer, verbs.WithMTU(verbs.MTU1024)); err != nil {
		t.Fatal(err)
	}
	return p
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (p *placement) line() string {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(time.Minute)) // the scanner says so
	if !p.lines.Scan() {
		p.t.Fatalf("the program in the guest is gone: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// command has the guest do something, and returns its answer.
func (p *placement) command(format string, args ...any) string {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.conn, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
	return p.line()
}

// do posts a request and waits for its completion.
func (p *placement) do(wr verbs.SendWR) verbs.WC {
	p.t.Helper()
	wr.Signaled = true
	if err := p.qp.PostSend(wr); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := p.cq.Wait(ctx, wc[:]); err != nil {
		p.t.Fatal(err)
	}
	return wc[0]
}

func (p *placement) want(what string, wc verbs.WC, op verbs.WCOpcode) {
	p.t.Helper()
	if wc.Status != verbs.StatusSuccess || wc.Opcode != op {
		p.t.Fatalf("%s: %v", what, wc)
	}
}

// toGuest: we write into the guest's memory and flush it. The first FLUSH goes
// twice, because Linux drops what is sealed as the standard has it.
func (p *placement) toGuest() {
	t := p.t
	word := []byte("ATOMICWR")
	p.want("ATOMIC WRITE", p.do(verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: word, Remote: p.peer.At(64)}), verbs.WCAtomicWrite)
	if got := p.command("peek 56 24"); got != strings.Repeat("00", 8)+hex.EncodeToString(word)+strings.Repeat("00", 8) {
		t.Errorf("the guest's memory is %s", got)
	}
	p.want("WRITE", p.do(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{p.mem.Slice(0, 4000)}, Remote: p.peer.At(4096)}), verbs.WCWrite)
	flush := verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.GlobalVisibility, Length: 4000, Remote: p.peer.At(4096)}
	p.want("FLUSH", p.do(flush), verbs.WCFlush)
	first := p.qp.Stats().Retransmits
	if first == 0 {
		t.Log("the kernel took a FLUSH with the ICRC of the standard")
	}
	for range 3 {
		p.want("FLUSH", p.do(flush), verbs.WCFlush)
	}
	flush.FlushLevel = verbs.FlushRegion
	p.want("FLUSH of the region", p.do(flush), verbs.WCFlush)
	t.Logf("retransmitted: %d with the first FLUSH, %d with four others", first, p.qp.Stats().Retransmits-first)
	// One after the other, without waiting.
	for i := range 12 {
		wr := flush
		if i%3 == 1 {
			wr = verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: binary.BigEndian.AppendUint64(nil, uint64(i)), Remote: p.peer.At(128)}
		}
		wr.Signaled = i == 11
		if err := p.qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
	}
	var wc [1]verbs.WC
	if _, err := p.cq.Wait(t.Context(), wc[:]); err != nil {
		t.Fatal(err)
	}
	p.want("the last of twelve", wc[0], verbs.WCFlush)
	if got := p.command("peek 128 8"); got != "000000000000000a" {
		t.Errorf("the last of four ATOMIC WRITEs left %s", got)
	}
}

// fromGuest: the guest writes into our memory and flushes it, also to a disk.
func (p *placement) fromGuest() {
	t := p.t
	at := p.mem.RemoteAt(256)
	ok := func(format string, args ...any) {
		t.Helper()
		if got := p.command(format, args...); got != "status 0" {
			t.Fatalf("%s: %s", fmt.Sprintf(format, args...), got)
		}
	}
	for i := range 20 { // more than our queue pair keeps
		word := fmt.Sprintf("%08d", i)
		ok("atomic-write %#x %#x %x", at.Addr, uint32(at.RKey), word)
		if got := string(p.mem.Bytes()[256:264]); got != word {
			t.Fatalf("ATOMIC WRITE left %q, not %q", got, word)
		}
		ok("flush %#x %#x 8 1 0", at.Addr, uint32(at.RKey))
	}
	ok("flush 0 %#x 0 1 1", uint32(at.RKey))
	place := p.file.RemoteAt(4096)
	data := bytes.Repeat([]byte("flushed "), 300)
	ok("write %#x %#x %x", place.Addr, uint32(place.RKey), data)
	if p.file.Access()&verbs.FlushPersistent == 0 {
		return
	}
	ok("flush %#x %#x %d 2 0", place.Addr, uint32(place.RKey), len(data))
	got, err := os.ReadFile(p.fileName)
	if err != nil || !bytes.Equal(got[4096:4096+len(data)], data) {
		t.Errorf("the file does not have what was flushed: %v", err)
	}
	ok("flush 0 %#x 0 3 1", uint32(place.RKey))
}

// notThere: a kernel without the operations drops them, and refuses to post
// them.
func (p *placement) notThere() {
	t := p.t
	if wc := p.do(verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: []byte("ATOMICWR"), Remote: p.peer.At(64)}); wc.Status != verbs.StatusRetryExcErr {
		t.Errorf("ATOMIC WRITE: %v", wc)
	}
	at := p.mem.RemoteAt(256)
	if got := p.command("atomic-write %#x %#x %x", at.Addr, uint32(at.RKey), "ATOMICWR"); got != "status 2" {
		t.Errorf("ATOMIC WRITE of the guest: %s", got)
	}
}
