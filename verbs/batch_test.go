package verbs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// A batch posts its requests in order, with their data as it was when it was
// added, and can be used again.
func TestBatch(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	want := a.fill(1)
	b.recv(1, 1024, 64)
	b.recv(2, 1088, 64)
	b.recv(3, 1152, 64)
	batch := a.qp.NewBatch()
	for round := range 2 {
		inline := []byte{1, 2, 3}
		clear(b.mr.Bytes()[:600])
		batch.Write(b.mr.RemoteAt(0), a.mr.Slice(0, 100), a.mr.Slice(200, 100))
		batch.Write(b.mr.RemoteAt(300)).Inline(inline).ID(1).Signaled()
		batch.Write(b.mr.RemoteAt(400)).Inline(nil)
		batch.FetchAdd(b.mr.RemoteAt(512), 5, a.mr.Slice(2048, 8))
		batch.CompareSwap(b.mr.RemoteAt(512), 5, 9, a.mr.Slice(2056, 8))
		batch.Read(b.mr.RemoteAt(0), a.mr.Slice(3000, 200)).Fence().ID(2).Signaled()
		batch.Add(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte{7}, Remote: b.mr.RemoteAt(310)})
		if round == 0 {
			batch.Send(a.mr.Slice(0, 10)).Solicited()
			batch.SendImm(0xabc, a.mr.Slice(10, 10))
			batch.WriteImm(0xdef, b.mr.RemoteAt(320), a.mr.Slice(20, 10))
		}
		n := 7
		if round == 0 {
			n = 10
		}
		if batch.Len() != n {
			t.Fatalf("%d requests, want %d", batch.Len(), n)
		}
		clear(inline)
		batch.Write(b.mr.RemoteAt(330)).Inline([]byte{8}).ID(3).Signaled()
		check(t, batch.Post())
		for id := range uint64(3) {
			a.waitOK(id + 1)
		}
		got := b.mr.Bytes()
		if !bytes.Equal(got[:200], append(bytes.Clone(want[:100]), want[200:300]...)) || !bytes.Equal(got[300:303], []byte{1, 2, 3}) || got[310] != 7 || got[330] != 8 {
			t.Errorf("round %d: the peer has % x", round, got[:340])
		}
		if n := binary.NativeEndian.Uint64(got[512:]); n != 9 {
			t.Errorf("the atomics leave %d", n)
		}
		if !bytes.Equal(a.mr.Bytes()[3000:3200], got[:200]) {
			t.Error("the READ has something else")
		}
		if batch.Len() != 0 {
			t.Error("the batch is not empty")
		}
	}
	first, second, third := b.waitOK(1), b.waitOK(2), b.waitOK(3)
	if !first.Solicited || second.Imm != 0xabc || third.Imm != 0xdef || !bytes.Equal(b.mr.Bytes()[1024:1034], want[:10]) {
		t.Errorf("%v %v %v", first, second, third)
	}
}

// The operations beyond those of kernel rxe have methods of their own.
func TestBatchOfExtensions(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	mr, err := b.pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite|verbs.FlushGlobal)
	check(t, err)
	own, err := a.pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite, verbs.Invalidatable())
	check(t, err)
	batch := a.qp.NewBatch()
	for i := range byte(2) {
		value := [8]byte{i, 1, 2, 3, 4, 5, 6, 7}
		batch.AtomicWrite(mr.RemoteAt(8*int(i)), value)
		clear(value[:])
	}
	batch.Flush(mr.RemoteAt(0), 16, verbs.GlobalVisibility).ID(1).Signaled()
	batch.LocalInv(own.RKey()).ID(2).Signaled()
	check(t, batch.Post())
	if wc := a.waitOK(1); wc.Opcode != verbs.WCFlush {
		t.Error(wc)
	}
	if wc := a.waitOK(2); wc.Opcode != verbs.WCLocalInv {
		t.Error(wc)
	}
	if got := mr.Bytes()[:16]; !bytes.Equal(got, []byte{0, 1, 2, 3, 4, 5, 6, 7, 1, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("the peer has % x", got)
	}
	batch.AtomicWrite(mr.RemoteAt(4), [8]byte{}).Signaled()
	check(t, batch.Post())
	if wc := a.wait(); wc.Status == verbs.StatusSuccess {
		t.Error("a word that is not aligned was written")
	}
}

