//go:build linux

package uverbs

import (
	"math/bits"
	"os"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// maxima are what a client may have. That is what queries of the device say, so
// all of it can be had: of the kinds of objects, the maxima together, with the
// smallest queues; of queues, the longest ones of a queue pair together with
// the longest completion queue.
type maxima struct {
	qps, cqs, srqs, pds, mrs, mws, ahs int
	groups, attachments                int
	wr, srqWR, cqe                     int
}

// Objects for which there are numbers, but which take memory: 300
// bytes to 4 KiB each.
const (
	maxPDs    = 1 << 15
	maxMRs    = 1 << 18
	maxMWs    = 1 << 17
	maxAHs    = 1 << 17
	maxGroups = 1 << 10 // that a link joins

	maxChannels = 1024
)

// limits returns what a client of a device may ask for: what the device offers,
// and of queues no more than the rings of any client have.
func (d *Device) limits() ib.Limits {
	return d.Dev.Limits().Within(ib.Limits{WR: longest.wr, SRQWR: longest.srqWR, CQE: longest.cqe})
}

// within returns m with the limits of a device where they are smaller.
func (m maxima) within(l ib.Limits) maxima {
	m.qps, m.cqs, m.srqs = min(m.qps, l.QP), min(m.cqs, l.CQ), min(m.srqs, l.SRQ)
	m.pds, m.mrs, m.mws = min(m.pds, l.PD), min(m.mrs, l.MR), min(m.mws, l.MW)
	m.wr, m.srqWR, m.cqe = min(m.wr, l.WR), min(m.srqWR, l.SRQWR), min(m.cqe, l.CQE)
	return m
}

// longest has the longest queues of any client. More is EINVAL, as it is where
// Linux says less; what has no memory is ENOMEM.
var longest = maximaOf(maxRings)

// maximaOf returns the maxima for rings of the given number of bytes in all.
func maximaOf(rings int) maxima {
	// A queue pair has two rings, and each is on pages of its own.
	pages := max(rings/os.Getpagesize()/4, 1)
	return maxima{
		qps:         min(maxQPs, pages),
		cqs:         min(maxCQs, pages),
		srqs:        min(ib.MaxSRQ, pages),
		pds:         maxPDs,
		mrs:         maxMRs,
		mws:         maxMWs,
		ahs:         maxAHs,
		attachments: ib.MaxAttach,
		groups:      min(ib.MaxAttach, maxGroups),
		wr:          entries(rings/4, max(ring.SendElem(ib.MaxSGE, 0), ring.RecvElem(ib.MaxSGE)), ib.MaxWR),
		srqWR:       entries(rings/4, ring.RecvElem(ib.MaxSGE), ib.MaxSRQWR),
		cqe:         entries(rings/4, ring.CQElem, mostCQE),
	}
}

// entries returns how many elements the longest ring has that takes at most the
// given bytes, without its header, and has at most the given slots.
func entries(bytes, elem, slots int) int {
	n := max(min(bytes/ring.ShapeFor(1, elem).Elem, slots), 2)
	return 1<<(bits.Len(uint(n))-1) - 1
}
