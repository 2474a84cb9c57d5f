package qp

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TestPostErrors: what is wrong with a request shows when it is posted (IBTA
// 11.4.1.1).
func TestPostErrors(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{config: Config{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: 16}})
	sge := p.a.sge(0, 8)
	for _, c := range []struct {
		name string
		wr   ib.SendWR
		want error
	}{
		{"unknown operation", ib.SendWR{Opcode: ib.NumOpcodes}, ib.ErrOpcode},
		{"three entries", ib.SendWR{Opcode: ib.OpSend, SGList: append(append(sge, sge...), sge...)}, ib.ErrTooManySGE},
		{"no operation", ib.SendWR{}, ib.ErrNoOpcode},
		{"no operation with data", ib.SendWR{Inline: []byte("x")}, ib.ErrNoOpcode},
		{"remote outside", ib.SendWR{Opcode: ib.OpWrite, Remote: ib.OutsideRemote}, ib.ErrRemote},
		{"remote outside, inline", ib.SendWR{Opcode: ib.OpWriteImm, Inline: []byte("x"), Remote: ib.OutsideRemote}, ib.ErrRemote},
		{"17 bytes inline", ib.SendWR{Opcode: ib.OpSend, Inline: make([]byte, 17)}, ib.ErrInlineTooLong},
		{"inline READ", ib.SendWR{Opcode: ib.OpRead, Inline: []byte{1}}, ib.ErrInline},
		{"2^31+1 bytes", ib.SendWR{Opcode: ib.OpSend, SGList: []ib.SGE{{Length: 1 << 31}, {Length: 1}}}, ib.ErrTooLong},
		{"atomic of 4 bytes", ib.SendWR{Opcode: ib.OpFetchAdd, SGList: p.a.sge(0, 4)}, ib.ErrAtomicLength},
		{"atomic write of 4 bytes", ib.SendWR{Opcode: ib.OpAtomicWrite, SGList: p.a.sge(0, 4)}, ib.ErrAtomicWrite},
		{"atomic write of nothing", ib.SendWR{Opcode: ib.OpAtomicWrite}, ib.ErrAtomicWrite},
		{"atomic write of 16 bytes inline", ib.SendWR{Opcode: ib.OpAtomicWrite, Inline: make([]byte, 16)}, ib.ErrAtomicWrite},
		{"FLUSH of no type", ib.SendWR{Opcode: ib.OpFlush}, ib.ErrFlush},
		{"FLUSH of an unknown type", ib.SendWR{Opcode: ib.OpFlush, FlushType: 5}, ib.ErrFlush},
		{"FLUSH of a reserved level", ib.SendWR{Opcode: ib.OpFlush, FlushType: 1, FlushLevel: 2}, ib.ErrFlush},
		{"FLUSH with data", ib.SendWR{Opcode: ib.OpFlush, FlushType: 1, SGList: sge}, ib.ErrFlush},
		{"FLUSH with inline data", ib.SendWR{Opcode: ib.OpFlush, FlushType: 1, Inline: []byte{1}}, ib.ErrInline},
	} {
		if err := p.a.PostSend(&c.wr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for range 2 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: sge, Remote: p.b.remote(0)}))
		must(t, p.a.PostRecv(&ib.RecvWR{}))
	}
	if err := p.a.PostSend(&ib.SendWR{Opcode: ib.OpSend}); !errors.Is(err, ib.ErrQueueFull) {
		t.Errorf("third of two sends: %v", err)
	}
	if err := p.a.PostRecv(&ib.RecvWR{}); !errors.Is(err, ib.ErrQueueFull) {
		t.Errorf("third of two receives: %v", err)
	}
	if err := p.a.PostRecv(&ib.RecvWR{SGList: append(sge, sge...)}); !errors.Is(err, ib.ErrTooManySGE) {
		t.Errorf("receive with two entries: %v", err)
	}
	p.settle()
	if p.a.Stats().SendDone != 2 {
		t.Errorf("%d of 2 done; a refused request was queued?", p.a.Stats().SendDone)
	}
}

