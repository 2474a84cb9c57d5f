package qptest

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// The opcodes of XRC are those of RC from 0xa0 on, and each request has an
// XRCETH after the BTH (IBTA A14).
func init() {
	for op := range rocev2.Opcode(0x20) {
		name, ok := opcodeNames[op]
		if !ok {
			continue
		}
		h := opcodeHeaders[op]
		if op < 0x0d || op > 0x12 { // a request
			h |= hasXRCETH
		}
		opcodeNames[0xa0+op], opcodeHeaders[0xa0+op] = "XRC_"+name, h
	}
}

// xrcDomain is the XRC domain of a target: its queues by number.
type xrcDomain map[uint64]*sharedReceives

// SRQ implements qp.XRCDomain.
func (d xrcDomain) SRQ(n uint32) (qp.RecvSource, *memreg.PD) {
	q := d[uint64(n)]
	if q == nil {
		return nil, nil
	}
	return q, q.pd
}

// actorSink completes to the queue pair that a side has now.
type actorSink struct{ a *actor }

// Complete implements qp.CompletionSink.
func (s actorSink) Complete(wc *ib.WC) bool { return s.a.recvCQ.Complete(wc) }

// domain returns the XRC domain of a side.
func (a *actor) domain() xrcDomain {
	if a.xrcd == nil {
		a.xrcd = xrcDomain{}
	}
	return a.xrcd
}

// cmdXSRQ: xsrq b NUMBER [limit=N] [pd=other] [close]
func (s *scene) cmdXSRQ(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	limit, err := w.num("limit", 0)
	pd := s.pdOf(a, &w)
	if err := errors.Join(err, w.done()); err != nil || len(w.pos) == 0 {
		return errors.Join(err, errors.New("xsrq SIDE NUMBER"))
	}
	n, err := strconv.ParseUint(w.pos[0], 0, 24)
	if err != nil {
		return err
	}
	d := a.domain()
	switch q := d[n]; {
	case w.has("close"):
		delete(d, n)
	case q == nil:
		q = &sharedReceives{s: s, name: fmt.Sprintf("%s.%d", a.name, n), pd: pd}
		q.Init(16, 4, pd, actorSink{a})
		q.SetLimit(int(limit))
		d[n] = q
	default:
		s.printf("queue %d: %d receives, limit %d", n, q.Len(), q.Limit())
	}
	return nil
}
