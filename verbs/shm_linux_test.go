//go:build !portable

package verbs_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

// shmAddr returns an address of 127.0.0.0/8 that no other test uses.
func shmAddr() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
}

const shmMemory = 1 << 20

// neighbour is the part of a process that another process reaches: what it
// prints, and what it is told.
type neighbour struct {
	Endpoint verbs.Endpoint
	Buffer   verbs.RemoteMemory
}

// TestNeighbour is not a test: TestSharedMemoryBetweenProcesses runs it as
// another process. It exports memory until its standard input ends.
func TestNeighbour(t *testing.T) {
	addr := os.Getenv("ROCEV2_TEST_NEIGHBOUR")
	if addr == "" {
		t.Skip("nothing is missing: TestSharedMemoryBetweenProcesses runs it, in a process of its own")
	}
	dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{SharedMemory: true})
	check(t, err)
	defer dev.Close()
	s := newSide(t, dev, shmMemory)
	out := json.NewEncoder(os.Stdout)
	fmt.Println() // after what package testing prints
	check(t, out.Encode(neighbour{s.qp.Endpoint(), s.mr.Remote()}))
	var peer verbs.Endpoint
	in := bufio.NewReader(os.Stdin)
	check(t, json.NewDecoder(in).Decode(&peer))
	check(t, s.qp.Connect(t.Context(), peer))
	check(t, out.Encode("connected"))
	_, _ = io.Copy(io.Discard, in)
	st := dev.Stats().Link
	check(t, out.Encode([2]uint64{st.TxShm, st.RxShm}))
}

// process is a neighbour that runs.
type process struct {
	neighbour
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	tmp string
}

func startNeighbour(t *testing.T, addr netip.Addr, tmp string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^TestNeighbour$"), tmp: tmp}
	p.cmd.Env = append(os.Environ(), "ROCEV2_TEST_NEIGHBOUR="+addr.String(), "TMPDIR="+tmp, "XDG_RUNTIME_DIR=")
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	check(t, err)
	out, err := p.cmd.StdoutPipe()
	check(t, err)
	check(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	p.out = json.NewDecoder(out)
	check(t, p.out.Decode(&p.neighbour))
	return p
}

// connectTo connects s to the process.
func (s *side) connectTo(p *process) {
	s.t.Helper()
	q := s.newQP(verbs.QPConfig{MaxSendWR: 64, MaxRecvWR: 64})
	s.qp = q
	check(s.t, q.Connect(s.t.Context(), p.Endpoint))
	check(s.t, json.NewEncoder(p.in).Encode(q.Endpoint()))
	var word string
	check(s.t, p.out.Decode(&word))
}

// rounds writes to the process's memory and reads it back, until n rounds have
// gone through shared memory.
func (s *side) rounds(p *process, n int) {
	s.t.Helper()
	const half = shmMemory / 2
	for i := 0; n > 0; i++ {
		was := s.dev.Stats().Link.TxShm
		want := s.fill(uint64(i))[:half]
		s.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, half)}, Remote: p.Buffer.At(0)})
		s.waitOK(1)
		s.post(verbs.SendWR{ID: 2, Opcode: verbs.OpRead, SGList: []verbs.SGE{s.mr.Slice(half, half)}, Remote: p.Buffer.At(0)})
		s.waitOK(2)
		if !bytes.Equal(s.mr.Bytes()[half:], want) {
			s.t.Fatal("what was written is not read")
		}
		if s.dev.Stats().Link.TxShm > was {
			n--
		}
	}
}

