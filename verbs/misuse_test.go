package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Objects that are closed, or of another device, are refused by name.
func TestQueuePairNeedsOpenObjects(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	closed, err := a.dev.CreateCQ(4)
	check(t, err)
	check(t, closed.Close())
	pd, err := a.dev.AllocPD()
	check(t, err)
	check(t, pd.Close())
	ch, err := a.dev.CreateCompChannel()
	check(t, err)
	check(t, ch.Close())
	open, err := a.dev.CreateCompChannel()
	check(t, err)
	create := func(pd *verbs.PD, send, recv *verbs.CQ) error {
		_, err := pd.CreateQP(verbs.QPConfig{SendCQ: send, RecvCQ: recv})
		return err
	}
	cases := []struct {
		err   error
		want  error
		words string
	}{
		{create(a.pd, closed, a.cq), verbs.ErrClosed, "SendCQ"},
		{create(a.pd, a.cq, closed), verbs.ErrClosed, "RecvCQ"},
		{create(pd, a.cq, a.cq), verbs.ErrClosed, "protection domain"},
		{createCQ(a.dev, ch), verbs.ErrClosed, "completion channel"},
	}
	if b.dev != a.dev {
		cases = append(cases, []struct {
			err   error
			want  error
			words string
		}{
			{create(a.pd, b.cq, a.cq), verbs.ErrOtherDevice, "SendCQ"},
			{create(a.pd, a.cq, b.cq), verbs.ErrOtherDevice, "RecvCQ"},
			{createCQ(b.dev, open), verbs.ErrOtherDevice, "completion channel"},
		}...)
	}
	for _, c := range cases {
		if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.words) {
			t.Errorf("%v, want %v and %q", c.err, c.want, c.words)
		}
	}
	check(t, createCQ(a.dev, nil))
	check(t, createCQ(a.dev, open))
}

func createCQ(d *verbs.Device, ch *verbs.CompChannel) error {
	_, err := d.CreateCQ(1, verbs.WithChannel(ch))
	return err
}

