package hca

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

const pagerAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic

// farMemory is memory that must be fetched, which lasts until the test lets it
// come; an access before that waits as long.
type farMemory struct {
	memreg.Memory
	bytes []byte
	here  atomic.Bool
	come  chan struct{}
	asked chan struct{} // has an element for each that waits
}

func newFarMemory() *farMemory {
	b := make([]byte, 1<<20)
	return &farMemory{Memory: memreg.Local(b), bytes: b, come: make(chan struct{}), asked: make(chan struct{}, 1000)}
}

func (m *farMemory) Bytes() []byte { return nil }

func (m *farMemory) Present(off, n uint64, write bool) bool { return m.here.Load() }

func (m *farMemory) Fetch(off, n uint64, write bool) {
	m.wait()
	m.here.Store(true)
}

func (m *farMemory) wait() {
	if !m.here.Load() {
		m.asked <- struct{}{}
		<-m.come
	}
}

func (m *farMemory) CopyIn(off uint64, src []byte) error {
	m.wait()
	return m.Memory.CopyIn(off, src)
}

func (m *farMemory) CopyOut(dst []byte, off uint64) error {
	m.wait()
	return m.Memory.CopyOut(dst, off)
}

func (m *farMemory) Store64(off, v uint64) error {
	m.wait()
	return m.Memory.Store64(off, v)
}

func (m *farMemory) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	m.wait()
	return m.Memory.CompareSwap64(off, compare, swap)
}

func (m *farMemory) FetchAdd64(off, add uint64) (uint64, error) {
	m.wait()
	return m.Memory.FetchAdd64(off, add)
}

// pagerTest is two hosts with two connections, one of which has asked for a
// transfer that needs far memory on one side.
type pagerTest struct {
	a, b             *host
	far              *farMemory
	farMR            *MR
	freed            atomic.Bool
	qa, qb, oa, ob   *QP
	local, remote    *MR
	localMem, remMem []byte
	word             uint64 // at the start of remMem before
}

func newPagerTest(t *testing.T, op ib.Opcode, n uint32, here bool, cfg Config) *pagerTest {
	p := &pagerTest{far: newFarMemory()}
	p.a, p.b = newHosts(t, cfg)
	near := make([]byte, 1<<20)
	for i := range near {
		near[i], p.far.bytes[i] = byte(i>>3)+1, byte(i>>7)+2
	}
	o := memreg.Options{Access: pagerAccess, Base: memreg.BaseZero}
	side, other := p.b, p.a
	if here {
		side, other = p.a, p.b
	}
	var err error
	p.farMR, err = side.pd.Register(p.far, o, func() error { p.freed.Store(true); return nil })
	side.must(err)
	nearMR, err := other.pd.Register(memreg.Local(near), o, nil)
	side.must(err)
	p.local, p.localMem, p.remote, p.remMem = nearMR, near, p.farMR, p.far.bytes
	if here {
		p.local, p.localMem, p.remote, p.remMem = p.farMR, p.far.bytes, nearMR, near
	}
	join := func() (qa, qb *QP) {
		qa, qb = p.a.newQP(), p.b.newQP()
		p.a.connect(qa, testAddrB, qb.QPN())
		p.b.connect(qb, testAddrA, qa.QPN())
		p.b.must(qb.Modify(&ib.Attr{Access: pagerAccess}, ib.AttrAccess))
		return qa, qb
	}
	p.qa, p.qb = join()
	p.oa, p.ob = join()
	if op <= ib.OpSendInv || op == ib.OpWriteImm {
		_, err := p.qb.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{p.remote.Region().SGE(0, 1<<20)}}})
		p.b.must(err)
	}
	p.word = binary.NativeEndian.Uint64(p.remMem)
	_, err = p.qa.PostSend([]ib.SendWR{{ID: 1, Opcode: op, Signaled: true, CompareAdd: p.word, SGList: []ib.SGE{p.local.Region().SGE(0, n)},
		Remote: ib.RemoteAddr{Addr: p.remote.Region().Addr(), RKey: p.remote.Region().RKey()}}})
	p.a.must(err)
	<-p.far.asked
	return p
}

