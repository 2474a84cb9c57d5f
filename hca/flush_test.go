package hca

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// slowDisk is memory with a file after it, on a disk that takes as long as the
// test wants.
type slowDisk struct {
	memreg.Memory
	begun chan [2]uint64 // offset and length of what is to be brought there
	done  chan error
}

func newSlowDisk() *slowDisk {
	return &slowDisk{Memory: memreg.Local(make([]byte, 1<<20)), begun: make(chan [2]uint64, 100), done: make(chan error)}
}

func (d *slowDisk) Persistent() bool { return true }

func (d *slowDisk) Persist(off, n uint64) error {
	d.begun <- [2]uint64{off, n}
	return <-d.done
}

// flushTest is two hosts with two connections, of which one has asked to have a
// slow disk flushed.
type flushTest struct {
	*pagerTest
	disk   *slowDisk
	diskMR *MR
}

const flushAccess = pagerAccess | ib.FlushGlobal | ib.FlushPersistent

func newFlushTest(t *testing.T) *flushTest {
	p := &flushTest{pagerTest: &pagerTest{}, disk: newSlowDisk()}
	p.a, p.b = newHosts(t, Config{})
	var err error
	p.diskMR, err = p.b.pd.Register(p.disk, memreg.Options{Access: flushAccess, Base: memreg.BaseZero},
		func() error { p.freed.Store(true); return nil })
	p.b.must(err)
	p.local, err = p.a.pd.Register(memreg.Local([]byte("01234567")), memreg.Options{Access: ib.LocalWrite}, nil)
	p.a.must(err)
	for i, q := range []**QP{&p.qa, &p.oa} {
		qa, qb := p.a.newQP(), p.b.newQP()
		p.a.connect(qa, testAddrB, qb.QPN())
		p.b.connect(qb, testAddrA, qa.QPN())
		p.b.must(qb.Modify(&ib.Attr{Access: flushAccess}, ib.AttrAccess))
		*q, *[]**QP{&p.qb, &p.ob}[i] = qa, qb
	}
	_, err = p.qa.PostSend([]ib.SendWR{
		{ID: 1, Opcode: ib.OpFlush, Signaled: true, FlushType: rocev2.FlushPersistent, Length: 64,
			Remote: ib.RemoteAddr{Addr: 4096, RKey: p.diskMR.Region().RKey()}},
		{ID: 2, Opcode: ib.OpAtomicWrite, Signaled: true, SGList: []ib.SGE{p.local.Region().SGE(0, 8)},
			Remote: ib.RemoteAddr{Addr: 8, RKey: p.diskMR.Region().RKey()}},
	})
	p.a.must(err)
	if got := <-p.disk.begun; got != [2]uint64{4096, 64} {
		t.Errorf("%d bytes at %d are flushed", got[1], got[0])
	}
	return p
}

// While a disk takes its time the other queue pairs go on, on both hosts. What
// is after the FLUSH is executed when it is done, and no timeout passes.
func TestFlushDoesNotHoldUpTheShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newFlushTest(t)
		for range 10 {
			p.a.write(p.oa, p.b, 100000)
			if wc := p.completion(); wc.QPN != p.oa.QPN() || wc.Status != ib.StatusSuccess {
				t.Fatalf("completion %+v", wc)
			}
		}
		p.b.write(p.ob, p.a, 100000)
		p.b.waitOK(1)
		if v, _ := p.diskMR.Region().Load64(8); v != 0 {
			t.Error("an ATOMIC WRITE has overtaken the FLUSH")
		}
		p.disk.done <- nil
		for id := range uint64(2) {
			if wc := p.completion(); wc.ID != id+1 || wc.Status != ib.StatusSuccess {
				t.Fatalf("completion %+v", wc)
			}
		}
		if v, _ := p.diskMR.Region().Load64(8); v == 0 {
			t.Error("the ATOMIC WRITE is not there")
		}
		if st := p.qa.Stats(); st.Timeouts > 0 {
			t.Errorf("%d timeouts", st.Timeouts)
		}
	})
}

// A disk that fails fails the FLUSH, and nothing after it is executed.
func TestFlushOfBrokenDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newFlushTest(t)
		p.disk.done <- errors.New("I/O error")
		for id, want := range []ib.Status{ib.StatusRemOpErr, ib.StatusWRFlushErr} {
			if wc := p.completion(); wc.ID != uint64(id)+1 || wc.Status != want {
				t.Fatalf("completion %+v, want %v", wc, want)
			}
		}
		if v, _ := p.diskMR.Region().Load64(8); v != 0 {
			t.Error("what is after the FLUSH was executed")
		}
	})
}

// A region that is closed while its bytes are brought to the disk waits for
// that; a queue pair does not.
func TestCloseDuringFlush(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"region", "queue pair"} {
		synctest.Test(t, func(t *testing.T) {
			p := newFlushTest(t)
			closed := make(chan error, 1)
			if what == "region" {
				go func() { closed <- p.diskMR.Close() }()
			} else {
				p.b.must(p.qb.Close())
				go func() { closed <- p.b.dev.Close() }()
			}
			synctest.Wait()
			if p.freed.Load() || len(closed) > 0 {
				t.Errorf("%s: the memory was given back while it was flushed", what)
			}
			p.disk.done <- nil
			p.a.must(<-closed)
			if !p.freed.Load() {
				t.Errorf("%s: the memory was not given back", what)
			}
		})
	}
}