// A domain that is closed while its regions are is gone afterwards.
func TestDomainClosedBesideItsRegions(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	before := a.dev.Stats().MRs
	for range 2000 {
		pd, err := a.dev.AllocPD()
		check(t, err)
		var mrs []*verbs.MR
		for range 3 {
			mr, err := pd.RegisterMemory(make([]byte, 8), 0)
			check(t, err)
			mrs = append(mrs, mr)
		}
		var wg sync.WaitGroup
		for _, mr := range mrs {
			wg.Go(func() {
				if err := mr.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				if err := pd.Close(); err != nil {
					t.Error(err)
				}
				for _, mr := range mrs {
					if _, err := mr.Load64(0); !errors.Is(err, verbs.ErrClosed) {
						t.Errorf("a region of a closed domain is there: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
	if n := a.dev.Stats().MRs; n != before {
		t.Errorf("%d regions, want %d", n, before)
	}
}

// A queue pair that is used again starts at another PSN, and works.
func TestResetChoosesAnotherPSN(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	seen := map[verbs.PSN]bool{}
	for i := range 20 {
		if psn := a.qp.Endpoint().PSN; seen[psn] {
			t.Fatalf("round %d: PSN %v again", i, psn)
		} else {
			seen[psn] = true
		}
		if got := b.qp.Query().RQPSN; got != a.qp.Endpoint().PSN {
			t.Errorf("the peer expects PSN %v, the endpoint says %v", got, a.qp.Endpoint().PSN)
		}
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.mr.RemoteAt(0)})
		a.waitOK(1)
		for _, s := range []*side{a, b} {
			check(t, s.qp.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		}
		connect(t, a.qp, b.qp)
	}
	fresh := a.newQP(verbs.QPConfig{})
	e := fresh.Endpoint()
	check(t, fresh.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
	if fresh.Endpoint() != e {
		t.Error("a queue pair that was never used changes the endpoint that the peer may have")
	}
}

func TestWaitNeedsRoom(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	for _, wc := range [][]verbs.WC{nil, {}} {
		if _, err := a.cq.Wait(t.Context(), wc); !errors.Is(err, verbs.ErrNoRoom) {
			t.Errorf("Wait: %v", err)
		}
	}
}

func TestPostErrorsTellTheirCause(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	q := a.newQP(verbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4})
	check(t, q.Connect(t.Context(), verbs.Endpoint{Addr: addrB, QPN: 99}))
	var post *verbs.PostError
	wrs := make([]verbs.SendWR, 6)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(10 + i), Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.mr.RemoteAt(0)}
	}
	if err := q.PostSend(wrs...); !errors.Is(err, verbs.ErrQueueFull) || !errors.As(err, &post) || post.Index != 4 || post.ID != 14 {
		t.Errorf("six sends into a queue of four: %v", err)
	}
	if err := q.PostRecv(make([]verbs.RecvWR, 5)...); !errors.Is(err, verbs.ErrQueueFull) || !errors.As(err, &post) || post.Index != 4 {
		t.Errorf("five receives into a queue of four: %v", err)
	}
	if err := a.qp.PostSend(verbs.SendWR{ID: 3, Inline: []byte("x")}); !errors.Is(err, verbs.ErrOpcode) || !strings.Contains(err.Error(), "Opcode is not set") {
		t.Errorf("no operation: %v", err)
	}
	check(t, q.Close())
	for _, err := range []error{q.PostSend(), q.PostRecv(), q.PostSend(wrs...), q.PostRecv(verbs.RecvWR{})} {
		if !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	check(t, a.qp.PostSend())
}

// What a number of bytes in the place of an MTU says, and how to make one. The
// attribute is a code (IBTA 5.2.1).
func TestPathMTU(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	q := a.newQP(verbs.QPConfig{})
	bytes := 1024
	err := q.Connect(t.Context(), b.qp.Endpoint(), verbs.WithMTU(verbs.MTU(bytes)))
	if !errors.Is(err, verbs.ErrAttrValue) || !strings.Contains(err.Error(), "MTUOf(1024)") {
		t.Errorf("1024 as an MTU: %v", err)
	}
	if err := q.ReadyToReceive(b.qp.Endpoint(), verbs.WithMTU(9)); err == nil || !strings.Contains(err.Error(), "codes 1 to 5") {
		t.Errorf("9 as an MTU: %v", err)
	}
	m, err := verbs.MTUOf(bytes)
	check(t, err)
	if m != verbs.MTU1024 || m.Bytes() != bytes {
		t.Errorf("MTU %v", m)
	}
	check(t, q.Connect(t.Context(), b.qp.Endpoint(), verbs.WithMTU(m)))
	for _, n := range []int{0, -1, 5, 1500, 1 << 20} {
		if _, err := verbs.MTUOf(n); err == nil || !strings.Contains(err.Error(), "256, 512, 1024, 2048 and 4096") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestCompletionErrors(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	a.post(verbs.SendWR{ID: 5, Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.mr.RemoteAt(0)})
	wc := a.wait()
	check(t, wc.Err())
	if s := wc.String(); !strings.Contains(s, "RDMA_WRITE (id 5)") || !strings.Contains(s, "SUCCESS, 1 bytes") {
		t.Error(s)
	}
	bad := b.mr.RemoteAt(0)
	bad.RKey ^= 1
	a.post(verbs.SendWR{ID: 6, Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: bad})
	err := a.wait().Err()
	var e *verbs.WCError
	if !errors.Is(err, verbs.StatusRemAccessErr) || errors.Is(err, verbs.StatusRetryExcErr) || !errors.As(err, &e) || e.WC.ID != 6 {
		t.Errorf("wrong key: %v", err)
	}
	for _, words := range []string{"RDMA_WRITE (id 6)", a.qp.QPN().String(), "REM_ACCESS_ERR (code 10)", "refuses the address, the key", "NAK: remote access error", "0x262"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
}

// The error of a completion gives its status, and its fault if it has one, to
// errors.Is and to errors.As alike.
func TestCompletionErrorAs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wc     verbs.WC
		status verbs.Status
		fault  verbs.Fault
	}{
		{verbs.WC{Status: verbs.StatusLocProtErr, VendorErr: verbs.VendorFault + uint32(verbs.FaultWrongPD)}, verbs.StatusLocProtErr, verbs.FaultWrongPD},
		{verbs.WC{Status: verbs.StatusRemAccessErr, VendorErr: verbs.VendorNAK + 0x62}, verbs.StatusRemAccessErr, verbs.FaultNone},
		{verbs.WC{Status: verbs.StatusRetryExcErr}, verbs.StatusRetryExcErr, verbs.FaultNone},
	} {
		err := fmt.Errorf("wrapped: %w", c.wc.Err())
		var status verbs.Status
		if !errors.As(err, &status) || status != c.status || !errors.Is(err, c.status) {
			t.Errorf("%v: status %v, expected %v", err, status, c.status)
		}
		var fault verbs.Fault
		if is := errors.As(err, &fault); is != (c.fault != verbs.FaultNone) || fault != c.fault || errors.Is(err, fault) != is {
			t.Errorf("%v: fault %v, expected %v", err, fault, c.fault)
		}
		if errors.Is(err, verbs.FaultNone) || errors.Is(err, verbs.FaultMemory) || errors.Is(err, verbs.StatusSuccess) {
			t.Errorf("%v is what it is not", err)
		}
	}
}

// Completions of several queue pairs find their way by QPN, and a loop over
// them that is left loses none.
func TestCompletionsInALoop(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	type conn struct {
		qp   *verbs.QP
		done int
	}
	var conns [3]*conn
	for i := range conns {
		conns[i] = &conn{}
		conns[i].qp = a.newQP(verbs.QPConfig{UserData: conns[i]})
		connect(t, conns[i].qp, b.newQP(verbs.QPConfig{}))
	}
	const each = 20
	for range each {
		for _, c := range conns {
			check(t, c.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.mr.RemoteAt(0), Signaled: true}))
		}
	}
	for left := each * len(conns); left > 0; {
		for wc, err := range a.cq.Completions(t.Context()) {
			check(t, err)
			check(t, wc.Err())
			q := a.dev.QP(wc.QPN)
			q.UserData().(*conn).done++
			if left--; left%7 == 0 {
				break
			}
		}
	}
	for i, c := range conns {
		if c.done != each || c.qp.Config().UserData != c {
			t.Errorf("queue pair %d: %d done", i, c.done)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs []error
	for _, err := range a.cq.Completions(ctx) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("a loop without completions ends with %v", errs)
	}
	check(t, conns[0].qp.Close())
	if a.dev.QP(conns[0].qp.QPN()) != nil || a.dev.QP(0) != nil || a.dev.QP(1<<30) != nil || a.qp.UserData() != nil {
		t.Error("a queue pair that is not there")
	}
}

func TestNegativeSizes(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	var r *verbs.RangeError
	if _, err := a.dev.CreateCQ(-1); !errors.As(err, &r) {
		t.Errorf("completion queue: %v", err)
	}
	for _, c := range []verbs.QPConfig{{MaxSendWR: -1}, {MaxRecvWR: -1}, {MaxSendSGE: -1}, {MaxRecvSGE: -1}, {MaxInline: -1}, {MaxSendWR: 1 << 30}} {
		c.SendCQ, c.RecvCQ = a.cq, a.cq
		if _, err := a.pd.CreateQP(c); !errors.As(err, &r) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	r = nil
	if err := a.qp.Modify(&verbs.Attr{State: verbs.StateRTS, MaxRdAtomic: 200}, verbs.AttrState|verbs.AttrMaxRdAtomic); !errors.As(err, &r) || r.Got != 200 {
		t.Errorf("MaxRdAtomic: %v", err)
	}
	if _, err := verbs.OpenAddr(parseAddr("127.0.0.1"), verbs.Config{Shards: -2}); err == nil || !strings.Contains(err.Error(), "Shards is -2") {
		t.Errorf("shards: %v", err)
	}
}

func TestOpenAnAddressOfNoInterface(t *testing.T) {
	t.Parallel()
	var open *verbs.OpenError
	foreign := parseAddr("203.0.113.99")
	if _, err := verbs.OpenAddr(foreign, verbs.Config{}); !errors.As(err, &open) || open.Addr.Addr() != foreign || open.Err == nil {
		t.Error(err)
	}
}

// What a program gives wrongly is in the error, with a kind to tell it by.
func TestErrorsSayWhere(t *testing.T) {
	t.Parallel()
	a, b := verbstest.NewPair(t, verbstest.Config{Memory: 4096})
	qp, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
	if err != nil {
		t.Fatal(err)
	}
	_, out := a.MR.Load64(4096)
	_, before := a.MR.FetchAdd64(-8, 1)
	_, odd := a.MR.CompareSwap64(12, 0, 1)
	for _, c := range []struct {
		err  error
		want string
		is   error
	}{
		{out, "8 bytes at offset 4096 of 4096", verbs.ErrRange},
		{before, "8 bytes at offset -8 of 4096", verbs.ErrRange},
		{a.MR.Store64(1<<30, 1), "of 4096", verbs.ErrRange},
		{odd, "offset 12 must be at a multiple of 8", verbs.FaultMisaligned},
		{qp.Connect(t.Context(), verbs.Endpoint{}), "the peer has no address", verbs.ErrAttrValue},
		{qp.Connect(t.Context(), verbs.Endpoint{Addr: b.Dev.Addr()}), "Endpoint: its QPN is 0", verbs.ErrAttrValue},
		{qp.ReadyToReceive(verbs.Endpoint{Addr: b.Dev.Addr(), PathMTU: 7}), "MTU(7) is not one of the codes", verbs.ErrAttrValue},
		{qp.Connect(t.Context(), b.QP.Endpoint(), verbs.WithMTU(9)), "MTU(9)", verbs.ErrAttrValue},
		{a.QP.Connect(t.Context(), b.QP.Endpoint()), "reset the queue pair first", verbs.ErrTransition},
		{qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend}), "from RTS on", verbs.ErrState},
		{a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpLocalInv}), "InvalidateKey is not set", verbs.ErrNoKey},
		{a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpReadInv}), "InvalidateKey is not set", verbs.ErrNoKey},
		{a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpBindMW}), "Bind is not set", verbs.ErrNoBind},
		{a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpRegMR}), "Reg is not set", verbs.ErrNoReg},
		{a.QP.PostSend(verbs.SendWR{Opcode: 77}), "unknown operation 77", verbs.ErrOpcode},
		{a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Remote: b.MR.RemoteAt(0), Inline: make([]byte, 65)}), "65 bytes; the queue pair was made for 64", verbs.ErrInlineTooLong},
		{a.QP.PostRecv(verbs.RecvWR{SGList: make([]verbs.SGE, 5)}), "made for 4 (MaxRecvSGE)", verbs.ErrTooManySGE},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || !errors.Is(c.err, c.is) {
			t.Errorf("error is %v, want %q and %v", c.err, c.want, c.is)
		}
		var me *verbs.ModifyError
		if c.is == verbs.ErrAttrValue && !(errors.As(c.err, &me) && me.To == verbs.StateRTR && me.Attr != 0) {
			t.Errorf("%v is no ModifyError", c.err)
		}
	}
}