// The errors say what is too much and what there is, and what a program meets
// in its normal course allocates nothing.
func TestPostErrorTexts(t *testing.T) {
	p := newPair(t, pairConfig{config: Config{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 16}})
	two := append(p.a.sge(0, 8), p.a.sge(8, 8)...)
	for want, wr := range map[string]ib.SendWR{
		"unknown operation 99": {Opcode: 99},
		"too many scatter/gather entries: 2; the queue pair was made for 1": {Opcode: ib.OpSend, SGList: two},
		"inline data too long: 17 bytes; the queue pair was made for 16":    {Opcode: ib.OpSend, Inline: make([]byte, 17)},
		"cannot have inline data: RDMA_READ; only SEND":                     {Opcode: ib.OpRead, Inline: []byte{1}},
		"an atomic needs exactly 8 bytes: SGList has 4":                     {Opcode: ib.OpFetchAdd, SGList: p.a.sge(0, 4)},
		"an atomic write carries exactly 8 bytes: this one has 9":           {Opcode: ib.OpAtomicWrite, Inline: make([]byte, 9)},
		"FlushType 0 is neither":                                            {Opcode: ib.OpFlush},
		"FlushLevel 3 is neither":                                           {Opcode: ib.OpFlush, FlushType: 1, FlushLevel: 3},
		"SGList has 4 bytes; Length says":                                   {Opcode: ib.OpFlush, FlushType: 3, SGList: p.a.sge(0, 4)},
	} {
		if err := p.a.PostSend(&wr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if err := p.a.PostRecv(&ib.RecvWR{SGList: two}); err == nil || !strings.Contains(err.Error(), "2; the queue pair was made for 1") {
		t.Errorf("receive with two entries: %v", err)
	}
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Remote: p.b.remote(0)}))
	must(t, p.a.PostRecv(&ib.RecvWR{}))
	reset := newPair(t, pairConfig{noRTS: true}).b
	send, recv := &ib.SendWR{Opcode: ib.OpSend}, &ib.RecvWR{}
	for want, post := range map[string]func() error{
		"has room again":         func() error { return p.a.PostSend(send) },
		"queue full":             func() error { return p.a.PostRecv(recv) },
		"posted from RTS on":     func() error { return reset.PostSend(send) },
		"wrong queue pair state": func() error { return reset.PostSend(send) },
	} {
		if err := post(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
		if n := testing.AllocsPerRun(10, func() { post() }); n != 0 {
			t.Errorf("%q: %v allocations", want, n)
		}
	}
}

