package verbs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

var sizes = []int{0, 1, 3, 4, 255, 256, 1023, 1024, 1025, 4096, 4097, 65536, 1<<20 + 7}

// SEND, WRITE and READ carry all bytes at every path MTU (IBTA 9.4). A WRITE
// takes a receive only for its immediate data (IBTA C10-87).
func TestEveryOperationCarriesItsBytes(t *testing.T) {
	t.Parallel()
	for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096} {
		t.Run(fmt.Sprint(mtu.Bytes()), func(t *testing.T) {
			t.Parallel()
			a, b := newPair(t, 2<<20, verbs.WithMTU(mtu))
			// Filled once: a READ that was sent again may still
			// read here when its first copy has long completed.
			want := a.fill(1)
			for _, n := range sizes {
				clear(b.mr.Bytes())
				transferAll(t, a, b, n, want)
			}
		})
	}
}

func transferAll(t *testing.T, a, b *side, n int, want []byte) {
	t.Helper()
	local := []verbs.SGE{a.mr.Slice(5, n)}
	expect := func(op string) {
		t.Helper()
		if !bytes.Equal(b.mr.Bytes()[9:9+n], want[5:5+n]) {
			t.Fatalf("%s of %d bytes delivered something else", op, n)
		}
		clear(b.mr.Bytes())
	}

	b.recv(1, 9, n)
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, SGList: local})
	if wc := b.waitOK(1); wc.Opcode != verbs.WCRecv || int(wc.ByteLen) != n || wc.WithImm {
		t.Fatalf("receive completion %+v", wc)
	}
	a.waitOK(2)
	expect("SEND")

	b.recv(3, 9, n)
	a.post(verbs.SendWR{ID: 4, Opcode: verbs.OpSendImm, SGList: local, Imm: 0xcafe})
	if wc := b.waitOK(3); !wc.WithImm || wc.Imm != 0xcafe || int(wc.ByteLen) != n {
		t.Fatalf("receive completion %+v", wc)
	}
	a.waitOK(4)
	expect("SEND_WITH_IMM")

	a.post(verbs.SendWR{ID: 5, Opcode: verbs.OpWrite, SGList: local, Remote: b.mr.RemoteAt(9)})
	a.waitOK(5)
	expect("WRITE")

	b.recv(6, 0, 0)
	a.post(verbs.SendWR{ID: 7, Opcode: verbs.OpWriteImm, SGList: local, Remote: b.mr.RemoteAt(9), Imm: 7})
	if wc := b.waitOK(6); wc.Opcode != verbs.WCRecvWriteImm || wc.Imm != 7 || int(wc.ByteLen) != n {
		t.Fatalf("receive completion %+v", wc)
	}
	a.waitOK(7)
	expect("WRITE_WITH_IMM")

	b.post(verbs.SendWR{ID: 8, Opcode: verbs.OpRead, SGList: []verbs.SGE{b.mr.Slice(9, n)}, Remote: a.mr.RemoteAt(5)})
	b.waitOK(8)
	expect("READ")
}

// An atomic returns the value before it, also when a compare and swap writes
// nothing (IBTA 9.4.5).
func TestAtomicsReturnTheOldValue(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	check(t, b.mr.Store64(8, 40))
	atomic := func(wr verbs.SendWR) uint64 {
		t.Helper()
		wr.SGList, wr.Remote = []verbs.SGE{a.mr.Slice(0, 8)}, b.mr.RemoteAt(8)
		a.post(wr)
		a.waitOK(wr.ID)
		return binary.NativeEndian.Uint64(a.mr.Bytes())
	}
	if old := atomic(verbs.SendWR{ID: 1, Opcode: verbs.OpFetchAdd, CompareAdd: 2}); old != 40 {
		t.Errorf("FETCH_ADD returned %d, want 40", old)
	}
	if old := atomic(verbs.SendWR{ID: 2, Opcode: verbs.OpCompareSwap, CompareAdd: 41, Swap: 1}); old != 42 {
		t.Errorf("CMP_SWP returned %d, want 42", old)
	}
	if old := atomic(verbs.SendWR{ID: 3, Opcode: verbs.OpCompareSwap, CompareAdd: 42, Swap: 7}); old != 42 {
		t.Errorf("CMP_SWP returned %d, want 42", old)
	}
	if v, err := b.mr.Load64(8); v != 7 || err != nil {
		t.Errorf("the word is %d (%v), want 7", v, err)
	}
}

