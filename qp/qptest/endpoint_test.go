package qptest

import (
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// Attribute bits of ibv_modify_qp, spelled out here so that the scripts check
// the numbers and not the names.
const (
	attrState       ib.AttrMask = 0x1
	attrSQDNotify   ib.AttrMask = 0x4
	attrAccess      ib.AttrMask = 0x8
	attrPKeyIndex   ib.AttrMask = 0x10
	attrPort        ib.AttrMask = 0x20
	attrQKey        ib.AttrMask = 0x40
	attrAV          ib.AttrMask = 0x80
	attrPathMTU     ib.AttrMask = 0x100
	attrTimeout     ib.AttrMask = 0x200
	attrRetryCount  ib.AttrMask = 0x400
	attrRNRRetry    ib.AttrMask = 0x800
	attrRQPSN       ib.AttrMask = 0x1000
	attrMaxRd       ib.AttrMask = 0x2000
	attrMinRNRTimer ib.AttrMask = 0x8000
	attrSQPSN       ib.AttrMask = 0x10000
	attrMaxDestRd   ib.AttrMask = 0x20000
	attrDestQPN     ib.AttrMask = 0x100000

	maskInit = attrState | attrPKeyIndex | attrPort | attrAccess
	maskRTR  = attrState | attrAV | attrPathMTU | attrDestQPN | attrRQPSN | attrMaxDestRd | attrMinRNRTimer
	maskRTS  = attrState | attrTimeout | attrRetryCount | attrRNRRetry | attrSQPSN | attrMaxRd
)

const (
	accessLocal  ib.Access = 1
	accessWrite  ib.Access = 2
	accessRead   ib.Access = 4
	accessAtomic ib.Access = 8
	accessBind   ib.Access = 0x10
	accessZero   ib.Access = 0x20

	accessFlushGlobal     ib.Access = 0x100
	accessFlushPersistent ib.Access = 0x200

	accessAll = accessLocal | accessWrite | accessRead | accessAtomic
)

// cqRing is a completion queue for tests: it keeps everything, or overflows
// after a set number of entries.
type cqRing struct {
	entries []ib.WC
	limit   int // 0: none
}

func (c *cqRing) Complete(wc *ib.WC) bool {
	if c.limit > 0 && len(c.entries) >= c.limit {
		return false
	}
	c.entries = append(c.entries, *wc)
	return true
}

func (c *cqRing) drain() []ib.WC {
	e := c.entries
	c.entries = nil
	return e
}

// node is what several QPs of one side share: an address, a protection domain
// and the table of regions.
type node struct {
	addr  netip.Addr
	table *memreg.Table
	pd    *memreg.PD
}

func newNode(addr netip.Addr, random func() uint32) *node {
	n := &node{addr: addr, table: memreg.NewTable(random)}
	n.pd = n.table.AllocPD()
	return n
}

func (n *node) register(pd *memreg.PD, b []byte, iova uint64, access ib.Access) (*memreg.Region, error) {
	return n.table.Register(pd, memreg.Local(b), memreg.Options{Access: access, IOVA: iova, Base: memreg.BaseIOVA})
}

// endpoint is one QP with its completion queues.
type endpoint struct {
	*qp.QP
	node   *node
	sendCQ *cqRing
	recvCQ *cqRing
	attr   ib.Attr // what connect last asked for
}

func newEndpoint(n *node, c qp.Config) (*endpoint, error) {
	e := &endpoint{node: n, sendCQ: &cqRing{}, recvCQ: &cqRing{}}
	if c.Type == 0 {
		c.Type = ib.RC
	}
	c.Memory, c.PD = n.table, n.pd
	c.SendCQ, c.RecvCQ = e.sendCQ, e.recvCQ
	if c.Type == ib.XRCTarget { // it has neither
		c.PD, c.SendCQ, c.RecvCQ = nil, nil, nil
	}
	q, err := qp.New(c)
	if err != nil {
		return nil, err
	}
	e.QP = q
	return e, nil
}

// connect walks the QP from RESET up to the state a.State.
func (e *endpoint) connect(a ib.Attr) error {
	e.attr = a
	for s := ib.StateInit; s <= min(a.State, ib.StateRTS); s++ {
		step := a
		step.State = s
		if err := e.Modify(&step, e.requiredMask(s)); err != nil {
			return fmt.Errorf("to %v: %w", s, err)
		}
	}
	return nil
}

// requiredMask returns what the type of the QP requires on the way up to a
// state, from the one below it.
func (e *endpoint) requiredMask(to ib.State) ib.AttrMask {
	all := []ib.AttrMask{ib.StateInit: maskInit, ib.StateRTR: maskRTR, ib.StateRTS: maskRTS}[to]
	switch e.Type() {
	case ib.UC:
		all &^= attrMaxDestRd | attrMinRNRTimer | attrTimeout | attrRetryCount | attrRNRRetry | attrMaxRd
	case ib.XRCInitiator:
		all &^= attrMaxDestRd | attrMinRNRTimer
	case ib.XRCTarget:
		all &^= attrRetryCount | attrRNRRetry | attrMaxRd
	case ib.UD:
		all &= attrState | attrPKeyIndex | attrPort | attrSQPSN
		if to == ib.StateInit {
			all |= attrQKey
		}
	}
	return all
}
