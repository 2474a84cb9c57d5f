package verbs_test

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// datagramQKey is the Q_Key of most queue pairs of a caller.
const datagramQKey = 0x22222222

// makeSRQ makes a shared receive queue.
func (c *caller) makeSRQ() {
	pd := pick(c, c.pds)
	config := verbs.SRQConfig{MaxWR: int(int8(c.next())) / 4, MaxSGE: int(c.next()) % 5, Limit: int(int8(c.next())) / 16}
	if len(c.xrcds) > 0 && c.next()%2 == 0 {
		config.XRCD, config.CQ = mate(c, c.xrcds, pd.of), mate(c, c.cqs, pd.of)
	}
	s, err := pd.it.CreateSRQ(config)
	keep(c, &c.srqs, s, any(pd.it), err)
}

// domains makes and closes XRC domains, and target queue pairs.
func (c *caller) domains() {
	if c.next()%3 == 0 || len(c.xrcds) == 0 {
		d := pick(c, c.devs)
		x, err := d.OpenXRCD()
		keep(c, &c.xrcds, x, any(d), err)
		return
	}
	if c.next()%8 == 0 {
		c.closed(pick(c, c.xrcds).it.Close())
		return
	}
	pd := pick(c, c.pds)
	q, err := pd.it.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: mate(c, c.xrcds, pd.of)})
	keep(c, &c.qps, q, any(pd.it), err)
}

// useSRQ posts to one and changes it.
func (c *caller) useSRQ() {
	if len(c.srqs) == 0 {
		c.makeSRQ()
		return
	}
	s := pick(c, c.srqs)
	switch what := c.next() % 8; what {
	case 0:
		_ = s.it.Resize(int(int8(c.next())))
	case 1:
		_ = s.it.SetLimit(int(int8(c.next())))
	case 2:
		_ = s.it.Modify(verbs.SRQAttr{MaxWR: int(c.next()), Limit: int(c.next()) % 16, Posted: int(c.next())}, verbs.SRQAttrMask(c.next()%8))
	case 3:
		if c.next()%4 == 0 {
			c.closed(s.it.Close())
		}
	case 4:
		a := s.it.Query()
		if a.Posted > a.MaxWR || a.Posted < 0 || a.Limit > a.MaxWR {
			c.t.Fatalf("attributes of a shared receive queue: %+v", a)
		}
	default:
		c.id++
		c.posted[c.id] = true
		if err := s.it.PostRecv(verbs.RecvWR{ID: c.id, SGList: c.list(0, s.of)}); err != nil {
			delete(c.posted, c.id)
		}
	}
}

// vector makes an address vector, mostly of the other device.
func (c *caller) vector() verbs.AddressVector {
	av := verbs.AddressVector{DGID: pick(c, c.devs).Addr()}
	if c.next()%8 == 0 {
		av.DGID = addrA.Next().Next()
		av.TrafficClass, av.HopLimit, av.SL, av.SrcPort = c.next(), c.next(), c.next()%20, uint16(c.next())<<8
	}
	return av
}

// handles makes, changes and closes address handles.
func (c *caller) handles() {
	switch c.next() % 8 {
	case 0:
		if len(c.ahs) > 0 {
			_ = pick(c, c.ahs).it.Modify(c.vector())
		}
	case 1:
		if len(c.ahs) > 0 {
			_ = pick(c, c.ahs).it.Query()
			c.closed(pick(c, c.ahs).it.Close())
		}
	case 2:
		b := make([]byte, c.next())
		if len(b) > 20 {
			b[0], b[20] = c.next(), 0x45
		}
		pd := pick(c, c.pds).it
		ah, err := pd.AHFromWC(verbs.WC{WithGRH: c.next()&1 != 0, SrcQPN: 77}, b)
		keep(c, &c.ahs, ah, any(pd), err)
	default:
		pd := pick(c, c.pds).it
		ah, err := pd.CreateAH(c.vector())
		keep(c, &c.ahs, ah, any(pd), err)
	}
}

