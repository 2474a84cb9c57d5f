package qp

import (
	"errors"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

func TestPostErrors(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{config: Config{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: 16}})
	sge := p.a.sge(0, 8)
	for _, c := range []struct {
		name string
		wr   SendWR
		want error
	}{
		{"unknown operation", SendWR{Opcode: numWROpcodes}, ErrOpcode},
		{"three entries", SendWR{Opcode: OpSend, SGList: append(append(sge, sge...), sge...)}, ErrTooManySGE},
		{"no operation", SendWR{}, ErrNoOpcode},
		{"no operation with data", SendWR{Inline: []byte("x")}, ErrNoOpcode},
		{"remote outside", SendWR{Opcode: OpWrite, Remote: OutsideRemote}, ErrRemote},
		{"remote outside, inline", SendWR{Opcode: OpWriteImm, Inline: []byte("x"), Remote: OutsideRemote}, ErrRemote},
		{"17 bytes inline", SendWR{Opcode: OpSend, Inline: make([]byte, 17)}, ErrInlineTooLong},
		{"inline READ", SendWR{Opcode: OpRead, Inline: []byte{1}}, ErrInline},
		{"2^31+1 bytes", SendWR{Opcode: OpSend, SGList: []memreg.SGE{{Length: 1 << 31}, {Length: 1}}}, ErrTooLong},
		{"atomic of 4 bytes", SendWR{Opcode: OpFetchAdd, SGList: p.a.sge(0, 4)}, ErrAtomicLength},
	} {
		var pe *PostError
		if err := p.a.PostSend(0, &c.wr); !errors.Is(err, c.want) || !errors.As(err, &pe) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for range 2 {
		must(t, p.a.PostSend(0, &SendWR{Opcode: OpWrite, SGList: sge, Remote: p.b.remote(0)}))
		must(t, p.a.PostRecv(0, &RecvWR{}))
	}
	if err := p.a.PostSend(0, &SendWR{Opcode: OpSend}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("third of two sends: %v", err)
	}
	if err := p.a.PostRecv(0, &RecvWR{}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("third of two receives: %v", err)
	}
	if err := p.a.PostRecv(0, &RecvWR{SGList: append(sge, sge...)}); !errors.Is(err, ErrTooManySGE) {
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
	for want, wr := range map[string]SendWR{
		"unknown operation 99": {Opcode: 99},
		"too many scatter/gather entries: 2; the queue pair was made for 1": {Opcode: OpSend, SGList: two},
		"inline data too long: 17 bytes; the queue pair was made for 16":    {Opcode: OpSend, Inline: make([]byte, 17)},
		"cannot have inline data: RDMA_READ; only SEND":                     {Opcode: OpRead, Inline: []byte{1}},
		"an atomic needs exactly 8 bytes: SGList has 4":                     {Opcode: OpFetchAdd, SGList: p.a.sge(0, 4)},
	} {
		if err := p.a.PostSend(0, &wr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if err := p.a.PostRecv(0, &RecvWR{SGList: two}); err == nil || !strings.Contains(err.Error(), "2; the queue pair was made for 1") {
		t.Errorf("receive with two entries: %v", err)
	}
	must(t, p.a.PostSend(0, &SendWR{Opcode: OpWrite, Remote: p.b.remote(0)}))
	must(t, p.a.PostRecv(0, &RecvWR{}))
	reset := newPair(t, pairConfig{noRTS: true}).b
	send, recv := &SendWR{Opcode: OpSend}, &RecvWR{}
	for want, post := range map[string]func() error{
		"has room again":         func() error { return p.a.PostSend(0, send) },
		"receive: queue full":    func() error { return p.a.PostRecv(0, recv) },
		"posted from RTS on":     func() error { return reset.PostSend(0, send) },
		"wrong queue pair state": func() error { return reset.PostSend(0, send) },
	} {
		if err := post(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
		if n := testing.AllocsPerRun(10, func() { post() }); n != 0 {
			t.Errorf("%q: %v allocations", want, n)
		}
	}
}

func TestPostStates(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{noRTS: true})
	for _, s := range []State{StateRTR, StateReset} {
		if s == StateReset {
			must(t, p.b.Modify(0, &Attr{State: StateReset}, AttrState))
			if err := p.b.PostRecv(0, &RecvWR{}); !errors.Is(err, ErrState) {
				t.Errorf("receive in %v: %v", s, err)
			}
		}
		if err := p.b.PostSend(0, &SendWR{Opcode: OpSend}); !errors.Is(err, ErrState) {
			t.Errorf("send in %v: %v", s, err)
		}
	}
	must(t, p.a.PostRecv(0, &RecvWR{ID: 1}))
	must(t, p.a.Modify(0, &Attr{State: StateErr}, AttrState))
	must(t, p.a.PostSend(0, &SendWR{ID: 2, Opcode: OpSend, Inline: nil}))
	must(t, p.a.PostRecv(0, &RecvWR{ID: 3}))
	if s, r := p.a.sq.statuses(), p.a.rq.statuses(); s != "2 WR_FLUSH_ERR" || r != "1 WR_FLUSH_ERR, 3 WR_FLUSH_ERR" {
		t.Errorf("flushed %q and %q", s, r)
	}
}

// TestRefused has every request that the responder refuses: the NAK, both completions, and the event. Everything behind
// it is flushed in order. With the NAK lost the outcome is the same: it is repeated.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(p *pair, wr *SendWR)
		send   Status
		recv   string
		event  Event
	}{
		{"write with an unknown key", func(p *pair, wr *SendWR) { wr.Remote.RKey++ }, StatusRemAccessErr, "1 WR_FLUSH_ERR", EventAccessErr},
		{"write beyond the region", func(p *pair, wr *SendWR) { wr.Remote.Addr += 1<<18 - 64 }, StatusRemAccessErr, "1 WR_FLUSH_ERR", EventAccessErr},
		{"write without the right", func(p *pair, wr *SendWR) {
			must(t, p.b.Modify(0, &Attr{Access: memreg.RemoteRead}, AttrAccess))
		}, StatusRemInvReqErr, "1 WR_FLUSH_ERR", EventReqErr},
		{"read of another's memory", func(p *pair, wr *SendWR) { wr.Opcode, wr.Remote.RKey = OpRead, 1 }, StatusRemAccessErr, "1 WR_FLUSH_ERR", EventAccessErr},
		{"misaligned atomic", func(p *pair, wr *SendWR) {
			wr.Opcode, wr.SGList, wr.Remote.Addr = OpFetchAdd, p.a.sge(0, 8), wr.Remote.Addr+4
		}, StatusRemInvReqErr, "1 WR_FLUSH_ERR", EventReqErr},
		{"misaligned atomic with a bad key", func(p *pair, wr *SendWR) {
			wr.Opcode, wr.SGList, wr.Remote = OpFetchAdd, p.a.sge(0, 8), RemoteAddr{Addr: 4, RKey: 5}
		}, StatusRemAccessErr, "1 WR_FLUSH_ERR", EventAccessErr},
		{"receive too small", func(p *pair, wr *SendWR) { wr.Opcode, wr.SGList = OpSend, p.a.sge(0, 5000) }, StatusRemInvReqErr, "1 LOC_LEN_ERR", EventReqErr},
		{"receive with a bad key", func(p *pair, wr *SendWR) {
			p.b.table.Deregister(p.b.mr)
			wr.Opcode = OpSend
		}, StatusRemOpErr, "1 LOC_PROT_ERR", EventNone},
		{"write with immediate and a bad key", func(p *pair, wr *SendWR) {
			wr.Opcode, wr.Remote.RKey = OpWriteImm, 1
		}, StatusRemAccessErr, "1 REM_ACCESS_ERR", EventAccessErr},
		{"send with invalidate, no hook", func(p *pair, wr *SendWR) { wr.Opcode = OpSendInv }, StatusRemAccessErr, "1 REM_ACCESS_ERR", EventAccessErr},
	} {
		for _, lose := range []bool{false, true} {
			p := newPair(t, pairConfig{})
			must(t, p.b.PostRecv(0, &RecvWR{ID: 1, SGList: p.b.sge(0, 4096)}))
			wr := SendWR{ID: 10, Opcode: OpWrite, SGList: p.a.sge(0, 100), Remote: p.b.remote(0)}
			c.change(p, &wr)
			must(t, p.a.PostSend(0, &wr))
			must(t, p.a.PostSend(0, &SendWR{ID: 11, Opcode: OpSend}))
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
			if p.a.State() != StateErr || p.b.State() != StateErr {
				t.Errorf("%s: states %v and %v", c.name, p.a.State(), p.b.State())
			}
		}
	}
}

// TestLocalFault: a key that is wrong on this side fails its own request, after those before it have completed.
func TestLocalFault(t *testing.T) {
	t.Parallel()
	for op := OpSend; op <= OpFetchAdd; op++ {
		p := newPair(t, pairConfig{})
		for i := range 4 {
			must(t, p.b.PostRecv(0, &RecvWR{ID: uint64(i), SGList: p.b.sge(0, 4096)}))
		}
		good := SendWR{ID: 1, Opcode: OpWrite, SGList: p.a.sge(0, 100), Remote: p.b.remote(0), Signaled: true}
		bad := SendWR{ID: 2, Opcode: op, SGList: []memreg.SGE{{Addr: testIOVA, Length: 8, LKey: 12345}}, Remote: p.b.remote(0)}
		p.b.cfg.Invalidate = func(memreg.Key) bool { return true }
		must(t, p.a.PostSend(0, &good))
		must(t, p.a.PostSend(0, &bad))
		must(t, p.a.PostSend(0, &good))
		p.settle()
		if got := p.a.sq.statuses(); got != "1 SUCCESS, 2 LOC_PROT_ERR, 1 WR_FLUSH_ERR" {
			t.Errorf("%v: %q", op, got)
		}
		// Without a length the key does not matter.
		if op >= OpCompareSwap {
			continue
		}
		p = newPair(t, pairConfig{config: Config{Invalidate: func(memreg.Key) bool { return true }}})
		must(t, p.b.PostRecv(0, &RecvWR{}))
		bad.SGList[0].Length, bad.Remote, bad.Signaled = 0, RemoteAddr{Addr: 1, RKey: 2}, true
		must(t, p.a.PostSend(0, &bad))
		p.settle()
		if got := p.a.sq.statuses(); got != "2 SUCCESS" {
			t.Errorf("%v of no bytes: %q", op, got)
		}
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.a.sq.limit = 1
	for i := range 3 {
		must(t, p.a.PostSend(0, &SendWR{ID: uint64(i), Opcode: OpWrite, Signaled: true}))
	}
	p.settle()
	if e, _ := p.a.PollEvent(); e != EventFatal || p.a.State() != StateErr {
		t.Errorf("send queue: event %v, state %v", e, p.a.State())
	}
	p = newPair(t, pairConfig{})
	p.b.rq.limit = 1
	for i := range 3 {
		must(t, p.b.PostRecv(0, &RecvWR{}))
		must(t, p.a.PostSend(0, &SendWR{ID: uint64(i), Opcode: OpSend, Signaled: true}))
	}
	p.settle()
	if e, _ := p.b.PollEvent(); e != EventFatal || p.b.State() != StateErr {
		t.Errorf("receive queue: event %v, state %v", e, p.b.State())
	}
	// The message that overflowed is refused; the one before it in the batch is acknowledged.
	if got := p.a.sq.statuses(); got != "0 SUCCESS, 1 REM_OP_ERR, 2 WR_FLUSH_ERR" {
		t.Errorf("the peer has %q", got)
	}
}

// TestVanished: with nobody there the time to RETRY_EXC_ERR is (count+1) timeouts, for each count; 7 is no exception, and
// no timeout is a long one.
func TestVanished(t *testing.T) {
	t.Parallel()
	for count := range uint8(8) {
		for _, timeout := range []uint8{0, 1, 14} {
			p := newPair(t, pairConfig{})
			p.a.attr.Timeout, p.a.attr.RetryCount = timeout, count
			p.a.apply(AttrTimeout | AttrRetryCount)
			p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
			must(t, p.a.PostSend(0, &SendWR{ID: 1, Opcode: OpRead, SGList: p.a.sge(0, 10)}))
			p.settle()
			want := Time(count+1) * Time(p.a.req.retry.interval)
			if got := p.a.sq.statuses(); got != "1 RETRY_EXC_ERR" || p.now != want {
				t.Errorf("count %d timeout %d: %q after %d ns, want RETRY_EXC_ERR after %d", count, timeout, got, p.now, want)
			}
		}
	}
}
