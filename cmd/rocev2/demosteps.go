package main

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

// demoSteps is the table of the demo. Those that end a queue pair of the peer
// come last, for its flushed receives are not waited for.
var demoSteps = []demoStep{
	{"SEND", "a message into a receive buffer of the peer", 13, demoSend},
	{"SEND", "a message of many packets", demoArea, demoSend},
	{"SEND_IMM", "a message with 32 bits of immediate data", 4096, demoSendImm},
	{"WRITE", "into the peer's memory, without its program", 1_000_003, demoWrite},
	{"WRITE_IMM", "the same, and the peer gets a completion", 65536, demoWriteImm},
	{"READ", "out of the peer's memory", demoArea, demoRead},
	{"CMP_SWAP", "swaps a 64-bit word if it has the expected value", 8, demoCompareSwap},
	{"CMP_SWAP", "leaves it alone if it has another value", 8, demoCompareSwapFails},
	{"FETCH_ADD", "adds to a 64-bit word and returns what it was", 8, demoFetchAdd},
	{"ATOMIC_WRITE", "writes a 64-bit word of the peer at once", 8, demoAtomicWrite},
	{"FLUSH", "waits until what was written is visible to all there", 4096, demoFlush},
	{"SEND_INV", "a message that invalidates a key of the peer", 64, demoSendInv},
	{"WRITE", "with a key that the peer never gave", 64, demoWrongKey},
}