// TestPostStates: which states take requests, and what becomes of them (IBTA
// 10.3.1).
func TestPostStates(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{noRTS: true})
	for _, s := range []ib.State{ib.StateRTR, ib.StateReset} {
		if s == ib.StateReset {
			must(t, p.b.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
			if err := p.b.PostRecv(&ib.RecvWR{}); !errors.Is(err, ib.ErrState) {
				t.Errorf("receive in %v: %v", s, err)
			}
		}
		if err := p.b.PostSend(&ib.SendWR{Opcode: ib.OpSend}); !errors.Is(err, ib.ErrState) {
			t.Errorf("send in %v: %v", s, err)
		}
	}
	must(t, p.a.PostRecv(&ib.RecvWR{ID: 1}))
	must(t, p.a.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	must(t, p.a.PostSend(&ib.SendWR{ID: 2, Opcode: ib.OpSend, Inline: nil}))
	must(t, p.a.PostRecv(&ib.RecvWR{ID: 3}))
	if s, r := p.a.sq.statuses(), p.a.rq.statuses(); s != "2 WR_FLUSH_ERR" || r != "1 WR_FLUSH_ERR, 3 WR_FLUSH_ERR" {
		t.Errorf("flushed %q and %q", s, r)
	}
}

// TestRefused has every request that the responder refuses: the NAK, both
// completions, and the event. Everything after it is flushed in order. With
// the NAK lost the outcome is the same: it is repeated (IBTA 9.7.5.2).
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(p *pair, wr *ib.SendWR)
		send   ib.Status
		recv   string
		event  ib.Event
	}{
		// The rights of the queue pair come first (IBTA 9.7.4.1), then
		// key, domain, rights and bounds of the region (IBTA
		// 9.7.4.1.5).
		{"write with an unknown key", func(p *pair, wr *ib.SendWR) { wr.Remote.RKey++ }, ib.StatusRemAccessErr, "1 WR_FLUSH_ERR", ib.EventQPAccessError},
		{"write beyond the region", func(p *pair, wr *ib.SendWR) { wr.Remote.Addr += 1<<18 - 64 }, ib.StatusRemAccessErr, "1 WR_FLUSH_ERR", ib.EventQPAccessError},
		{"write without the right", func(p *pair, wr *ib.SendWR) {
			must(t, p.b.Modify(&ib.Attr{Access: ib.RemoteRead}, ib.AttrAccess))
		}, ib.StatusRemInvReqErr, "1 WR_FLUSH_ERR", ib.EventQPRequestError},
		{"read of another's memory", func(p *pair, wr *ib.SendWR) { wr.Opcode, wr.Remote.RKey = ib.OpRead, 1 }, ib.StatusRemAccessErr, "1 WR_FLUSH_ERR", ib.EventQPAccessError},
		// The address of an atomic is a multiple of 8 (IBTA 9.4.5.1).
		{"misaligned atomic", func(p *pair, wr *ib.SendWR) {
			wr.Opcode, wr.SGList, wr.Remote.Addr = ib.OpFetchAdd, p.a.sge(0, 8), wr.Remote.Addr+4
		}, ib.StatusRemInvReqErr, "1 WR_FLUSH_ERR", ib.EventQPRequestError},
		{"misaligned atomic with a bad key", func(p *pair, wr *ib.SendWR) {
			wr.Opcode, wr.SGList, wr.Remote = ib.OpFetchAdd, p.a.sge(0, 8), ib.RemoteAddr{Addr: 4, RKey: 5}
		}, ib.StatusRemAccessErr, "1 WR_FLUSH_ERR", ib.EventQPAccessError},
		// The fault is of the receive: its owner sees it too (IBTA
		// 11.6.2).
		{"receive too small", func(p *pair, wr *ib.SendWR) { wr.Opcode, wr.SGList = ib.OpSend, p.a.sge(0, 5000) }, ib.StatusRemInvReqErr, "1 LOC_LEN_ERR", ib.EventQPRequestError},
		{"receive with a bad key", func(p *pair, wr *ib.SendWR) {
			p.b.table.Deregister(p.b.mr)
			wr.Opcode = ib.OpSend
		}, ib.StatusRemOpErr, "1 LOC_PROT_ERR", 0},
		{"write with immediate and a bad key", func(p *pair, wr *ib.SendWR) {
			wr.Opcode, wr.Remote.RKey = ib.OpWriteImm, 1
		}, ib.StatusRemAccessErr, "1 REM_ACCESS_ERR", ib.EventQPAccessError},
		// A key that cannot be invalidated is an access error (IBTA
		// 9.4.1.1.3).
		{"send with invalidate, no hook", func(p *pair, wr *ib.SendWR) { wr.Opcode = ib.OpSendInv }, ib.StatusRemAccessErr, "1 REM_ACCESS_ERR", ib.EventQPAccessError},
	} {
		for _, lose := range []bool{false, true} {
			p := newPair(t, pairConfig{})
			must(t, p.b.PostRecv(&ib.RecvWR{ID: 1, SGList: p.b.sge(0, 4096)}))
			wr := ib.SendWR{ID: 10, Opcode: ib.OpWrite, SGList: p.a.sge(0, 100), Remote: p.b.remote(0)}
			c.change(p, &wr)
			must(t, p.a.PostSend(&wr))
			must(t, p.a.PostSend(&ib.SendWR{ID: 11, Opcode: ib.OpSend}))
			p.drop = func(_ *testEnd, pkt *rocev2.Packet) bool {
				lost := lose && pkt.BTH.Opcode == rocev2.RCAcknowledge
				lose = lose && !lost
				return lost
			}
			p.settle()
			want := "10 " + c.send.String() + ", 11 WR_FLUSH_ERR"
			if got := p.a.sq.statuses(); got != want {
				t.Errorf("%s: sends %q, want %q", c.name, got, want)
			}
			if got := p.b.rq.statuses(); got != c.recv {
				t.Errorf("%s: receives %q, want %q", c.name, got, c.recv)
			}
			if e, _ := p.b.PollEvent(); e != c.event {
				t.Errorf("%s: event %v, want %v", c.name, e, c.event)
			}
			if p.a.State() != ib.StateErr || p.b.State() != ib.StateErr {
				t.Errorf("%s: states %v and %v", c.name, p.a.State(), p.b.State())
			}
		}
	}
}

