package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// caller calls verbs in any order, on any object that it has made, open or
// closed. What it calls, and with what, the bytes of an input say. Errors are
// part of the game; panics, hangs and completions of nothing are not.
type caller struct {
	t  testing.TB
	in []byte

	devs []*verbs.Device
	pds  []made[*verbs.PD]
	mrs  []made[*verbs.MR]
	cqs  []made[*verbs.CQ]
	chs  []made[*verbs.CompChannel]
	qps  []made[*verbs.QP]
	srqs []made[*verbs.SRQ]
	ahs  []made[*verbs.AddressHandle]
	mws  []made[*verbs.MW]

	fasts []made[*verbs.FastMR]
	xrcds []made[*verbs.XRCD]

	id     uint64
	posted map[uint64]bool // IDs of requests without completion
	seen   map[verbs.Status]int
	among  bool // other goroutines post and poll, too
}

// made is an object and the domain or device that it was made of.
type made[T any] struct {
	it T
	of any
}

const (
	callerObjects = 24 // of each kind
	callerBytes   = 4096
	callerWait    = time.Millisecond // of virtual time, for what may wait
)

// newCaller opens two devices on one network and makes a connection.
func newCaller(t testing.TB, in []byte) *caller {
	c := &caller{t: t, in: in, posted: map[uint64]bool{}, seen: map[verbs.Status]int{}}
	a, b := fabric.Pair(addrA, addrB)
	for _, l := range []verbs.Link{a, b} {
		dev, err := verbs.OpenLink(l, verbs.Config{Loopback: true})
		check(t, err)
		c.devs = append(c.devs, dev)
		pd, err := dev.AllocPD()
		check(t, err)
		cq, err := dev.CreateCQ(16)
		check(t, err)
		mr, err := pd.RegisterMemory(make([]byte, callerBytes), allAccess)
		check(t, err)
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxRecvWR: 8})
		check(t, err)
		keep(c, &c.pds, pd, dev, nil)
		keep(c, &c.cqs, cq, dev, nil)
		keep(c, &c.mrs, mr, pd, nil)
		keep(c, &c.qps, qp, pd, nil)
	}
	connect(t, c.qps[0].it, c.qps[1].it)
	return c
}

// next takes a byte of the input, 0 at its end.
func (c *caller) next() byte {
	if len(c.in) == 0 {
		return 0
	}
	b := c.in[0]
	c.in = c.in[1:]
	return b
}

func (c *caller) next32() uint32 {
	return binary.LittleEndian.Uint32([]byte{c.next(), c.next(), c.next(), c.next()})
}

// pick picks one of the objects.
func pick[T any](c *caller, list []T) T { return list[int(c.next())%len(list)] }

// mate picks one of the objects, mostly one that was made of the same domain or
// device: others are refused.
func mate[T any](c *caller, list []made[T], of any) T {
	at := int(c.next())
	if at%16 == 15 {
		return list[at/16%len(list)].it
	}
	for i := range list {
		if m := list[(at+i)%len(list)]; m.of == of {
			return m.it
		}
	}
	return list[0].it
}

// keep adds an object that was made, until there are many.
func keep[T interface{ Close() error }](c *caller, list *[]made[T], o T, of any, err error) {
	switch {
	case err != nil:
	case len(*list) < callerObjects:
		*list = append(*list, made[T]{o, of})
	default:
		c.closed(o.Close())
	}
}

// closed takes the result of a Close.
func (c *caller) closed(err error) {
	if err != nil && !errors.Is(err, verbs.ErrClosed) {
		c.t.Logf("close: %v", err)
	}
}

func (c *caller) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.t.Context(), callerWait)
}

// rest lets time pass.
func (c *caller) rest() {
	ctx, cancel := c.ctx()
	defer cancel()
	<-ctx.Done()
}