// pattern fills the own memory with bytes that depend on seed.
func pattern(b []byte, seed byte) {
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// finish waits for a request and for it alone.
func (d *demo) finish(ctx context.Context, wr verbs.SendWR) error {
	wc, err := d.do(ctx, d.qp, wr)
	if err != nil {
		return err
	}
	if err := wc.Err(); err != nil {
		return mismatchf("%v", err)
	}
	return nil
}

// sendAndCheck sends a pattern with wr and compares what the peer received.
func (d *demo) sendAndCheck(ctx context.Context, wr verbs.SendWR, size int, withImm bool) (string, error) {
	d.id++
	buf := d.mr.Bytes()[:size]
	pattern(buf, byte(d.id))
	wr.SGList = []verbs.SGE{d.mr.Slice(0, size)}
	if err := d.finish(ctx, wr); err != nil {
		return "", err
	}
	got, err := d.child.ask(ctx, demoAsk{Do: "received", Length: size})
	switch {
	case err != nil:
		return "", err
	case got.Length != size:
		return "", mismatchf("%d bytes arrived", got.Length)
	case got.WithImm != withImm || got.Imm != wr.Imm:
		return "", mismatchf("immediate data 0x%08x arrived (%v), expected 0x%08x", got.Imm, got.WithImm, wr.Imm)
	case got.Sum != sum(buf):
		return "", mismatchf("the content is different")
	}
	if withImm {
		return fmt.Sprintf("ok, content and immediate data 0x%08x", got.Imm), nil
	}
	return "ok, same content", nil
}

func demoSend(ctx context.Context, d *demo, size int) (string, error) {
	return d.sendAndCheck(ctx, verbs.SendWR{Opcode: verbs.OpSend}, size, false)
}

func demoSendImm(ctx context.Context, d *demo, size int) (string, error) {
	return d.sendAndCheck(ctx, verbs.SendWR{Opcode: verbs.OpSendImm, Imm: 0xcafe0001}, size, true)
}

func demoWriteImm(ctx context.Context, d *demo, size int) (string, error) {
	return d.sendAndCheck(ctx, verbs.SendWR{
		Opcode: verbs.OpWriteImm, Imm: 0xcafe0002, Remote: d.hello.Memory.At(0),
	}, size, true)
}

func demoWrite(ctx context.Context, d *demo, size int) (string, error) {
	buf := d.mr.Bytes()[:size]
	pattern(buf, 77)
	err := d.finish(ctx, verbs.SendWR{
		Opcode: verbs.OpWrite, SGList: []verbs.SGE{d.mr.Slice(0, size)}, Remote: d.hello.Memory.At(0),
	})
	if err != nil {
		return "", err
	}
	got, err := d.child.ask(ctx, demoAsk{Do: "sum", Length: size})
	if err != nil {
		return "", err
	}
	if got.Sum != sum(buf) {
		return "", mismatchf("the content is different")
	}
	return "ok, same content", nil
}

func demoRead(ctx context.Context, d *demo, size int) (string, error) {
	want, err := d.child.ask(ctx, demoAsk{Do: "fill", Length: size, Seed: 99})
	if err != nil {
		return "", err
	}
	buf := d.mr.Bytes()[:size]
	clear(buf)
	err = d.finish(ctx, verbs.SendWR{
		Opcode: verbs.OpRead, SGList: []verbs.SGE{d.mr.Slice(0, size)}, Remote: d.hello.Memory.At(0),
	})
	if err != nil {
		return "", err
	}
	if sum(buf) != want.Sum {
		return "", mismatchf("the content is different")
	}
	return "ok, same content", nil
}

// atomic runs an atomic operation on the peer's word, which holds before. It
// checks what is returned, and that the word is after then.
func (d *demo) atomic(ctx context.Context, wr verbs.SendWR, before, after uint64) (string, error) {
	if _, err := d.child.ask(ctx, demoAsk{Do: "store", Word: before}); err != nil {
		return "", err
	}
	wr.SGList = []verbs.SGE{d.mr.Slice(demoWord, 8)}
	wr.Remote = d.hello.Memory.At(demoWord)
	if err := d.finish(ctx, wr); err != nil {
		return "", err
	}
	old, err := d.mr.Load64(demoWord)
	if err != nil {
		return "", err
	}
	got, err := d.child.ask(ctx, demoAsk{Do: "load"})
	switch {
	case err != nil:
		return "", err
	case old != before:
		return "", mismatchf("it returned %d, expected %d", old, before)
	case got.Word != after:
		return "", mismatchf("the word is %d, expected %d", got.Word, after)
	case after == before:
		return fmt.Sprintf("ok, returned %d, still %d", old, got.Word), nil
	}
	return fmt.Sprintf("ok, returned %d, now %d", old, got.Word), nil
}

func demoCompareSwap(ctx context.Context, d *demo, _ int) (string, error) {
	return d.atomic(ctx, verbs.SendWR{Opcode: verbs.OpCompareSwap, CompareAdd: 1000, Swap: 2000}, 1000, 2000)
}

func demoCompareSwapFails(ctx context.Context, d *demo, _ int) (string, error) {
	return d.atomic(ctx, verbs.SendWR{Opcode: verbs.OpCompareSwap, CompareAdd: 1, Swap: 2}, 2000, 2000)
}

func demoFetchAdd(ctx context.Context, d *demo, _ int) (string, error) {
	return d.atomic(ctx, verbs.SendWR{Opcode: verbs.OpFetchAdd, CompareAdd: 42}, 2000, 2042)
}

func demoAtomicWrite(ctx context.Context, d *demo, size int) (string, error) {
	const before, after = 2042, 4711
	if _, err := d.child.ask(ctx, demoAsk{Do: "store", Word: before}); err != nil {
		return "", err
	}
	if err := d.mr.Store64(demoWord, after); err != nil {
		return "", err
	}
	err := d.finish(ctx, verbs.SendWR{
		Opcode: verbs.OpAtomicWrite, SGList: []verbs.SGE{d.mr.Slice(demoWord, size)}, Remote: d.hello.Memory.At(demoWord),
	})
	if err != nil {
		return "", err
	}
	got, err := d.child.ask(ctx, demoAsk{Do: "load"})
	if err != nil {
		return "", err
	}
	if got.Word != after {
		return "", mismatchf("the word is %d, expected %d", got.Word, after)
	}
	return fmt.Sprintf("ok, it was %d, now %d", before, got.Word), nil
}

// demoFlush posts a WRITE and the FLUSH of it at once, and waits for the FLUSH
// alone.
func demoFlush(ctx context.Context, d *demo, size int) (string, error) {
	buf := d.mr.Bytes()[:size]
	pattern(buf, 88)
	err := d.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{d.mr.Slice(0, size)}, Remote: d.hello.Memory.At(0)})
	if err != nil {
		return "", err
	}
	err = d.finish(ctx, verbs.SendWR{
		Opcode: verbs.OpFlush, FlushType: verbs.GlobalVisibility, FlushLevel: verbs.FlushRange,
		Length: uint32(size), Remote: d.hello.Memory.At(0),
	})
	if err != nil {
		return "", err
	}
	got, err := d.child.ask(ctx, demoAsk{Do: "sum", Length: size})
	if err != nil {
		return "", err
	}
	if got.Sum != sum(buf) {
		return "", mismatchf("the content is different")
	}
	return "ok, the content of a WRITE before it is there", nil
}