// An object that others use is not closed, and the error says by how many, and
// what to do.
func TestCloseOfWhatIsInUse(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	refused := func(err error, parts ...string) {
		t.Helper()
		if !errors.Is(err, verbs.ErrInUse) {
			t.Fatalf("%v", err)
		}
		for _, part := range append(parts, "verbs: close ", "first") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	mr, err := a.pd.AllocMemory(4096, verbs.LocalWrite|verbs.MWBind)
	check(t, err)
	mw, err := a.pd.AllocMW(verbs.MWType2)
	check(t, err)
	bind := mw.BindTo(mr, 0, 64, verbs.RemoteRead)
	bind.Signaled = true
	a.post(bind)
	a.waitOK(0)
	refused(mr.Close(), "memory region", "window", "1")
	if err := mr.Reregister(verbs.ToAccess(verbs.LocalWrite)); !errors.Is(err, verbs.ErrInUse) {
		t.Errorf("re-registration: %v", err)
	}
	check(t, mw.Close())
	check(t, mr.Close())

	srq, err := b.pd.CreateSRQ(verbs.SRQConfig{})
	check(t, err)
	_, err = b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq})
	check(t, err)
	refused(srq.Close(), "shared receive queue", "queue pairs", "1")
	x, err := b.dev.OpenXRCD()
	check(t, err)
	_, err = b.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: x})
	check(t, err)
	refused(x.Close(), "XRC domain", "target", "1")
}