// calls are what the caller can call; the first byte of a call chooses.
var calls = []func(*caller){
	(*caller).send, (*caller).send, (*caller).send, (*caller).send, (*caller).receive, (*caller).receive, (*caller).poll, (*caller).poll,
	(*caller).rest,
	(*caller).modify, (*caller).connect, (*caller).connect, (*caller).makeQP, (*caller).makeMemory, (*caller).makeCQ,
	func(c *caller) { d := pick(c, c.devs); pd, err := d.AllocPD(); keep(c, &c.pds, pd, d, err) },
	func(c *caller) { d := pick(c, c.devs); ch, err := d.CreateCompChannel(); keep(c, &c.chs, ch, d, err) },
	(*caller).useSRQ, (*caller).useSRQ, (*caller).handles, (*caller).datagram, (*caller).datagram, (*caller).activate, (*caller).changeCQ,
	(*caller).domains, (*caller).windows, (*caller).windows, (*caller).fastRegions, (*caller).reregister,
	(*caller).batch, (*caller).groups, (*caller).implicit,
	(*caller).waitFor, (*caller).useMemory, (*caller).query, (*caller).close,
}

// call makes one call.
func (c *caller) call() { calls[int(c.next())%len(calls)](c) }

func (c *caller) makeQP() {
	pd := pick(c, c.pds)
	types := []verbs.QPType{0, verbs.GSI, verbs.RC, verbs.UC, verbs.UD, verbs.XRCInitiator, verbs.XRCTarget, 77}
	var srq *verbs.SRQ
	if len(c.srqs) > 0 && c.next()%4 == 0 {
		srq = mate(c, c.srqs, any(pd.it))
	}
	q, err := pd.it.CreateQP(verbs.QPConfig{Type: pick(c, types), SRQ: srq, SendCQ: mate(c, c.cqs, pd.of), RecvCQ: mate(c, c.cqs, pd.of),
		MaxSendWR: int(int8(c.next())) / 4, MaxRecvWR: int(c.next()) / 4, MaxSendSGE: int(c.next()) % 5, MaxInline: int(c.next()),
		SignalAll: c.next()&1 != 0})
	keep(c, &c.qps, q, any(pd.it), err)
}

func (c *caller) makeMemory() {
	access, opts := verbs.Access(c.next32()&0x3ff), []verbs.RegOption(nil)
	switch c.next() % 4 {
	case 0:
		opts = append(opts, verbs.Invalidatable())
	case 1:
		opts = append(opts, verbs.ZeroBased())
	case 2:
		opts = append(opts, verbs.WithIOVA(uint64(c.next())<<56|uint64(c.next32())))
	}
	if c.next()&1 == 0 {
		access = allAccess | verbs.MWBind
	}
	size, pd := int(c.next32()%(2*callerBytes)), pick(c, c.pds).it
	if c.next()&1 == 0 {
		mr, err := pd.RegisterMemory(make([]byte, size), access, opts...)
		keep(c, &c.mrs, mr, pd, err)
		return
	}
	mr, err := pd.AllocMemory(size, access, opts...)
	keep(c, &c.mrs, mr, pd, err)
}

func (c *caller) makeCQ() {
	var opts []verbs.CQOption
	d := pick(c, c.devs)
	if len(c.chs) > 0 {
		opts = append(opts, verbs.WithChannel(mate(c, c.chs, d)))
	}
	cq, err := d.CreateCQ(int(int8(c.next())), opts...)
	keep(c, &c.cqs, cq, d, err)
}

// sge makes an entry, seldom a wrong one.
func (c *caller) sge(mr *verbs.MR) verbs.SGE {
	off, n := int(c.next())*16, int(c.next())*8
	if c.next() == 7 {
		return verbs.SGE{Addr: mr.Addr() + uint64(off), Length: c.next32(), LKey: mr.LKey() ^ verbs.Key(c.next())}
	}
	return mr.Slice(off, n)
}

