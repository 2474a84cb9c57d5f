package hca

import (
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// Memory that is forbidden while its pages are fetched is given back when they
// are there, however long that takes. The goroutine that waits for that sleeps,
// as this bubble shows: it never comes to rest while a goroutine spins.
func TestForbidWhilePagesAreFetched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newHosts(t, Config{})
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		m, err := a.pd.RegisterImplicit(memreg.Options{Access: pagerAccess | ib.OnDemand})
		a.must(err)
		far := newFarMemory()
		farMR, err := a.pd.Register(far, memreg.Options{Access: pagerAccess, Base: memreg.BaseIOVA, IOVA: 1 << 20}, nil)
		a.must(err)
		a.must(m.AllowRegion(farMR))
		_, err = qa.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{{Addr: 1 << 20, Length: 8, LKey: m.Region().LKey()}},
			Remote: ib.RemoteAddr{Addr: b.mr.Region().Addr(), RKey: b.mr.Region().RKey()}}})
		a.must(err)
		<-far.asked
		forbidden := make(chan error, 1)
		go func() { forbidden <- m.Forbid(1 << 20) }()
		synctest.Wait()
		if len(forbidden) > 0 {
			t.Error("the memory was given back while its pages are fetched")
		}
		a.must(m.AllowRegion(a.mr))
		a.must(m.Forbid(a.mr.Region().Addr()))
		close(far.come)
		a.must(<-forbidden)
		var wc [1]ib.WC
		if _, err := a.cq.Wait(t.Context(), wc[:]); err != nil || wc[0].Status != ib.StatusLocProtErr {
			t.Errorf("completion %+v, %v", wc[0], err)
		}
		a.must(m.Close())
	})
}
