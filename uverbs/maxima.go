//go:build linux

package uverbs

import (
	"math/bits"
	"os"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/quota"
	"github.com/gosoftroce/rocev2/uverbs/ring"
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

// Objects for which there are numbers, but which take memory of the daemon: 300
// bytes to 4 KiB each.
const (
	maxPDs    = 1 << 15
	maxMRs    = 1 << 18
	maxMWs    = 1 << 17
	maxAHs    = 1 << 17
	maxGroups = 1 << 10 // that a link joins
)

// longest has the longest queues of any client. More is EINVAL, as it is where
// Linux says less; what has no memory is ENOMEM.
var longest = maximaOf(Quota{RingBytes: maxRingBytes, CQEntries: mostCQE}, nil)

// maximaOf returns those of a quota, which an account may make smaller.
func maximaOf(q Quota, a *quota.Account) maxima {
	o := q.Objects
	rings := least(q.RingBytes, 0, a.Most(quota.RingBytes))
	// A queue pair has two rings, and each is on pages of its own.
	pages := max(rings/os.Getpagesize()/4, 1)
	m := maxima{
		qps:         least(min(maxQPs, pages), o.QPs, a.Most(quota.QPs)),
		cqs:         least(min(maxCQs, pages), o.CQs, a.Most(quota.CQs)),
		srqs:        least(min(ib.MaxSRQ, pages), o.SRQs, a.Most(quota.SRQs)),
		pds:         least(maxPDs, o.PDs, a.Most(quota.PDs)),
		mrs:         least(maxMRs, o.MRs, a.Most(quota.MRs)),
		mws:         least(maxMWs, o.MWs, a.Most(quota.MWs)),
		ahs:         least(maxAHs, o.AHs, a.Most(quota.AHs)),
		attachments: least(ib.MaxAttach, o.Attach, a.Most(quota.Attachments)),
		wr:          entries(rings/4, max(ring.SendElem(ib.MaxSGE, 0), ring.RecvElem(ib.MaxSGE)), ib.MaxWR),
		srqWR:       entries(rings/4, ring.RecvElem(ib.MaxSGE), ib.MaxSRQWR),
		cqe:         entries(rings/4, ring.CQElem, least(mostCQE-1, q.CQEntries, a.Most(quota.CQEntries))+1),
	}
	m.groups = min(m.attachments, maxGroups)
	return m
}

// least returns most, or what a quota or an account has less: 0 of a quota is
// no limit.
func least(most, quota int, account int64) int {
	return int(min(int64(limit(quota, most)), account))
}

// entries returns how many elements the longest ring has that takes no more
// than so many bytes, but for its header, and has so many slots.
func entries(bytes, elem, slots int) int {
	n := max(min(bytes/ring.ShapeFor(1, elem).Elem, slots), 2)
	return 1<<(bits.Len(uint(n))-1) - 1
}