// list makes a list of up to three entries, of which atomics want 8 bytes.
func (c *caller) list(op verbs.Opcode, pd any) (list []verbs.SGE) {
	if op == verbs.OpCompareSwap || op == verbs.OpFetchAdd {
		return []verbs.SGE{mate(c, c.mrs, pd).Slice(int(c.next())*8, 8)}
	}
	for range c.next() % 4 {
		list = append(list, c.sge(mate(c, c.mrs, pd)))
	}
	return list
}

func (c *caller) send() {
	q, wr := pick(c, c.qps), verbs.SendWR{Opcode: verbs.Opcode(c.next() % 32)}
	if wr.Opcode > 20 {
		wr.Opcode = [...]verbs.Opcode{verbs.OpSend, verbs.OpWrite}[wr.Opcode%2]
	}
	flags := c.next()
	wr.Signaled, wr.Fence, wr.Solicited = flags&1 == 0, flags&2 != 0, flags&4 != 0
	if flags&8 == 0 {
		wr.SGList = c.list(wr.Opcode, q.of)
	} else {
		wr.Inline = make([]byte, c.next())
	}
	to := pick(c, c.mrs).it
	wr.Remote = to.RemoteAt(int(c.next()) * 8)
	if flags&0x30 == 0x30 {
		wr.Remote = verbs.RemoteAddr{Addr: to.Addr() + uint64(c.next32()), RKey: to.RKey() + verbs.Key(c.next()&1)}
	}
	wr.InvalidateKey = to.RKey()
	if len(c.srqs) > 0 && q.it.Config().Type == verbs.XRCInitiator {
		wr.RemoteSRQN = pick(c, c.srqs).it.Number()
	}
	c.id++
	wr.ID = c.id
	c.posted[wr.ID] = true
	if err := q.it.PostSend(wr); err != nil {
		delete(c.posted, wr.ID)
	}
}

func (c *caller) receive() {
	q := pick(c, c.qps)
	c.id++
	c.posted[c.id] = true
	if err := q.it.PostRecv(verbs.RecvWR{ID: c.id, SGList: c.list(0, q.of)}); err != nil {
		delete(c.posted, c.id)
	}
}

// taken takes completions.
func (c *caller) taken(wcs []verbs.WC) {
	for i := range wcs {
		if !c.posted[wcs[i].ID] && !c.among {
			c.t.Fatalf("%v: nothing was posted for this completion", wcs[i])
		}
		delete(c.posted, wcs[i].ID)
		c.seen[wcs[i].Status]++
		_ = wcs[i].Err()
		_ = wcs[i].String()
	}
}

func (c *caller) poll() {
	wcs := make([]verbs.WC, c.next()%5)
	c.taken(wcs[:pick(c, c.cqs).it.Poll(wcs)])
}

// waitFor waits for what may never come.
func (c *caller) waitFor() {
	ctx, cancel := c.ctx()
	defer cancel()
	switch c.next() % 4 {
	case 0:
		wcs := make([]verbs.WC, 1+c.next()%3)
		n, _ := pick(c, c.cqs).it.Wait(ctx, wcs)
		c.taken(wcs[:n])
	case 1:
		if len(c.chs) > 0 {
			if cq, err := pick(c, c.chs).it.Get(ctx); err == nil {
				cq.Arm(false)
			}
		}
	case 2:
		pick(c, c.cqs).it.Arm(c.next()&1 != 0)
	case 3:
		if e, err := pick(c, c.devs).AsyncEvent(ctx); err == nil {
			_ = e.String()
		}
	}
}