// completion returns the next one of a's queue.
func (p *pagerTest) completion() ib.WC {
	var wc [1]ib.WC
	_, err := p.a.cq.Wait(p.a.t.Context(), wc[:])
	p.a.must(err)
	return wc[0]
}

// pagerOps are operations with how many bytes they have.
var pagerOps = map[ib.Opcode]uint32{ib.OpSend: 5000, ib.OpWrite: 300000, ib.OpWriteImm: 5000, ib.OpRead: 300000,
	ib.OpCompareSwap: 8, ib.OpFetchAdd: 8, ib.OpAtomicWrite: 8}

// While a page that a transfer needs is fetched, the other queue pairs of the
// shard go on, on both hosts; and then the transfer is as it should be.
func TestPagesDoNotHoldUpTheShard(t *testing.T) {
	t.Parallel()
	for op, n := range pagerOps {
		for _, here := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				p := newPagerTest(t, op, n, here, Config{})
				for range 10 {
					p.a.write(p.oa, p.b, 100000)
					if wc := p.completion(); wc.QPN != p.oa.QPN() || wc.Status != ib.StatusSuccess {
						t.Fatalf("%v: completion %+v", op, wc)
					}
				}
				p.b.write(p.ob, p.a, 100000)
				p.b.waitOK(1)
				close(p.far.come)
				if wc := p.completion(); wc.QPN != p.qa.QPN() || wc.Status != ib.StatusSuccess {
					t.Fatalf("%v, far memory here %v: completion %+v", op, here, wc)
				}
				same := bytes.Equal(p.localMem[:n], p.remMem[:n])
				if op.Is(ib.OpAtomic) {
					want := map[ib.Opcode]uint64{ib.OpCompareSwap: 0, ib.OpFetchAdd: 2 * p.word}[op]
					same = binary.NativeEndian.Uint64(p.localMem) == p.word && binary.NativeEndian.Uint64(p.remMem) == want
				}
				if !same {
					t.Errorf("%v, far memory here %v: the data is not right", op, here)
				}
				if st := p.qa.Stats(); st.Timeouts > 0 {
					t.Errorf("%v, far memory here %v: %d timeouts", op, here, st.Timeouts)
				}
			})
		}
	}
}

// A region that is closed while its pages are fetched is dead at once, and its
// memory is given back when nothing touches it any more.
func TestRegionClosesAfterItsPages(t *testing.T) {
	t.Parallel()
	for op, n := range pagerOps {
		for _, here := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				p := newPagerTest(t, op, n, here, Config{})
				closed := make(chan error)
				go func() { closed <- p.farMR.Close() }()
				synctest.Wait()
				if p.freed.Load() || p.farMR.Region().Alive() {
					t.Errorf("%v: the memory was given back (%v) while its pages were fetched, or the region lives", op, p.freed.Load())
				}
				p.a.write(p.oa, p.b, 1000)
				p.a.waitOK(1)
				close(p.far.come)
				p.a.must(<-closed)
				if !p.freed.Load() {
					t.Error("the memory was not given back")
				}
				want := ib.StatusLocProtErr
				if !here {
					want = ib.StatusRemAccessErr
				}
				if !here && op == ib.OpSend {
					want = ib.StatusRemOpErr
				}
				if wc := p.completion(); wc.QPN != p.qa.QPN() || wc.Status != want {
					t.Errorf("%v, far memory here %v: completion %+v, want %v", op, here, wc, want)
				}
			})
		}
	}
}

// A queue pair that waits for a page is closed at once; a device waits for the
// page, for it closes the region.
func TestCloseWhilePagesAreFetched(t *testing.T) {
	t.Parallel()
	for op, n := range pagerOps {
		for _, here := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				p := newPagerTest(t, op, n, here, Config{})
				p.a.must(p.qa.Close())
				p.b.must(p.qb.Close())
				closed := make(chan error, 2)
				go func() { closed <- p.a.dev.Close() }()
				go func() { closed <- p.b.dev.Close() }()
				p.a.must(<-closed)
				synctest.Wait()
				if len(closed) > 0 {
					t.Error("the device was closed while its memory was fetched")
				}
				close(p.far.come)
				p.a.must(<-closed)
				if !p.freed.Load() {
					t.Error("the memory was not given back")
				}
			})
		}
	}
}