// ToSRQ names the shared receive queue of a request of XRC.
func TestBatchToSRQ(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	x, err := b.dev.OpenXRCD()
	check(t, err)
	target, err := b.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: x})
	check(t, err)
	initiator, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCInitiator, SendCQ: a.cq})
	check(t, err)
	connect(t, initiator, target)
	batch := initiator.NewBatch()
	queues := make(map[verbs.QPN]int)
	for i := range 3 {
		srq, err := b.pd.CreateSRQ(verbs.SRQConfig{XRCD: x, CQ: b.cq})
		check(t, err)
		check(t, srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{b.mr.Slice(64*i, 64)}}))
		batch.Send().Inline([]byte{byte(i)}).ToSRQ(srq.Number())
	}
	check(t, batch.Post())
	for range 3 {
		wc := b.wait()
		check(t, wc.Err())
		if got := b.mr.Bytes()[64*wc.ID]; uint64(got) != wc.ID {
			t.Errorf("the queue %d has got %d", wc.ID, got)
		}
		queues[wc.QPN]++
	}
	if len(queues) != 1 {
		t.Errorf("%v", queues)
	}
}

// A batch is posted as a whole or not at all, and says why not.
func TestBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	posted := a.qp.Stats().SendPosted
	batch := a.qp.NewBatch()
	refused := func(want error, index int) {
		t.Helper()
		err := batch.Post()
		var bad *verbs.PostError
		if !errors.Is(err, want) || !errors.As(err, &bad) || bad.Index != index || bad.ID != uint64(index) {
			t.Errorf("%v, want %v at %d", err, want, index)
		}
		if n := a.qp.Stats().SendPosted; n != posted || batch.Len() != 0 {
			t.Errorf("%d requests were posted, and %d are in the batch", n-posted, batch.Len())
		}
	}
	ok := func(n int) {
		for range n {
			batch.Write(b.mr.RemoteAt(0)).Inline([]byte{1}).ID(uint64(batch.Len() - 1))
		}
	}
	ok(3)
	batch.Write(b.mr.RemoteAt(0)).Inline(make([]byte, 1000)).ID(3)
	ok(2)
	refused(verbs.ErrInlineTooLong, 3)
	ok(2)
	batch.Add(verbs.SendWR{ID: 2})
	refused(verbs.ErrOpcode, 2)
	ok(65) // the queue has room for 64
	refused(verbs.ErrQueueFull, 64)
	ok(2)
	batch.Abort()
	check(t, batch.Post()) // nothing
	if err := batch.Signaled().Post(); err == nil || batch.Len() != 0 {
		t.Errorf("a modifier without a request: %v", err)
	}
	if n := a.qp.Stats().SendPosted; n != posted {
		t.Errorf("%d requests were posted", n-posted)
	}
	ok(63)
	batch.Write(b.mr.RemoteAt(0)).Inline([]byte{1}).ID(5).Signaled()
	check(t, batch.Post())
	a.waitOK(5)

	idle := a.newQP(verbs.QPConfig{}).NewBatch()
	if err := idle.Write(b.mr.RemoteAt(0)).Post(); !errors.Is(err, verbs.ErrState) {
		t.Errorf("in RESET: %v", err)
	}
	// In ERR all complete at once, and a bad one keeps the others from it.
	check(t, a.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState))
	posted = a.qp.Stats().SendPosted
	ok(100)
	batch.Add(verbs.SendWR{ID: 100})
	refused(verbs.ErrOpcode, 100)
	ok(100)
	check(t, batch.Post())
	for i := range uint64(100) {
		if wc := a.wait(); wc.Status != verbs.StatusWRFlushErr || wc.ID != i {
			t.Fatalf("completion %d: %v", i, wc)
		}
	}
	check(t, a.qp.Close())
	if err := batch.Write(b.mr.RemoteAt(0)).Post(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A batch of datagrams: all or nothing too.
func TestBatchOfDatagrams(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	from, to := a.newQP(verbs.QPConfig{Type: verbs.UD, MaxSendWR: 4}), b.newQP(verbs.QPConfig{Type: verbs.UD})
	check(t, from.Activate(7))
	check(t, to.Activate(7))
	ah, err := a.pd.CreateAH(verbs.AddressVector{DGID: b.dev.Addr()})
	check(t, err)
	for i := range 4 {
		check(t, to.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{b.mr.Slice(100*i, 100)}}))
	}
	batch := from.NewBatch()
	batch.Send().Inline([]byte{1}).To(ah, to.QPN(), 7)
	batch.Send().Inline([]byte{2})
	var bad *verbs.PostError
	if err := batch.Post(); !errors.As(err, &bad) || bad.Index != 1 {
		t.Errorf("without an address: %v", err)
	}
	for range 5 {
		batch.Send().Inline([]byte{1}).To(ah, to.QPN(), 7)
	}
	if err := batch.Post(); !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("no room: %v", err)
	}
	for i := range 4 {
		batch.Send().Inline([]byte{byte(i)}).To(ah, to.QPN(), 7)
	}
	check(t, batch.Post())
	for i := range uint64(4) {
		if wc := b.waitOK(i); b.mr.Bytes()[100*i+verbs.GRHLen] != byte(i) {
			t.Errorf("%v", wc)
		}
	}
}