// modify changes any attributes to anything, or only the state.
func (c *caller) modify() {
	q := pick(c, c.qps).it
	if c.next()%4 != 0 {
		return // seldom: most of it ends a connection
	}
	a := verbs.Attr{State: verbs.State(c.next() % 9), Port: 1}
	mask := verbs.AttrState
	if c.next()&1 != 0 {
		mask = verbs.AttrMask(c.next32()) & 0x3ffffff
		a = verbs.Attr{State: verbs.State(c.next() % 9), CurState: verbs.State(c.next() % 9), Port: c.next() % 3, PKeyIndex: uint16(c.next() % 2),
			QKey: c.next32(), Access: verbs.Access(c.next()), PathMTU: verbs.MTU(c.next() % 8), Timeout: c.next() % 40, RetryCount: c.next() % 10,
			RNRRetry: c.next() % 10, MaxRdAtomic: c.next(), MaxDestRdAtomic: c.next(), MinRNRTimer: c.next() % 40,
			RQPSN: verbs.PSN(c.next32()), SQPSN: verbs.PSN(c.next32()), DestQPN: verbs.QPN(c.next32())}
		a.AV.DGID = pick(c, c.devs).Addr()
	}
	_ = q.Modify(&a, mask)
}

// connect takes two queue pairs anew to RTS.
func (c *caller) connect() {
	a, b := pick(c, c.qps).it, pick(c, c.qps).it
	ctx, cancel := c.ctx()
	defer cancel()
	for _, q := range []*verbs.QP{a, b} {
		_ = q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState)
	}
	_ = a.Connect(ctx, b.Endpoint(), verbs.WithMTU(verbs.MTU256))
	_ = b.Connect(ctx, a.Endpoint(), verbs.WithMTU(verbs.MTU256))
}

func (c *caller) useMemory() {
	if c.among {
		return // the bytes are not synchronised, see package memreg
	}
	mr := pick(c, c.mrs).it
	b, off := make([]byte, c.next()), int(int8(c.next()))*32
	_, _ = mr.ReadAt(b, int64(off))
	_, _ = mr.WriteAt(b, int64(off))
	_, _ = mr.FetchAdd64(off, 1)
	_, _ = mr.CompareSwap64(off+4, 0, 1)
	_ = mr.Remote().At(uint64(off))
	_, _ = mr.Remote().Slice(uint64(off), uint64(len(b)))
}

func (c *caller) query() {
	q, d := pick(c, c.qps).it, pick(c, c.devs)
	_, _, _, _ = q.Query(), q.Config(), q.Stats(), q.Endpoint()
	_, _, _, _ = d.Query(), d.Stats(), d.QPStats(), d.GIDs()
	_ = d.QP(q.QPN())
	cq := pick(c, c.cqs).it
	_, _ = cq.Cap(), cq.Handle()
}

// close closes an object, once in a while for the second time.
func (c *caller) close() {
	if c.next()%3 != 0 {
		return
	}
	switch c.next() % 12 {
	case 0, 1, 2:
		c.closed(pick(c, c.qps).it.Close())
	case 3, 4:
		c.closed(pick(c, c.mrs).it.Close())
	case 5, 6:
		c.closed(pick(c, c.cqs).it.Close())
	case 7:
		if c.next()&3 == 0 {
			c.closed(pick(c, c.pds).it.Close())
		}
	case 8:
		if len(c.chs) > 0 {
			c.closed(pick(c, c.chs).it.Close())
		}
	case 9:
		if c.next()&7 == 0 {
			c.closed(pick(c, c.devs).Close())
		}
	}
}

// end closes the devices, and calls what is closed.
func (c *caller) end() {
	for _, d := range c.devs {
		c.closed(d.Close())
	}
	for _, m := range c.qps {
		q := m.it
		for what, err := range map[string]error{
			"PostSend": q.PostSend(verbs.SendWR{Opcode: verbs.OpSend}),
			"PostRecv": q.PostRecv(verbs.RecvWR{}),
			"Modify":   q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState),
		} {
			if !errors.Is(err, verbs.ErrClosed) {
				c.t.Fatalf("%s on a queue pair of type %v whose device is closed: %v", what, q.Config().Type, err)
			}
		}
	}
	for _, d := range c.devs {
		if _, err := d.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
			c.t.Fatalf("AllocPD on a closed device: %v", err)
		}
	}
	for range 2 * len(calls) {
		c.call()
	}
}
