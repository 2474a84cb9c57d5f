package uverbs

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// Nothing remains of a program that is killed in the middle, and its peer
// learns of it.
func TestKilled(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a := start(t, da)
	for range 5 {
		b := start(t, db)
		ca, cb := a.newCQ(63), b.newCQ(63)
		qa, qb := a.newQP(options{cq: ca}), b.newQP(options{cq: cb})
		qa.connect(qb)
		qb.connect(qa)
		for i := range uint64(10) {
			qa.post(fake.SendWR{ID: i, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 4096)}, Remote: b.addr(0), RKey: b.mr.Rkey})
			qb.post(fake.SendWR{ID: i, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{b.sge(0, 4096)}, Remote: a.addr(0), RKey: a.mr.Rkey})
		}
		b.must(b.c.Close())
		if r := b.c.Command(fake.Plain(abi.AllocPD, 4, abi.AllocPDReq{})); r.Errno != abi.EIO {
			t.Errorf("a command after the end: errno %d, want EIO", r.Errno)
		}
		if s := db.Dev.Stats(); s.QPs != 0 || s.MRs != 0 {
			t.Errorf("%d queue pairs and %d regions are left", s.QPs, s.MRs)
		}
		qa.toErr()
		ca.wait(10)
	}
}

// Clients of one device reach neither each other's objects nor memory.
func TestStrangers(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, stranger, b := start(t, da), open(t, da, smallRings), start(t, db)
	stranger.getContext()
	refused(stranger, abi.ENOENT, abi.DeallocPD, abi.DeallocPDReq{PdHandle: a.pd})
	refused(stranger, abi.ENOENT, abi.DeregMR, abi.DeregMRReq{MrHandle: a.mr.MrHandle})
	stranger.pd = ask[abi.AllocPDResp](stranger, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	cs, cb := stranger.newCQ(15), b.newCQ(15)
	qs, qb := connected(ib.RC, stranger, b, cs, cb)
	qs.post(fake.SendWR{ID: 1, Opcode: fake.Send, SGE: []ib.SGE{a.sge(0, 8)}}) // the key of another
	if wc := cs.wait(1)[0]; wc.Status == ib.StatusSuccess || wc.Status == ib.StatusWRFlushErr {
		t.Errorf("sending the memory of another program: %+v", wc)
	}
	_ = qb
	if len(stranger.mem) > 0 && &stranger.mem[0] == &a.mem[0] {
		t.Error("clients share memory")
	}
}

// Many threads of a program use a client at once, while it ends.
func TestCloseBesideCommands(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	var wg sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				r := a.c.Command(fake.Plain(abi.CreateCQ, 24, abi.CreateCQReq{CQInit: abi.CQInit{Cqe: 7, CompChannel: -1}}))
				if r.Errno == abi.EIO {
					return
				}
				if i == 10 {
					begun <- struct{}{}
				}
				if r.Errno != 0 {
					t.Errorf("errno %d", r.Errno)
					return
				}
				a.c.Command(fake.Plain(abi.DestroyCQ, 8, abi.DestroyCQReq{CqHandle: uint32(r.Resp[0])}))
			}
		})
	}
	for range 4 {
		<-begun
	}
	a.must(a.c.Close())
	wg.Wait()
}

// Garbage in all of the shared memory harms the program that wrote it, alone.
func TestScribble(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	v := newVictim(t, da, db)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		ca, cb := a.newCQ(15), b.newCQ(15)
		qa, _ := connected(ib.RC, a, b, ca, cb)
		srq := a.newSRQ(7, 3)
		for i := range a.mem[:1<<17] {
			a.mem[i] = byte(random.Uint32() >> (random.Uint32() % 32))
		}
		for h := range uint32(64) {
			a.c.Post(h)
		}
		v.talk()
		for _, c := range [][]byte{
			fake.Plain(abi.ResizeCQ, 24, abi.ResizeCQReq{CqHandle: ca.handle, Cqe: 31}),
			fake.Plain(abi.ModifySRQ, 0, abi.ModifySRQReq{SrqHandle: srq.SrqHandle, AttrMask: abi.SRQMaxWR, MaxWr: 31}),
			fake.Plain(abi.DestroyQP, 4, abi.DestroyQPReq{QpHandle: qa.QpHandle}),
			fake.Plain(abi.DestroyCQ, 8, abi.DestroyCQReq{CqHandle: ca.handle}),
			fake.Plain(abi.DestroySRQ, 4, abi.DestroySRQReq{SrqHandle: srq.SrqHandle}),
		} {
			a.c.Command(c)
		}
	}
	v.talk()
}

// victim is a connection of two programs that goes on whatever others do.
type victim struct {
	a, b   *app
	ca, cb *appCQ
	qa, qb *appQP
}

func newVictim(t testing.TB, da, db *Device) *victim {
	v := &victim{a: start(t, da), b: start(t, db)}
	v.ca, v.cb = v.a.newCQ(15), v.b.newCQ(15)
	v.qa, v.qb = connected(ib.RC, v.a, v.b, v.ca, v.cb)
	return v
}

// use has failures told to a test.
func (v *victim) use(t testing.TB) { v.a.t, v.b.t = t, t }

// talk sends a message.
func (v *victim) talk() {
	v.a.t.Helper()
	v.qb.recv.PostRecv(1, v.b.sge(0, 64))
	v.qa.post(fake.SendWR{ID: 2, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{v.a.sge(0, 8)}})
	v.ca.expect(ib.StatusSuccess, 2)
	v.cb.expect(ib.StatusSuccess, 1)
}