// Nothing is allocated for a batch that is used again.
func TestBatchDoesNotAllocate(t *testing.T) {
	a, b := newPair(t, 4096)
	batch := a.qp.NewBatch()
	data := make([]byte, 16)
	var wc [8]verbs.WC
	run := func() {
		for range 8 {
			batch.Write(b.mr.RemoteAt(0), a.mr.Slice(0, 64), a.mr.Slice(64, 64))
		}
		batch.Write(b.mr.RemoteAt(128)).Inline(data).Signaled()
		if err := batch.Post(); err != nil {
			t.Fatal(err)
		}
		for a.cq.Poll(wc[:]) == 0 {
		}
	}
	for range 50 {
		run()
	}
	if n := testing.AllocsPerRun(200, run); n >= 1 {
		t.Errorf("%v allocations for a batch", n)
	}
}

// A rate limit bounds what leaves a device in time, whatever else is in its
// way, and may change while requests wait.
func TestSetRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 1<<20, func(c *verbs.ConnectConfig) { c.PathMTU = verbs.MTU4096 })
		transfer := func() time.Duration {
			began := time.Now()
			a.post(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 1<<20)}, Remote: b.mr.RemoteAt(0)})
			a.waitOK(0)
			return time.Since(began)
		}
		check(t, a.qp.SetRateLimit(100_000_000, 1<<16))
		if q := a.qp.Query(); q.RateLimit != 100_000 || q.RateBurst != 1<<16 {
			t.Errorf("the rate is %d kb/s, the burst %d", q.RateLimit, q.RateBurst)
		}
		want := time.Duration(1<<20+256*62-1<<16) * 80 * time.Nanosecond
		if took := transfer(); took < want-want/20 || took > want+want/20 {
			t.Errorf("1 MiB at 100 Mb/s took %v, want about %v", took, want)
		}
		if n := a.qp.Stats().Retransmits; n > 0 {
			t.Errorf("pauses were taken for silence: %d packets were sent again", n)
		}
		check(t, a.qp.SetRateLimit(0, 0))
		if took := transfer(); took > 20*time.Millisecond {
			t.Errorf("1 MiB without a limit took %v", took)
		}
		// Far too slow; then the limit goes, and so do the packets.
		check(t, a.qp.SetRateLimit(1, 1))
		began := time.Now()
		a.post(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 1<<20)}, Remote: b.mr.RemoteAt(0)})
		time.Sleep(time.Second)
		check(t, a.qp.SetRateLimit(0, 0))
		a.waitOK(0)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
	a, _ := newPair(t, 64)
	for _, c := range []struct {
		rate  uint64
		burst int
	}{{1 << 62, 0}, {1<<64 - 1, 0}, {1, -1}} {
		if err := a.qp.SetRateLimit(c.rate, c.burst); err == nil {
			t.Errorf("rate %d, burst %d", c.rate, c.burst)
		}
	}
	idle := a.newQP(verbs.QPConfig{})
	if err := idle.SetRateLimit(1000, 0); !errors.Is(err, verbs.ErrAttrNotAllowed) && !errors.Is(err, verbs.ErrTransition) {
		t.Errorf("in RESET: %v", err)
	}
}

// A batch that is longer than the send queue never fits: its error says so,
// and a full queue says that there will be room.
func TestBatchLongerThanTheQueue(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	batch := a.qp.NewBatch()
	for n, want := range map[int]bool{65: true, 64: false} {
		check(t, a.qp.Modify(&verbs.Attr{State: verbs.StateSQD}, verbs.AttrState))
		for range n {
			batch.Write(b.mr.RemoteAt(0)).Inline([]byte{1})
		}
		err := batch.Post()
		if n == 64 {
			check(t, err)
			err = batch.Write(b.mr.RemoteAt(0)).Inline([]byte{1}).Post()
		}
		var tooLong *verbs.RangeError
		if got := errors.As(err, &tooLong); got != want || !errors.Is(err, verbs.ErrQueueFull) || got && (tooLong.Got != 65 || tooLong.Max != 64) {
			t.Errorf("%d requests: %v", n, err)
		}
		check(t, a.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState))
		check(t, a.qp.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		check(t, b.qp.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		connect(t, a.qp, b.qp)
	}
}