// What a message is about is named as the program has named it.
func TestMessagesNameWhatWasAsked(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 4096)
	says := func(err error, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
	}
	ud := a.newQP(verbs.QPConfig{Type: verbs.UD})
	check(t, ud.Activate(1))
	says(ud.Activate(2), "activate QP", "StateReset", "Q_Key")
	x, err := a.dev.OpenXRCD()
	check(t, err)
	_, err = a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, XRCD: x})
	says(err, "of type RC")
	f, err := os.CreateTemp(mappedDir(t), "map")
	check(t, err)
	defer f.Close()
	check(t, f.Truncate(4096))
	_, err = a.pd.MapFile(f, 0, 4096, verbs.RemoteWrite)
	says(err, "4096 bytes", f.Name(), "LocalWrite")
}

// Numbers that no queue pair of a program can have: those of the management
// queue pairs, of multicast, and what is no number of 24 bits.
func TestNumbersThatNoQueuePairHas(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 4096)
	for _, n := range []verbs.QPN{1, 15, 0xffffff, 1 << 24, 1<<24 | 0x1234} {
		q, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, Number: n})
		if wrong := (*verbs.RangeError)(nil); !errors.As(err, &wrong) || wrong.What != "Number" {
			t.Errorf("%#x: %v", uint32(n), err)
		}
		if err == nil {
			check(t, q.Close())
		}
	}
}
