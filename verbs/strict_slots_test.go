package verbs_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestStrictSameIDs: a program that gives all its requests the same ID, meets
// errors, and goes on after them has all its slots.
func TestStrictSameIDs(t *testing.T) {
	c := verbstest.Config{QP: verbs.QPConfig{Type: verbs.UD, MaxSendWR: 4}}
	strictPair(t, c, func(t *testing.T, a, b *verbstest.Side) {
		ah, err := a.PD.CreateAH(verbs.AddressVector{DGID: b.Dev.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		good := verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x"), AH: ah, RemoteQPN: b.QP.QPN(), RemoteQKey: verbstest.QKey}
		bad := good
		bad.Inline, bad.SGList = nil, []verbs.SGE{{Addr: 0x1000, Length: 8, LKey: 0x1234}}
		for range 10 {
			for _, wr := range []verbs.SendWR{good, good, bad} {
				if err := a.QP.PostSend(wr); err != nil {
					t.Fatal(err)
				}
			}
			if wc := a.Next(t); wc.Status != verbs.StatusLocProtErr {
				t.Fatal(wc)
			}
			if s := a.QP.State(); s != verbs.StateSQE {
				t.Fatalf("the state is %v", s)
			}
			if err := a.QP.Modify(&verbs.Attr{State: verbs.StateRTS}, verbs.AttrState); err != nil {
				t.Fatal(err)
			}
		}
		found(t, a.Dev, "bad-access")
	})
}

// TestStrictResetWithCompletions: completions of before a RESET that are polled
// after it free no slot of after it.
func TestStrictResetWithCompletions(t *testing.T) {
	strictPair(t, verbstest.Config{QP: verbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 2}}, func(t *testing.T, a, b *verbstest.Side) {
		for i := range uint64(4) {
			if err := a.QP.PostSend(write(i, b, true)); err != nil {
				t.Fatal(err)
			}
		}
		recv := verbs.RecvWR{SGList: []verbs.SGE{a.MR.Slice(0, 8)}}
		if err := a.QP.PostRecv(recv, recv); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, q := range []*verbs.QP{a.QP, b.QP} {
			for _, s := range []verbs.State{verbs.StateErr, verbs.StateReset} {
				if err := q.Modify(&verbs.Attr{State: s}, verbs.AttrState); err != nil {
					t.Fatal(err)
				}
			}
		}
		verbstest.Connect(t, a.QP, b.QP)
		for i := range uint64(4) {
			if err := a.QP.PostSend(write(10+i, b, true)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.QP.PostRecv(recv, recv); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 6 { // of before
			a.Next(t)
		}
		if err := a.QP.PostSend(write(20, b, true)); !errors.Is(err, verbs.ErrQueueFull) {
			t.Errorf("completions of before the RESET have freed a slot of a send: %v", err)
		}
		if err := a.QP.PostRecv(recv); !errors.Is(err, verbs.ErrQueueFull) {
			t.Errorf("completions of before the RESET have freed a slot of a receive: %v", err)
		}
		a.Next(t)
		if err := a.QP.PostSend(write(20, b, true)); err != nil {
			t.Error(err)
		}
		found(t, a.Dev)
	})
}

// TestStrictUnknownOperation: a request that is refused takes and gives back no
// slot.
func TestStrictUnknownOperation(t *testing.T) {
	strictPair(t, verbstest.Config{QP: verbs.QPConfig{MaxSendWR: 4}}, func(t *testing.T, a, b *verbstest.Side) {
		if err := a.QP.PostSend(write(0, b, true)); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.PostSend(verbs.SendWR{Opcode: 99}); err == nil {
			t.Fatal("an unknown operation was taken")
		}
		n := 0
		for range 4 {
			if a.QP.PostSend(write(1, b, false)) == nil {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d requests had room beside one", n)
		}
		found(t, a.Dev) // the first one is signaled
	})
}

// TestStrictRNRAfterReset: the counters of a queue pair begin anew with it.
func TestStrictRNRAfterReset(t *testing.T) {
	strictPair(t, verbstest.Config{Connect: verbs.ConnectConfig{RNRRetry: verbs.Set(0)}}, func(t *testing.T, a, b *verbstest.Side) {
		for round := range 3 {
			if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x"), Signaled: true}); err != nil {
				t.Fatal(err)
			}
			if wc := a.Next(t); wc.Status != verbs.StatusRNRRetryExcErr {
				t.Fatal(wc)
			}
			if round == 1 { // and once without a look at the findings meanwhile
				found(t, b.Dev, "no-receive")
			}
			for _, q := range []*verbs.QP{a.QP, b.QP} {
				if err := q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState); err != nil {
					t.Fatal(err)
				}
			}
			if f := found(t, b.Dev, "no-receive"); len(f) == 1 && f[0].Count != uint64(round)+1 {
				t.Errorf("round %d: %d times", round, f[0].Count)
			}
			verbstest.Connect(t, a.QP, b.QP, func(c *verbs.ConnectConfig) { c.RNRRetry = verbs.Set(0) })
		}
	})
}

// TestStrictUnreliable: an unreliable connection tells its peer of no error,
// and loses what names memory that is not there. It is recorded all the same.
func TestStrictUnreliable(t *testing.T) {
	strictPair(t, verbstest.Config{QP: verbs.QPConfig{Type: verbs.UC}}, func(t *testing.T, a, b *verbstest.Side) {
		wr := write(1, b, true)
		wr.Remote.RKey ^= 1
		if err := a.QP.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Err() != nil {
			t.Fatal(wc)
		}
		synctest.Wait()
		found(t, a.Dev)
		found(t, b.Dev, "bad-access")
	})
}

// TestStrictSharedOverrun: queue pairs of XRC that complete into the queue of a
// shared receive queue end with it.
func TestStrictSharedOverrun(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		small, err := b.Dev.CreateCQ(1)
		if err != nil {
			t.Fatal(err)
		}
		srq, err := b.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 8})
		if err != nil {
			t.Fatal(err)
		}
		q, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, RecvCQ: small, SRQ: srq})
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
		if err != nil {
			t.Fatal(err)
		}
		verbstest.Connect(t, p, q)
		recv := verbs.RecvWR{SGList: []verbs.SGE{b.MR.Slice(0, 8)}}
		if err := srq.PostRecv(recv, recv, recv); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x"), Signaled: true}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if s := q.State(); s != verbs.StateErr {
			t.Errorf("the state is %v", s)
		}
		found(t, b.Dev, "cq-overrun")
	})
}