// datagram sends from one queue pair to another, of any type.
func (c *caller) datagram() {
	q, to := pick(c, c.qps), pick(c, c.qps).it
	c.id++
	wr := verbs.SendWR{ID: c.id, Opcode: verbs.OpSend, Signaled: true, SGList: c.list(0, q.of), RemoteQPN: to.QPN(), RemoteQKey: datagramQKey}
	switch c.next() % 8 {
	case 0:
		wr.RemoteQKey = c.next32()
	case 1:
		wr.RemoteQPN = verbs.QPN(c.next32())
	case 2:
		wr.Opcode, wr.RemoteQKey = verbs.OpSendImm, verbs.HighQKey
	}
	if len(c.ahs) > 0 {
		wr.AH = mate(c, c.ahs, q.of)
	}
	c.posted[wr.ID] = true
	if err := q.it.PostSend(wr); err != nil {
		delete(c.posted, wr.ID)
	}
}

// activate takes a queue pair anew to RTS, if it is one of UD.
func (c *caller) activate() {
	q := pick(c, c.qps).it
	if c.next()%2 == 0 {
		_ = q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState)
	}
	_ = q.Activate(datagramQKey)
}

// changeCQ resizes and moderates completion queues.
func (c *caller) changeCQ() {
	cq := pick(c, c.cqs).it
	if c.next()&1 != 0 {
		_ = cq.Resize(int(int8(c.next())))
	} else {
		_ = cq.SetModeration(int(int8(c.next())), time.Duration(int8(c.next()))*10*time.Microsecond)
	}
}

// batch posts several requests at once, to a queue pair of any type, and bounds
// its rate.
func (c *caller) batch() {
	q := pick(c, c.qps)
	if c.next()%8 == 0 {
		_ = q.it.SetRateLimit(uint64(c.next32())<<(c.next()%32), int(int8(c.next()))<<8)
	}
	b := q.it.NewBatch()
	if c.next()%16 == 0 {
		b.Signaled()
	}
	var ids []uint64
	for range c.next() % 4 {
		switch c.next() % 4 {
		case 0:
			b.Send(c.list(verbs.OpSend, q.of)...)
		case 1:
			b.SendImm(7).Inline(make([]byte, c.next()))
		case 2:
			b.Add(verbs.SendWR{Opcode: verbs.Opcode(c.next() % 20)})
		default:
			b.Write(verbs.RemoteMemory{}.At(uint64(c.next())), c.list(verbs.OpWrite, q.of)...)
		}
		if len(c.ahs) > 0 {
			b.To(mate(c, c.ahs, q.of), verbs.QPN(c.next()), datagramQKey)
		}
		c.id++
		ids = append(ids, c.id)
		c.posted[c.id] = true
		b.ID(c.id).Signaled()
	}
	if c.next()%16 == 0 {
		b.Abort()
	}
	if n := b.Len(); b.Post() != nil || n == 0 {
		for _, id := range ids {
			delete(c.posted, id)
		}
	}
}

// groups attaches queue pairs of any type to multicast groups, and detaches
// them.
func (c *caller) groups() {
	q, group := pick(c, c.qps).it, netip.AddrFrom4([4]byte{239, 0, 0, c.next() % 4})
	if c.next()%8 == 0 {
		group = pick(c, c.devs).Addr()
	}
	if c.next()&1 == 0 {
		_ = q.Attach(group)
	} else {
		_ = q.Detach(group)
	}
	for _, g := range q.Device().Groups() {
		if g.QPs <= 0 || !g.Addr.IsMulticast() {
			c.t.Errorf("group %+v", g)
		}
	}
}

// implicit makes an implicit region over others, uses it and closes it.
func (c *caller) implicit() {
	pd := pick(c, c.pds).it
	m, err := pd.RegisterImplicit(verbs.Access(c.next()) | verbs.LocalWrite)
	if err != nil {
		return
	}
	buf := make([]byte, 64)
	c.closed(m.Allow(buf))
	if len(c.mrs) > 0 {
		mr := pick(c, c.mrs).it
		if m.AllowMR(mr) == nil {
			_ = mr.Prefetch(int(int8(c.next())), int(int8(c.next())), c.next()&1 != 0)
			if c.next()&1 == 0 {
				_ = m.ForbidMR(mr)
			}
		}
	}
	if q := c.qpOf(any(pd)); q != nil {
		c.postTo(q, verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{m.SGE(buf)}, Remote: m.Remote(buf).At(0)})
	}
	if c.next()&1 == 0 {
		_ = m.Forbid(buf)
	}
	c.closed(m.Close())
}
