package verbs_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// strictPair runs f with a pair in strict mode, in virtual time.
func strictPair(t *testing.T, c verbstest.Config, f func(t *testing.T, a, b *verbstest.Side)) {
	t.Helper()
	t.Parallel()
	if c.Device.Strict == "" && c.Device.Profile == "" {
		c.Device.Strict = "on"
	}
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t, c)
		f(t, a, b)
	})
}

// found checks that exactly the rules were broken on a device.
func found(t *testing.T, d *verbs.Device, rules ...string) []verbs.Finding {
	t.Helper()
	list := d.Findings()
	var got []string
	for _, f := range list {
		got = append(got, f.Rule)
		if f.Count == 0 || f.Detail == "" || !strings.HasPrefix(f.String(), f.Rule+": ") {
			t.Errorf("finding %+v", f)
		}
	}
	if !slices.Equal(got, rules) {
		t.Errorf("found %v, want %v", list, rules)
	}
	return list
}

func write(id uint64, b *verbstest.Side, signaled bool) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpWrite, Signaled: signaled, Inline: []byte("12345678"), Remote: b.MR.RemoteAt(0)}
}

// TestStrictUnsignaled: of 1000 posts that are not signaled the first 128 have
// room, and then there is never any again. Without strict mode all have.
func TestStrictUnsignaled(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		accepted := 0
		var err error
		for i := range uint64(1000) {
			if e := a.QP.PostSend(write(i, b, false)); e == nil {
				accepted++
			} else {
				err = e
			}
			synctest.Wait()
		}
		if accepted != 128 || !errors.Is(err, verbs.ErrQueueFull) || !strings.Contains(err.Error(), "strict rule unsignaled") {
			t.Errorf("%d posts were accepted, then %v", accepted, err)
		}
		if f := found(t, a.Dev, "unsignaled"); len(f) == 1 && (f[0].Count != 872 || f[0].WRID != 128 || f[0].QPN != uint32(a.QP.QPN())) {
			t.Errorf("%+v", f[0])
		}
		found(t, b.Dev)
	})
}

func TestUnsignaledWithoutStrict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t)
		for i := range uint64(1000) {
			if err := a.QP.PostSend(write(i, b, false)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		found(t, a.Dev)
	})
}

// TestStrictSignaled: a program that signals one request in 128 and polls never
// meets a full queue.
func TestStrictSignaled(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		for i := range uint64(1024) {
			last := i%128 == 127
			if err := a.QP.PostSend(write(i, b, last)); err != nil {
				t.Fatal(err)
			}
			if last {
				if wc := a.Next(t); wc.Err() != nil || wc.ID != i {
					t.Fatal(wc)
				}
			}
		}
		found(t, a.Dev)
	})
}

// TestStrictPolling: the slots of signaled requests are free when their
// completions were polled. That is no finding.
func TestStrictPolling(t *testing.T) {
	strictPair(t, verbstest.Config{QP: verbs.QPConfig{MaxSendWR: 8, MaxRecvWR: 4, SignalAll: true}}, func(t *testing.T, a, b *verbstest.Side) {
		post := func() (n uint64) {
			for ; n < 100; n++ {
				err := a.QP.PostSend(write(n, b, false))
				if errors.Is(err, verbs.ErrQueueFull) {
					return n
				} else if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			return n
		}
		if n := post(); n != 8 {
			t.Errorf("%d posts had room", n)
		}
		for range 5 {
			a.Next(t)
		}
		if n := post(); n != 5 {
			t.Errorf("%d posts had room after 5 completions", n)
		}
		recv := verbs.RecvWR{SGList: []verbs.SGE{b.MR.Slice(0, 64)}}
		if err := b.QP.PostRecv(recv, recv, recv, recv); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			a.Next(t)
		}
		if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := b.QP.PostRecv(recv); !errors.Is(err, verbs.ErrQueueFull) {
			t.Errorf("a receive that was not polled gave its slot back: %v", err)
		}
		b.Next(t)
		if err := b.QP.PostRecv(recv); err != nil {
			t.Error(err)
		}
		found(t, a.Dev)
		found(t, b.Dev)
	})
}