// TestStrictRefusedRead: memory of a READ that was not posted, or was flushed,
// is as before.
func TestStrictRefusedRead(t *testing.T) {
	strictPair(t, optional("early-read"), func(t *testing.T, a, b *verbstest.Side) {
		mine := a.MR.Bytes()
		copy(mine, "before the READ")
		before := slices.Clone(mine[:64])
		read := verbs.SendWR{ID: 1, Opcode: verbs.OpRead, Signaled: true, SGList: []verbs.SGE{a.MR.Slice(0, 32)}, Remote: b.MR.RemoteAt(0)}
		if err := a.QP.PostSend(read, verbs.SendWR{Opcode: 99}); err == nil {
			t.Fatal("an unknown operation was taken")
		}
		a.Next(t)
		copy(mine, before)
		long := read
		long.SGList = []verbs.SGE{a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8), a.MR.Slice(0, 8)}
		if err := a.QP.PostSend(long); err == nil {
			t.Fatal("a long list was taken")
		}
		if got := mine[:64]; !slices.Equal(got, before) {
			t.Errorf("after a READ that was refused there is %q", got)
		}
		if err := a.QP.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.PostSend(read); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Status != verbs.StatusWRFlushErr {
			t.Fatal(wc)
		}
		if got := mine[:64]; !slices.Equal(got, before) {
			t.Errorf("after a READ that was flushed there is %q", got)
		}
	})
}