// Two processes share memory. One that is killed in the middle of a transfer
// takes only its own queue pairs with it; a process that comes after it at its
// address shares memory again. No file remains.
func TestSharedMemoryBetweenProcesses(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	var capture bytes.Buffer
	var recorder *tap.Link
	dev, err := verbs.OpenAddr(shmAddr(), verbs.Config{SharedMemory: true, Wrap: func(l verbs.Link) verbs.Link {
		var err error
		recorder, err = tap.New(l, &capture)
		check(t, err)
		return recorder
	}})
	check(t, err)
	defer dev.Close()
	addr := shmAddr()
	steady, victim := startNeighbour(t, shmAddr(), tmp), startNeighbour(t, addr, tmp)
	a, b := newSide(t, dev, shmMemory), newSide(t, dev, shmMemory)
	a.connectTo(steady)
	b.connectTo(victim)
	a.rounds(steady, 3)
	b.rounds(victim, 3)

	for i := range 16 {
		b.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpWrite, SGList: []verbs.SGE{b.mr.Slice(0, shmMemory)}, Remote: victim.Buffer.At(0)})
	}
	check(t, victim.cmd.Process.Kill())
	_ = victim.cmd.Wait()
	a.rounds(steady, 3)
	b.qp.Close() // whatever has become of it
	again := startNeighbour(t, addr, tmp)
	c := newSide(t, dev, shmMemory)
	c.connectTo(again)
	c.rounds(again, 2)
	a.rounds(steady, 2)

	if got := dev.SharedPeers(); len(got) != 2 { // through the wrapper
		t.Errorf("memory is shared with %v", got)
	}
	for _, p := range []*process{steady, again} {
		check(t, p.in.Close())
		var counts [2]uint64
		check(t, p.out.Decode(&counts))
		if counts[0] == 0 || counts[1] == 0 {
			t.Errorf("the process has sent %d packets through memory, and received %d", counts[0], counts[1])
		}
		check(t, p.cmd.Wait())
	}
	check(t, dev.Close())
	left, err := filepath.Glob(filepath.Join(tmp, "rocev2-*", "*"))
	if err != nil || len(left) > 0 || len(dev.SharedPeers()) > 0 {
		t.Errorf("left behind: %q, %v, %v", left, err, dev.SharedPeers())
	}
	checkCapture(t, capture.Bytes())
}

// checkCapture checks that a capture has whole packets with right ICRCs.
func checkCapture(t *testing.T, capture []byte) {
	t.Helper()
	frames, _ := captures.Frames(t, bytes.NewReader(capture))
	if len(frames) < shmMemory/4096 {
		t.Errorf("a capture of %d packets", len(frames))
	}
	for i, f := range frames {
		if !rocev2.VerifyDatagram(f) {
			t.Fatalf("packet %d of the capture, of %d bytes, has a wrong ICRC", i, len(f))
		}
	}
}

// Both sides must allow it, or everything takes the socket. Two
// devices of one process share memory, too.
func TestSharedMemoryIsASetting(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, off := range [][2]bool{{true, false}, {false, true}, {false, false}} {
		da, err := verbs.OpenAddr(shmAddr(), verbs.Config{SharedMemory: !off[0]})
		check(t, err)
		db, err := verbs.OpenAddr(shmAddr(), verbs.Config{SharedMemory: !off[1]})
		check(t, err)
		a, b := newSide(t, da, 4096), newSide(t, db, 4096)
		connect(t, a.qp, b.qp)
		shared := !off[0] && !off[1]
		both := func() bool { st := da.Stats().Link; return st.TxShm > 0 && st.RxShm > 0 }
		for i := uint64(0); i < 50 || shared && !both(); i++ {
			a.post(verbs.SendWR{ID: i, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 4096)}, Remote: b.mr.Remote().At(0)})
			a.waitOK(i)
			runtime.Gosched()
		}
		if st := da.Stats().Link; (st.TxShm > 0) != shared || (st.RxShm > 0) != shared {
			t.Errorf("off %v: %+v", off, st)
		}
		var want []netip.Addr
		if shared {
			want = []netip.Addr{db.Addr()}
		}
		if got := da.SharedPeers(); !slices.Equal(got, want) {
			t.Errorf("off %v: memory is shared with %v", off, got)
		}
		check(t, da.Close())
		check(t, db.Close())
	}
}