// TestStrictErrorsFreeSlots: what is flushed and polled takes no slot, and
// RESET frees all.
func TestStrictErrorsFreeSlots(t *testing.T) {
	strictPair(t, verbstest.Config{QP: verbs.QPConfig{MaxSendWR: 4}}, func(t *testing.T, a, b *verbstest.Side) {
		b.Port.Cut()
		for i := range uint64(4) {
			if err := a.QP.PostSend(write(i, b, i == 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.QP.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(4) {
			if wc := a.Next(t); wc.ID != i || wc.Status != verbs.StatusWRFlushErr {
				t.Fatal(wc)
			}
		}
		for i := range uint64(4) { // in ERR they complete at once
			if err := a.QP.PostSend(write(i, b, false)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.QP.PostSend(write(4, b, false)); !errors.Is(err, verbs.ErrQueueFull) {
			t.Error(err)
		}
		for range 4 {
			a.Next(t)
		}
		if err := a.QP.PostSend(write(4, b, false)); err != nil {
			t.Error(err)
		}
	})
}

// TestStrictCQOverrun: the queue that overflows takes nothing more, and the
// queue pairs that complete to it are in ERR, idle ones too.
func TestStrictCQOverrun(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		small, err := a.Dev.CreateCQ(4)
		if err != nil {
			t.Fatal(err)
		}
		pair := func() *verbs.QP {
			q, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: small, RecvCQ: a.CQ})
			if err != nil {
				t.Fatal(err)
			}
			other, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, RecvCQ: b.CQ})
			if err != nil {
				t.Fatal(err)
			}
			verbstest.Connect(t, q, other)
			return q
		}
		busy, idle := pair(), pair()
		for i := range uint64(5) {
			if err := busy.PostSend(write(i, b, true)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if busy.State() != verbs.StateErr || idle.State() != verbs.StateErr || a.QP.State() != verbs.StateRTS {
			t.Errorf("the states are %v, %v and %v", busy.State(), idle.State(), a.QP.State())
		}
		event, err := a.Dev.AsyncEvent(t.Context())
		if err != nil || event.Event != verbs.EventCQError || event.CQ != small {
			t.Errorf("%v, %v", event, err)
		}
		var wc [8]verbs.WC
		if n := small.Poll(wc[:]); n != 4 {
			t.Errorf("%d completions are in the queue", n)
		}
		if n := small.Poll(wc[:]); n != 0 {
			t.Errorf("the queue took %v after its end", wc[:n])
		}
		found(t, a.Dev, "cq-overrun")
	})
}

// TestStrictRNR: without retries a message for which there is no receive is an
// error, and both sides say why. With them the receiver says so.
func TestStrictRNR(t *testing.T) {
	c := verbstest.Config{Connect: verbs.ConnectConfig{RNRRetry: verbs.Set(0)}}
	strictPair(t, c, func(t *testing.T, a, b *verbstest.Side) {
		if err := a.QP.PostSend(verbs.SendWR{ID: 7, Opcode: verbs.OpSend, Inline: []byte("x"), Signaled: true}); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Status != verbs.StatusRNRRetryExcErr {
			t.Error(wc)
		}
		if f := found(t, a.Dev, "rnr-retry"); len(f) == 1 && f[0].WRID != 7 {
			t.Errorf("%+v", f[0])
		}
		found(t, b.Dev, "no-receive")
		b.QP.Close()
		if f := found(t, b.Dev, "no-receive"); len(f) == 1 && f[0].Count != 1 {
			t.Errorf("%+v", f[0])
		}
	})
}

// TestStrictStaleKeys: keys of memory that was deregistered, the own one and
// the peer's.
func TestStrictStaleKeys(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		mr, err := a.PD.RegisterMemory(make([]byte, 64), verbs.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		entry := mr.Slice(8, 16)
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.PostSend(verbs.SendWR{ID: 3, Opcode: verbs.OpWrite, SGList: []verbs.SGE{entry}, Remote: b.MR.RemoteAt(0)}); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Status != verbs.StatusLocProtErr {
			t.Error(wc)
		}
		f := found(t, a.Dev, "stale-key")
		if len(f) == 1 && (f[0].WRID != 3 || f[0].Key != uint32(entry.LKey) || f[0].Addr != entry.Addr || f[0].Length != 16) {
			t.Errorf("%+v", f[0])
		}
		found(t, b.Dev)
	})
}

func TestStrictStaleRKey(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		to := b.MR.RemoteAt(8)
		if err := b.MR.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: to}); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Status != verbs.StatusRemAccessErr {
			t.Error(wc)
		}
		found(t, a.Dev)
		if f := found(t, b.Dev, "stale-key"); len(f) == 1 && (f[0].Key != uint32(to.RKey) || f[0].QPN != uint32(b.QP.QPN())) {
			t.Errorf("%+v", f[0])
		}
	})
}

