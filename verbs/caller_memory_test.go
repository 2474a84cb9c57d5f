package verbs_test

import "github.com/gosoftroce/rocev2/verbs"

// windows makes, binds and frees memory windows.
func (c *caller) windows() {
	if c.next()%4 == 0 || len(c.mws) == 0 {
		pd := pick(c, c.pds).it
		mw, err := pd.AllocMW(verbs.MWType(1 + c.next()%2))
		if c.next() == 0 {
			mw, err = pd.AllocMW(verbs.MWType(c.next()))
		}
		keep(c, &c.mws, mw, any(pd), err)
		return
	}
	w := pick(c, c.mws)
	switch c.next() % 8 {
	case 0:
		if c.next()%4 == 0 {
			c.closed(w.it.Close())
		}
	case 1:
		_, _, _, _ = w.it.Type(), w.it.RKey(), w.it.Bound(), w.it.Remote()
	case 2:
		c.postTo(c.qpOf(w.of), w.it.Unbind())
	default:
		access := verbs.Access(c.next())
		if c.next()%2 == 0 {
			access = verbs.RemoteRead | verbs.RemoteWrite
		}
		wr := w.it.BindTo(mate(c, c.mrs, w.of), int(int8(c.next()))*16, int(int8(c.next()))*16, access)
		if c.next() == 0 {
			wr.Bind.NewKey = verbs.Key(c.next32())
		}
		c.postTo(c.qpOf(w.of), wr)
	}
}

// qpOf picks a queue pair, mostly one of a domain.
func (c *caller) qpOf(pd any) *verbs.QP { return mate(c, c.qps, pd) }

// postTo posts a request that something else has made, and flags it.
func (c *caller) postTo(q *verbs.QP, wr verbs.SendWR) {
	c.id++
	wr.ID, wr.Signaled, wr.Fence = c.id, c.next()&1 == 0, c.next()&1 == 0
	c.posted[wr.ID] = true
	if err := q.PostSend(wr); err != nil {
		delete(c.posted, wr.ID)
	}
}

// fastRegions makes, maps, registers and frees fast registration regions.
func (c *caller) fastRegions() {
	if c.next()%4 == 0 || len(c.fasts) == 0 {
		pd := pick(c, c.pds).it
		f, err := pd.AllocFastMR(int(int8(c.next())) * 64)
		keep(c, &c.fasts, f, any(pd), err)
		return
	}
	f := pick(c, c.fasts)
	switch c.next() % 8 {
	case 0:
		if c.next()%4 == 0 {
			c.closed(f.it.Close())
		}
	case 1:
		_, _, _, _ = f.it.Valid(), f.it.LKey(), f.it.RKey(), f.it.LKeyWith(verbs.Key(c.next32()))
	case 2:
		c.postTo(c.qpOf(f.of), f.it.Invalidate())
	case 3, 4:
		bufs := make([][]byte, c.next()%4)
		for i := range bufs {
			bufs[i] = make([]byte, int(c.next())*8)
		}
		_ = f.it.Map(bufs...)
	default:
		access := verbs.Access(c.next())
		if c.next()%2 == 0 {
			access = allAccess
		}
		c.postTo(c.qpOf(f.of), f.it.Register(uint64(c.next())<<56|uint64(c.next32()), access))
	}
}

// reregister changes regions, and makes others of them.
func (c *caller) reregister() {
	mr := pick(c, c.mrs)
	access := verbs.Access(c.next32() & 0x3ff)
	if c.next()%2 == 0 {
		access = allAccess | verbs.MWBind
	}
	switch c.next() % 6 {
	case 0, 1:
		_ = mr.it.Reregister(verbs.ToAccess(access))
	case 2:
		_ = mr.it.Reregister(verbs.ToPD(pick(c, c.pds).it), verbs.ToAccess(access))
	case 3:
		_ = mr.it.Reregister(verbs.ToMemory(make([]byte, int(c.next())*32), verbs.WithIOVA(uint64(c.next32()))), verbs.ToAccess(access))
	case 4:
		_ = mr.it.Query()
	case 5:
		pd := pick(c, c.pds).it
		shared, err := mr.it.Share(pd, access)
		keep(c, &c.mrs, shared, any(pd), err)
	}
}
