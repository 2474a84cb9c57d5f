package hca

import (
	"fmt"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
)

// kind is a kind of object that is counted.
type kind int

const (
	kindQP kind = iota
	kindCQ
	kindChannel
	kindPD
	kindMR
	kindAH
	kindSRQ
	kindMW
	kindAttach
	kindXRCD
	numKinds
)

var kindNames = [numKinds]string{
	kindQP:      "queue pairs",
	kindCQ:      "completion queues",
	kindChannel: "completion channels",
	kindPD:      "protection domains",
	kindMR:      "memory regions",
	kindAH:      "address handles",
	kindSRQ:     "shared receive queues",
	kindMW:      "memory windows",
	kindAttach:  "queue pairs attached to multicast groups",
	kindXRCD:    "XRC domains",
}

// Quota is how many objects of each kind there may be. A field of 0 stands for
// what the device offers.
type Quota struct {
	QPs      int // queue pairs
	CQs      int // completion queues
	Channels int // completion channels
	PDs      int // protection domains
	MRs      int // memory regions, fast registration regions included
	AHs      int // address handles
	SRQs     int // shared receive queues
	MWs      int // memory windows
	Attach   int // queue pairs attached to multicast groups, one in several groups several times
	XRCDs    int // XRC domains
}

// objects are numbers of objects by kind.
type objects [numKinds]int

// deviceLimits are what a device offers.
var deviceLimits = objects{
	kindQP: ib.MaxQP, kindCQ: ib.MaxCQ, kindChannel: ib.MaxCQ, kindPD: ib.MaxPD, kindMR: ib.MaxMR,
	kindAH:     ib.MaxAH,
	kindSRQ:    ib.MaxSRQ,
	kindMW:     ib.MaxMW,
	kindAttach: ib.MaxAttach,
	kindXRCD:   ib.MaxXRCD,
}

// within makes the numbers no larger than those of a device.
func (o *objects) within(l *ib.Limits) {
	for k, most := range map[kind]int{kindQP: l.QP, kindCQ: l.CQ, kindPD: l.PD, kindMR: l.MR, kindMW: l.MW, kindSRQ: l.SRQ} {
		o[k] = min(o[k], most)
	}
}

// stock counts the objects of a device.
type stock struct {
	limits objects // what the device offers

	mu     sync.Mutex
	count  objects
	closed bool
}

// reserve counts one more object.
func (s *stock) reserve(k kind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.count.add(k, s.limits, "device")
}

// unreserve takes back what reserve has counted.
func (s *stock) unreserve(k kind) {
	s.mu.Lock()
	s.count[k]--
	s.mu.Unlock()
}

// has returns how many objects of a kind there are.
func (s *stock) has(k kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[k]
}

// close has no more be counted.
func (s *stock) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
}

// within returns the quota with what the device offers where it has no smaller
// number. A negative number allows none.
func (q Quota) within(most objects) objects {
	asked := objects{kindQP: q.QPs, kindCQ: q.CQs, kindChannel: q.Channels, kindPD: q.PDs, kindMR: q.MRs, kindAH: q.AHs, kindSRQ: q.SRQs,
		kindMW: q.MWs, kindAttach: q.Attach, kindXRCD: q.XRCDs}
	for k, n := range asked {
		if n != 0 {
			most[k] = max(min(n, most[k]), 0)
		}
	}
	return most
}

// add counts one more object towards a limit of whose, a device or a context.
func (o *objects) add(k kind, limit objects, whose string) error {
	if o[k] >= limit[k] {
		return fmt.Errorf("%w: at most %d %s in one %s", ErrNoResources, limit[k], kindNames[k], whose)
	}
	o[k]++
	return nil
}