func TestStrictBadAccess(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		to := b.MR.RemoteAt(0)
		to.Addr += 1 << 20
		if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpRead, SGList: []verbs.SGE{a.MR.Slice(0, 8)}, Remote: to}); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Status != verbs.StatusRemAccessErr {
			t.Error(wc)
		}
		found(t, a.Dev)
		found(t, b.Dev, "bad-access")
	})
}

func TestStrictAtomicAlign(t *testing.T) {
	strictPair(t, verbstest.Config{}, func(t *testing.T, a, b *verbstest.Side) {
		atomic := func(off int) verbs.SendWR {
			return verbs.SendWR{ID: 1, Signaled: true, Opcode: verbs.OpFetchAdd, SGList: []verbs.SGE{a.MR.Slice(0, 8)}, Remote: b.MR.RemoteAt(off), CompareAdd: 1}
		}
		if err := a.QP.PostSend(atomic(8)); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Err() != nil {
			t.Error(wc)
		}
		found(t, a.Dev)
		found(t, b.Dev)
		if err := a.QP.PostSend(atomic(12)); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Status != verbs.StatusRemInvReqErr {
			t.Error(wc)
		}
		found(t, a.Dev, "atomic-align")
		found(t, b.Dev, "atomic-align")
	})
}

// TestProfiles: what a device of a profile offers is what it takes.
func TestProfiles(t *testing.T) {
	for _, profile := range []string{"mlx5", "rxe", "efa"} {
		t.Run(profile, func(t *testing.T) {
			strictPair(t, verbstest.Config{Device: verbs.Config{Profile: profile}}, func(t *testing.T, a, b *verbstest.Side) {
				most := a.Dev.Query()
				if most.MaxQPWR == 0 || most.MaxRdAtomic == 0 || most.MaxMRSize == 0 {
					t.Errorf("%+v", most)
				}
				for _, c := range []struct {
					name string
					set  func(c *verbs.QPConfig, more int)
				}{
					{"MaxSendWR", func(c *verbs.QPConfig, more int) { c.MaxSendWR = most.MaxQPWR + more }},
					{"MaxRecvWR", func(c *verbs.QPConfig, more int) { c.MaxRecvWR = most.MaxQPWR + more }},
					{"MaxSendSGE", func(c *verbs.QPConfig, more int) { c.MaxSendSGE = most.MaxSGE + more }},
					{"MaxRecvSGE", func(c *verbs.QPConfig, more int) { c.MaxRecvSGE = most.MaxSGE + more }},
					{"MaxInline", func(c *verbs.QPConfig, more int) { c.MaxInline = most.MaxInline + more }},
				} {
					for more := range 2 {
						config := verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ}
						c.set(&config, more)
						q, err := a.PD.CreateQP(config)
						if r := new(verbs.RangeError); errors.As(err, &r) != (more == 1) {
							t.Errorf("%s of %+v: %v", c.name, config, err)
						}
						if err == nil {
							q.Close()
						}
					}
				}
				if _, err := a.Dev.CreateCQ(most.MaxCQE + 1); err == nil {
					t.Error("a completion queue is longer than there are")
				}
				var long []verbs.SGE
				for range most.MaxReadSGE + 1 {
					long = append(long, a.MR.Slice(0, 1))
				}
				read := verbs.SendWR{Opcode: verbs.OpRead, Signaled: true, SGList: long[1:], Remote: b.MR.RemoteAt(0)}
				if most.MaxReadSGE <= a.QP.Config().MaxSendSGE {
					if err := a.QP.PostSend(read); err != nil {
						t.Fatal(err)
					}
					if wc := a.Next(t); wc.Err() != nil {
						t.Error(wc)
					}
				}
				read.SGList = long
				if err := a.QP.PostSend(read); !errors.Is(err, verbs.ErrTooManySGE) {
					t.Errorf("a READ with a longer list: %v", err)
				}
				if n := a.QP.Query().MaxRdAtomic; int(n) > most.MaxRdAtomic || n == 0 {
					t.Errorf("MaxRdAtomic is %d", n)
				}
				found(t, a.Dev)
			})
		})
	}
}

func TestCheckStrict(t *testing.T) {
	t.Parallel()
	if err := verbs.CheckStrict("on,-no-receive", "mlx5"); err != nil {
		t.Error(err)
	}
	if verbs.CheckStrict("nonsense", "") == nil || verbs.CheckStrict("on", "nonsense") == nil {
		t.Error("nonsense was taken")
	}
	if len(verbs.StrictRules()) == 0 {
		t.Error("there are no rules")
	}
}