func TestInlineNeedsNoRegion(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	msg := []byte("not registered")
	b.recv(1, 0, 64)
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Inline: msg})
	clear(msg) // copied at the call
	b.waitOK(1)
	a.waitOK(2)
	if got := b.mr.Bytes()[:14]; string(got) != "not registered" {
		t.Errorf("received %q", got)
	}
}

func TestScatterGather(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 8192)
	want := a.fill(1)
	check(t, b.qp.PostRecv(verbs.RecvWR{ID: 1, SGList: []verbs.SGE{b.mr.Slice(0, 3), b.mr.Slice(100, 5000), b.mr.Slice(6000, 100)}}))
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.Slice(4000, 1), a.mr.Slice(0, 2000), a.mr.Slice(2000, 3000)}})
	b.waitOK(1)
	a.waitOK(2)
	sent := append(append(bytes.Clone(want[4000:4001]), want[:2000]...), want[2000:5000]...)
	m := b.mr.Bytes()
	got := append(append(bytes.Clone(m[0:3]), m[100:5000+100-0]...), m[6000:6100]...)
	if !bytes.Equal(got[:len(sent)], sent) {
		t.Error("gathered and scattered bytes differ")
	}
}

func TestUnsignaledSendsAreSilent(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	for i := range 10 {
		check(t, a.qp.PostSend(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpWrite, Signaled: i == 9,
			SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: b.mr.RemoteAt(0)}))
	}
	a.waitOK(9)
	var wc [1]verbs.WC
	if n := a.cq.Poll(wc[:]); n != 0 {
		t.Errorf("an unsignaled request completed: %+v", wc[0])
	}
}

func TestManyQueuePairsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 200
	a, b := newPair(t, 64*n)
	for i := range n {
		qa := a.newQP(verbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4})
		qb := b.newQP(verbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4})
		connect(t, qa, qb)
		check(t, qa.PostSend(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpWrite, Signaled: true,
			Inline: fmt.Appendf(nil, "queue pair %d", i), Remote: b.mr.RemoteAt(64 * i)}))
	}
	for range n {
		if wc := a.wait(); wc.Status != verbs.StatusSuccess {
			t.Fatalf("completion %+v", wc)
		}
	}
	for i := range n {
		want := fmt.Sprintf("queue pair %d", i)
		if got := string(b.mr.Bytes()[64*i : 64*i+len(want)]); got != want {
			t.Errorf("region holds %q, want %q", got, want)
		}
	}
}

// The key is dead when the receive completes, and the completion names it (IBTA
// 9.4.1.1.3).
func TestSendWithInvalidate(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	window, err := b.pd.RegisterMemory(make([]byte, 64), allAccess, verbs.Invalidatable())
	check(t, err)
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("in time"), Remote: window.RemoteAt(0)})
	a.waitOK(1)
	b.recv(2, 0, 64)
	a.post(verbs.SendWR{ID: 3, Opcode: verbs.OpSendInv, Inline: []byte("done"), InvalidateKey: window.RKey()})
	if wc := b.waitOK(2); !wc.WithInv || wc.InvalidatedKey != window.RKey() || wc.ByteLen != 4 {
		t.Errorf("receive completion %+v", wc)
	}
	a.waitOK(3)
	a.post(verbs.SendWR{ID: 4, Opcode: verbs.OpWrite, Inline: []byte("too late"), Remote: window.RemoteAt(0)})
	if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
		t.Errorf("a write with the invalidated key: %v", wc.Status)
	}
	if got := string(window.Bytes()[:7]); got != "in time" {
		t.Errorf("the region holds %q", got)
	}
}