// demoSendInv has the peer grant a key, ends it with a message, and sees that
// it is refused then.
func demoSendInv(ctx context.Context, d *demo, size int) (string, error) {
	granted, err := d.child.ask(ctx, demoAsk{Do: "grant", Length: size})
	if err != nil {
		return "", err
	}
	write := verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{d.mr.Slice(0, size)}, Remote: granted.Memory.At(0)}
	if err := d.finish(ctx, write); err != nil {
		return "", err
	}
	err = d.finish(ctx, verbs.SendWR{
		Opcode: verbs.OpSendInv, SGList: []verbs.SGE{d.mr.Slice(0, size)}, InvalidateKey: granted.Memory.RKey,
	})
	if err != nil {
		return "", err
	}
	got, err := d.child.ask(ctx, demoAsk{Do: "received"})
	if err != nil {
		return "", err
	}
	if got.Invalidated != granted.Memory.RKey {
		return "", mismatchf("the peer was told that key %v is invalid, expected %v", got.Invalidated, granted.Memory.RKey)
	}
	status, err := d.tryOnce(ctx, write)
	if err != nil {
		return "", err
	}
	if status != verbs.StatusRemAccessErr {
		return "", mismatchf("a WRITE with the invalid key: %v, expected %v", status, verbs.StatusRemAccessErr)
	}
	return fmt.Sprintf("ok, a WRITE with the key is now refused with %v", status), nil
}

// tryOnce runs a request that may fail. It takes a queue pair of its own, since
// an error ends it on both sides.
func (d *demo) tryOnce(ctx context.Context, wr verbs.SendWR) (verbs.Status, error) {
	other, err := d.child.ask(ctx, demoAsk{Do: "newqp"})
	if err != nil {
		return 0, err
	}
	q, err := d.connect(ctx, other.Endpoint)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	wc, err := d.do(ctx, q, wr)
	return wc.Status, err
}

// demoWrongKey shows an error.
func demoWrongKey(ctx context.Context, d *demo, size int) (string, error) {
	before, err := d.child.ask(ctx, demoAsk{Do: "sum", Length: demoTotal})
	if err != nil {
		return "", err
	}
	bad := d.hello.Memory.At(0)
	bad.RKey ^= 0x5a5a5a5a
	status, err := d.tryOnce(ctx, verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{d.mr.Slice(0, size)}, Remote: bad})
	if err != nil {
		return "", err
	}
	if status != verbs.StatusRemAccessErr {
		return "", mismatchf("completion status %v, expected %v", status, verbs.StatusRemAccessErr)
	}
	after, err := d.child.ask(ctx, demoAsk{Do: "sum", Length: demoTotal})
	if err != nil {
		return "", err
	}
	if before.Sum != after.Sum {
		return "", mismatchf("the WRITE was refused, but the peer's memory has changed")
	}
	return fmt.Sprintf("ok, refused with %v as it must be", status), nil
}
