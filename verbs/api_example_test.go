package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// connected returns two connected ends of an in-process network, and the memory
// of the second.
func connected() (a, b endpoint, target verbs.RemoteMemory, done func()) {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	devA, a, _ := open(linkA, "hello, remote memory")
	devB, b, target := open(linkB, "")
	must(a.qp.Connect(context.Background(), b.qp.Endpoint()))
	must(b.qp.Connect(context.Background(), a.qp.Endpoint()))
	return a, b, target, func() { devA.Close(); devB.Close() }
}

// A completion without success is an error that says what it means. errors.Is
// tells the status.
func ExampleWCError() {
	a, _, target, done := connected()
	defer done()
	remote := target.At(0)
	remote.RKey++ // not the key that the peer gave
	must(a.qp.PostSend(verbs.SendWR{ID: 7, Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: remote, Signaled: true}))
	var wc [1]verbs.WC
	_, err := a.cq.Wait(context.Background(), wc[:])
	must(err)
	err = wc[0].Err()
	fmt.Println(errors.Is(err, verbs.StatusRemAccessErr), errors.Is(err, verbs.StatusRetryExcErr))
	fmt.Println(wc[0].Explain())
	fmt.Println(wc[0].Vendor())
	// Output:
	// true false
	// the peer refuses the address, the key or the access
	// the peer sent NAK: remote access error (vendor error 0x262)
}

// A full queue is no failure: what was accepted completes, and makes room for
// the rest.
func ExampleQP_PostSend_queueFull() {
	a, _, target, done := connected()
	defer done()
	wrs := make([]verbs.SendWR, 200) // the queue has 128 entries
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: target.At(0), Signaled: i%8 == 7}
	}
	var wc [16]verbs.WC
	completed := 0
	for len(wrs) > 0 {
		err := a.qp.PostSend(wrs...)
		var post *verbs.PostError
		switch {
		case err == nil:
			wrs = nil
		case errors.Is(err, verbs.ErrQueueFull) && errors.As(err, &post):
			wrs = wrs[post.Index:]
		default:
			must(err)
		}
		for completed < (200-len(wrs))/8 {
			n, err := a.cq.Wait(context.Background(), wc[:])
			must(err)
			completed += n
		}
	}
	fmt.Println(completed, "completions of 200 requests, of which every eighth is signaled")
	// Output: 25 completions of 200 requests, of which every eighth is signaled
}

// One loop serves all queue pairs of a completion queue: QPConfig.UserData says
// whose completion it is.
func ExampleCQ_Completions() {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	dev, a, _ := open(linkA, "")
	peer, b, target := open(linkB, "")
	defer dev.Close()
	defer peer.Close()
	ctx := context.Background()
	for _, name := range []string{"left", "right"} {
		qa, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, UserData: name})
		must(err)
		qb, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq})
		must(err)
		must(qa.Connect(ctx, qb.Endpoint()))
		must(qb.Connect(ctx, qa.Endpoint()))
		must(qa.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte(name), Remote: target.At(0), Signaled: true}))
		for wc, err := range a.cq.Completions(ctx) {
			must(err)
			must(wc.Err())
			fmt.Println(wc.Opcode, "of", dev.QP(wc.QPN).UserData())
			break
		}
	}
	// Output:
	// RDMA_WRITE of left
	// RDMA_WRITE of right
}

// A region is an io.ReaderAt and an io.WriterAt, whatever its memory is.
func ExampleMR_ReadAt() {
	a, _, _, done := connected()
	defer done()
	_, err := a.mr.WriteAt([]byte("HELLO"), 0)
	must(err)
	text, err := io.ReadAll(io.NewSectionReader(a.mr, 0, 20))
	must(err)
	fmt.Printf("%s\n", text)
	_, err = a.mr.ReadAt(make([]byte, 8), 4092)
	fmt.Println(err)
	// Output:
	// HELLO, remote memory
	// EOF
}

// Ranges that come from somewhere else are checked where they are used.
func ExampleRemoteMemory_Slice() {
	memory := verbs.RemoteMemory{Addr: 0x10000, Length: 4096, RKey: 0x1234}
	slot, err := memory.Slice(3*1024, 1024)
	must(err)
	fmt.Printf("%#x, %d bytes\n", slot.Addr, slot.Length)
	_, err = memory.Slice(4*1024, 1024)
	fmt.Println(errors.Is(err, verbs.ErrRange))
	fmt.Println(err)
	// Output:
	// 0x10c00, 1024 bytes
	// true
	// verbs: 1024 bytes at offset 4096 of the 4096 bytes of remote memory: range outside of the memory region
}

// An entry for a range outside of its region is refused when it is posted.
func ExampleMR_Slice() {
	a, _, target, done := connected()
	defer done()
	err := a.qp.PostSend(verbs.SendWR{
		ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(4000, 100)}, Remote: target.At(0),
	})
	fmt.Println(errors.Is(err, verbs.ErrRange))
	fmt.Println(err)
	// Output:
	// true
	// verbs: work request 0 (id 1) refused: scatter/gather entry 0: range outside of the memory region: it ends beyond the region
}

// A completion says which check of a memory access failed.
func ExampleWC_Fault() {
	a, _, target, done := connected()
	defer done()
	must(a.qp.PostSend(verbs.SendWR{
		ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{{Addr: 0x1000, Length: 8, LKey: 1}}, Remote: target.At(0),
	}))
	var wc [1]verbs.WC
	_, err := a.cq.Wait(context.Background(), wc[:])
	must(err)
	fmt.Println(wc[0].Status, "by", wc[0].Fault())
	fmt.Println(errors.Is(wc[0].Err(), verbs.FaultUnknownKey))
	// Output:
	// LOC_PROT_ERR by unknown key
	// true
}

// A ModifyError says which attribute was refused.
func ExampleModifyError() {
	a, _, _, done := connected()
	defer done()
	qp, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq})
	must(err)
	err = qp.Connect(context.Background(), verbs.Endpoint{Addr: netip.MustParseAddr("192.0.2.2")}) // its QPN was forgotten
	var e *verbs.ModifyError
	fmt.Println(errors.As(err, &e), errors.Is(err, verbs.ErrAttrValue))
	fmt.Println(e)
	// Output:
	// true true
	// INIT to RTR: attribute has a bad value: DEST_QPN: the peer's Endpoint: its QPN is 0, so it was not filled in
}

// MTU values are codes; MTUOf makes them of bytes.
func ExampleMTUOf() {
	m, err := verbs.MTUOf(1024)
	fmt.Println(m == verbs.MTU1024, m.Bytes(), err)
	_, err = verbs.MTUOf(1500)
	fmt.Println(err)
	// Output:
	// true 1024 <nil>
	// no path MTU has 1500 bytes: there are 256, 512, 1024, 2048 and 4096
}