// A region whose pages never come does not keep those of other regions from
// coming, however many queue pairs wait for it.
func TestPagesOfOneRegionDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPagerTest(t, ib.OpWrite, 8, true, Config{})
		for range 2 * maxPagers {
			qa, qb := p.a.newQP(), p.b.newQP()
			p.a.connect(qa, testAddrB, qb.QPN())
			p.b.connect(qb, testAddrA, qa.QPN())
			_, err := qa.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, SGList: []ib.SGE{p.local.Region().SGE(0, 8)},
				Remote: ib.RemoteAddr{Addr: p.remote.Region().Addr(), RKey: p.remote.Region().RKey()}}})
			p.a.must(err)
		}
		other := newFarMemory()
		close(other.come)
		mr, err := p.a.pd.Register(other, memreg.Options{Access: pagerAccess, Base: memreg.BaseZero}, nil)
		p.a.must(err)
		_, err = p.oa.PostSend([]ib.SendWR{{Opcode: ib.OpRead, Signaled: true, SGList: []ib.SGE{mr.Region().SGE(0, 100000)},
			Remote: ib.RemoteAddr{Addr: p.b.mr.Region().Addr(), RKey: p.b.mr.Region().RKey()}}})
		p.a.must(err)
		p.a.waitOK(1)
		synctest.Wait()
		if n := 1 + len(p.far.asked); n != maxRegionPagers {
			t.Errorf("%d goroutines fetch pages of one region, not %d", n, maxRegionPagers)
		}
		close(p.far.come)
	})
}

// A program whose pages never come, in however many regions, does not keep
// those of other programs from coming.
func TestPagesOfOneContextDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPagerTest(t, ib.OpWrite, 8, true, Config{})
		other, err := p.a.dev.NewContext()
		p.a.must(err)
		theirs := *p.a
		theirs.owner = other
		theirs.pd, err = other.AllocPD()
		p.a.must(err)
		theirs.cq, err = other.CreateCQ(64, nil)
		p.a.must(err)
		for range maxPagers { // regions, each with as many goroutines as it may have
			mr, err := p.a.pd.Register(&farMemory{Memory: p.far.Memory, come: p.far.come, asked: p.far.asked},
				memreg.Options{Access: pagerAccess, Base: memreg.BaseZero}, nil)
			p.a.must(err)
			for range maxRegionPagers {
				q := p.a.newQP()
				p.a.connect(q, testAddrB, 77)
				_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, SGList: []ib.SGE{mr.Region().SGE(0, 8)},
					Remote: ib.RemoteAddr{Addr: p.remote.Region().Addr(), RKey: p.remote.Region().RKey()}}})
				p.a.must(err)
			}
		}
		synctest.Wait()
		far := newFarMemory()
		close(far.come)
		mr, err := theirs.pd.Register(far, memreg.Options{Access: pagerAccess, Base: memreg.BaseZero}, nil)
		p.a.must(err)
		qa, qb := theirs.newQP(), p.b.newQP()
		p.a.connect(qa, testAddrB, qb.QPN())
		p.b.connect(qb, testAddrA, qa.QPN())
		_, err = qa.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{mr.Region().SGE(0, 100000)},
			Remote: ib.RemoteAddr{Addr: p.b.mr.Region().Addr(), RKey: p.b.mr.Region().RKey()}}})
		p.a.must(err)
		synctest.Wait()
		if theirs.cq.pending.Load() != 1 {
			t.Error("the pages of a program wait for those of another")
		}
		if n := 1 + len(p.far.asked); n != maxContextPagers {
			t.Errorf("%d goroutines fetch pages of one context, not %d", n, maxContextPagers)
		}
		close(p.far.come)
	})
}