// TestStrictWriteIntoReceive: a receive without data, whose memory the peer
// writes at the same time, keeps what the peer has written.
func TestStrictWriteIntoReceive(t *testing.T) {
	strictPair(t, optional("early-read"), func(t *testing.T, a, b *verbstest.Side) {
		theirs := b.MR.Bytes()
		for i := range theirs[:200] {
			theirs[i] = byte(i)
		}
		if err := b.QP.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.MR.Slice(0, 200)}}); err != nil {
			t.Fatal(err)
		}
		wr := write(1, b, false)
		wr.Remote.Addr += 100
		if err := a.QP.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		wr.Opcode, wr.Imm, wr.Remote = verbs.OpWriteImm, 7, b.MR.RemoteAt(21)
		if err := a.QP.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		if wc := b.Next(t); wc.Opcode != verbs.WCRecvWriteImm {
			t.Fatal(wc)
		}
		want := make([]byte, 200)
		for i := range want {
			want[i] = byte(i)
		}
		copy(want[100:], "12345678")
		copy(want[21:], "12345678")
		if got := theirs[:200]; !slices.Equal(got, want) {
			t.Errorf("there is %x\nwant     %x", got, want)
		}
	})
}

// TestStrictOwnPages: a region of all memory, and one that has its pages for
// itself, share none.
func TestStrictOwnPages(t *testing.T) {
	strictPair(t, optional("shared-page"), func(t *testing.T, a, b *verbstest.Side) {
		before := len(a.Dev.Findings()) // the region of the pair is of the heap
		if _, err := a.PD.RegisterImplicit(verbs.LocalWrite); err != nil {
			t.Fatal(err)
		}
		if _, err := a.PD.AllocMemory(100, verbs.LocalWrite); err != nil {
			t.Fatal(err)
		}
		if list := a.Dev.Findings(); len(list) != before {
			t.Errorf("found %v", list)
		}
	})
}

// TestStrictProfileWithoutItsRule: a profile has its limits, whichever rules
// are on.
func TestStrictProfileWithoutItsRule(t *testing.T) {
	strictPair(t, verbstest.Config{Device: verbs.Config{Strict: "unsignaled", Profile: "rxe"}}, func(t *testing.T, a, b *verbstest.Side) {
		if n := a.Dev.Query().MaxCQE; n != 32767 {
			t.Errorf("max_cqe is %d", n)
		}
	})
}

// TestStrictSilentSends: of requests that are never signaled only the last ones
// are kept, until a completion.
func TestStrictSilentSends(t *testing.T) {
	c := optional("send-changed")
	c.QP.MaxSendWR = 4
	strictPair(t, c, func(t *testing.T, a, b *verbstest.Side) {
		wr := verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.MR.Slice(0, 8)}, Remote: b.MR.RemoteAt(0)}
		for i := range uint64(101) {
			wr.ID, wr.Signaled = i, i == 100
			if err := a.QP.PostSend(wr); err != nil {
				t.Fatal(err)
			}
			if !wr.Signaled {
				a.MR.Bytes()[0]++
			}
			synctest.Wait()
		}
		a.Next(t)
		if f := found(t, a.Dev, "send-changed"); len(f) == 1 && (f[0].Count != 4 || f[0].WRID != 96) {
			t.Errorf("%v, %d times", f[0], f[0].Count)
		}
	})
}

// TestStrictTwoFail: of two requests that fail, a finding names the right key,
// also if one of them completes later than it was found wrong.
func TestStrictTwoFail(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		other, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, RecvCQ: b.CQ})
		if err != nil {
			t.Fatal(err)
		}
		verbstest.Connect(t, other, peer)
		mr, err := a.PD.RegisterMemory(make([]byte, 64), verbs.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		stale, unknown := mr.Slice(0, 8), mr.Slice(0, 8)
		unknown.LKey ^= 0x5a5a
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
		b.Port.Cut()
		bad := verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, SGList: []verbs.SGE{unknown}, Remote: b.MR.RemoteAt(0)}
		if err := a.QP.PostSend(write(1, b, true), bad); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		bad.ID, bad.SGList = 3, []verbs.SGE{stale}
		if err := other.PostSend(bad); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.Port.Plug()
		for range 3 {
			a.Next(t)
		}
		f := found(t, a.Dev, "stale-key", "bad-access")
		if len(f) == 2 && (f[0].WRID != 3 || f[0].Key != uint32(stale.LKey) || f[1].WRID != 2 || f[1].Key != uint32(unknown.LKey)) {
			t.Errorf("%v", f)
		}
	})
}