// TestLocalFault: a key that is wrong on this side fails its own request, after
// those before it have completed. The status is local protection error (IBTA
// 11.6.2). A list without bytes is not checked.
func TestLocalFault(t *testing.T) {
	t.Parallel()
	for _, op := range dataOpcodes() {
		p := newPair(t, pairConfig{config: Config{Invalidate: func(ib.Key) ib.Fault { return ib.FaultNone }}})
		for i := range 4 {
			must(t, p.b.PostRecv(&ib.RecvWR{ID: uint64(i), SGList: p.b.sge(0, 4096)}))
		}
		good := ib.SendWR{ID: 1, Opcode: ib.OpWrite, SGList: p.a.sge(0, 100), Remote: p.b.remote(0), Signaled: true}
		bad := ib.SendWR{ID: 2, Opcode: op, SGList: []ib.SGE{{Addr: testIOVA, Length: 8, LKey: 12345}}, Remote: p.b.remote(0), InvalidateKey: keyFor(p.a, op)}
		must(t, p.a.PostSend(&good))
		must(t, p.a.PostSend(&bad))
		must(t, p.a.PostSend(&good))
		p.settle()
		if got := p.a.sq.statuses(); got != "1 SUCCESS, 2 LOC_PROT_ERR, 1 WR_FLUSH_ERR" {
			t.Errorf("%v: %q", op, got)
		}
		// Without a length the key does not matter.
		if op.Is(ib.OpAtomic) || op == ib.OpAtomicWrite {
			continue
		}
		p = newPair(t, pairConfig{config: Config{Invalidate: func(ib.Key) ib.Fault { return ib.FaultNone }}})
		must(t, p.b.PostRecv(&ib.RecvWR{}))
		bad.InvalidateKey = keyFor(p.a, op)
		bad.SGList[0].Length, bad.Remote, bad.Signaled = 0, ib.RemoteAddr{Addr: 1, RKey: 2}, true
		must(t, p.a.PostSend(&bad))
		p.settle()
		if got := p.a.sq.statuses(); got != "2 SUCCESS" {
			t.Errorf("%v of no bytes: %q", op, got)
		}
	}
}

// TestOverflow: a completion that its queue does not take ends the connection.
func TestOverflow(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.a.sq.limit = 1
	for i := range 3 {
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpWrite, Signaled: true}))
	}
	p.settle()
	if e, _ := p.a.PollEvent(); e != ib.EventQPFatal || p.a.State() != ib.StateErr {
		t.Errorf("send queue: event %v, state %v", e, p.a.State())
	}
	p = newPair(t, pairConfig{})
	p.b.rq.limit = 1
	for i := range 3 {
		must(t, p.b.PostRecv(&ib.RecvWR{}))
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpSend, Signaled: true}))
	}
	p.settle()
	if e, _ := p.b.PollEvent(); e != ib.EventQPFatal || p.b.State() != ib.StateErr {
		t.Errorf("receive queue: event %v, state %v", e, p.b.State())
	}
	// The message that overflowed is refused; the one before it in the
	// batch is acknowledged.
	if got := p.a.sq.statuses(); got != "0 SUCCESS, 1 REM_OP_ERR, 2 WR_FLUSH_ERR" {
		t.Errorf("the peer has %q", got)
	}
}

// TestVanished: when the peer is gone, the time to RETRY_EXC_ERR is (count+1)
// timeouts, for each count; 7 is no exception, and no timeout is a long one
// (IBTA 9.7.6.1.3).
func TestVanished(t *testing.T) {
	t.Parallel()
	for count := range uint8(8) {
		for _, timeout := range []uint8{0, 1, 14} {
			p := newPair(t, pairConfig{})
			p.a.conn.Attr.Timeout, p.a.conn.Attr.RetryCount = timeout, count
			p.a.apply(ib.AttrTimeout | ib.AttrRetryCount)
			p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
			must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: ib.OpRead, SGList: p.a.sge(0, 10)}))
			p.settle()
			want := clock.Time(count+1) * clock.Time(cmp.Or(rocev2.AckTimeout(timeout), GuardTimeout))
			if got := p.a.sq.statuses(); got != "1 RETRY_EXC_ERR" || p.now != want {
				t.Errorf("count %d timeout %d: %q after %d ns, want RETRY_EXC_ERR after %d", count, timeout, got, p.now, want)
			}
		}
	}
}
