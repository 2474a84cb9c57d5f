package server

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// Visit is what one client did.
type Visit struct {
	ID     uint64    `json:"id"`
	Target string    `json:"target"` // "rping", "perftest write_bw", "regions"
	Device string    `json:"device"`
	Peer   string    `json:"peer"`
	QPN    uint32    `json:"qpn,omitempty"`
	Count  int       `json:"count"` // connections, of cmtime; else 1
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end,omitzero"` // zero: it is there still
	Result string    `json:"result,omitempty"`
	Error  string    `json:"error,omitempty"`

	TLS *SecuredBy `json:"tls,omitempty"` // nil: the connection is in clear

	visits *visits
	kind   string
	host   string
}

// maxVisits is how many visits that are over are kept, the latest.
const maxVisits = 512

// visits are the clients that are there, and what the latest ones did.
type visits struct {
	mu     sync.Mutex
	next   uint64
	there  map[uint64]*Visit
	hosts  map[hostKey]int // of those that are there
	past   []Visit         // the latest last
	counts map[string]*visitCount

	secured securedCount

	onEnd func(v Visit, err error) // of those with an error
}

// manyOf is the target whose clients make many connections at once. They have a
// bound of their own, and those of a host in a row are one record.
const manyOf = "cmtime"

// maxMany bounds them.
const maxMany = 4096

// unanswering is the target whose clients never answer what they are told, so
// that any host can feign them, from any address. They take no place of others.
const unanswering = "udaddy"

// hostKey is a host, and the bound that its clients count for.
type hostKey struct{ bound, host string }

// boundOf names the bound that a kind of client counts for.
func boundOf(kind string) string {
	if kind == serviceRegions || kind == manyOf || kind == unanswering {
		return kind
	}
	return ""
}

// perHost is how many clients one host may have, out of most in all. The others
// are for the other hosts.
func perHost(most int) int {
	if most < 4 {
		return most
	}
	return most - most/4
}

// visitCount counts the clients of a target.
type visitCount struct {
	begun, failed, refused uint64
	there                  int
}

func newVisits() *visits {
	return &visits{there: map[uint64]*Visit{}, hosts: map[hostKey]int{}, counts: map[string]*visitCount{}}
}

// errCrowded refuses a client.
var errCrowded = errors.New("as many clients are here as the configuration allows (targets.clients)")

// errGreedy refuses a client of a host that has many.
var errGreedy = errors.New("as many clients of this host are here as one host may have, three quarters of targets.clients")

// begin records a client that has come. most bounds the clients of regions, or
// those of all targets together.
func (v *visits) begin(now time.Time, kind, device string, peer net.Addr, most int) (*Visit, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.count(kind)
	key := hostKey{boundOf(kind), hostOf(peer)}
	if err := v.full(kind, key, most); err != nil {
		return nil, err
	}
	c.begun++
	c.there++
	v.next++
	n := &Visit{ID: v.next, Target: kind, Device: device, Peer: peer.String(), Count: 1, Begin: now, visits: v, kind: kind, host: key.host}
	v.there[n.ID] = n
	v.hosts[key]++
	return n, nil
}

// room says why there is no room for another client of a host.
func (v *visits) room(kind, host string, most int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.full(kind, hostKey{boundOf(kind), host}, most)
}

// full is room with the lock held.
func (v *visits) full(kind string, key hostKey, most int) error {
	if kind == manyOf {
		most = maxMany
	}
	switch {
	case v.present(kind) >= most:
		v.count(kind).refused++
		return errCrowded
	case kind != manyOf && v.hosts[key] >= perHost(most):
		v.count(kind).refused++
		return errGreedy
	}
	return nil
}

// count returns the counter of a kind. Kinds come from the configuration, so
// there are few.
func (v *visits) count(kind string) *visitCount {
	c := v.counts[kind]
	if c == nil {
		c = &visitCount{}
		v.counts[kind] = c
	}
	return c
}

// refuse counts a client that was not taken.
func (v *visits) refuse(kind string) {
	v.mu.Lock()
	v.count(kind).refused++
	v.mu.Unlock()
}

// Is says what the client turned out to run, "perftest write_bw", and over
// which queue pair; 0 leaves that open.
func (n *Visit) Is(what string, qpn uint32) {
	n.visits.mu.Lock()
	defer n.visits.mu.Unlock()
	if what != "" {
		n.Target = clip(what)
	}
	if qpn != 0 {
		n.QPN = qpn
	}
}

// Leave records how the visit ended. More calls than one count as one.
func (n *Visit) Leave(now time.Time, kind, result string, err error) {
	v := n.visits
	v.mu.Lock()
	if v.there[n.ID] == nil {
		v.mu.Unlock()
		return
	}
	delete(v.there, n.ID)
	key := hostKey{boundOf(n.kind), n.host}
	if v.hosts[key]--; v.hosts[key] == 0 {
		delete(v.hosts, key)
	}
	v.count(kind).there--
	if n.TLS != nil {
		v.secured.now--
	}
	n.End, n.Result = now, clip(result)
	if err != nil {
		n.Error = clip(err.Error())
		v.count(kind).failed++
	}
	past := n.record()
	v.keep(past)
	v.mu.Unlock()
	if err != nil && v.onEnd != nil {
		v.onEnd(past, err)
	}
}

// record returns what is shown of a visit.
func (n *Visit) record() Visit {
	c := *n
	c.visits = nil
	return c
}

// keep adds a record of what is over.
func (v *visits) keep(n Visit) {
	if len(v.past) > 0 && n.Target == manyOf && n.Error == "" {
		last := &v.past[len(v.past)-1]
		if last.Target == n.Target && last.Error == "" && last.Device == n.Device && sameHost(last.Peer, n.Peer) {
			n.Count += last.Count
			if n.Begin.After(last.Begin) {
				n.Begin = last.Begin
			}
			*last = n
			return
		}
	}
	if len(v.past) == maxVisits {
		v.past = slices.Delete(v.past, 0, 1)
	}
	v.past = append(v.past, n)
}

func sameHost(a, b string) bool {
	x, _, errA := net.SplitHostPort(a)
	y, _, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && x == y
}

// present returns how many clients share a bound with those of kind.
func (v *visits) present(kind string) int {
	if boundOf(kind) != "" {
		return v.count(kind).there
	}
	return len(v.there) - v.count(serviceRegions).there - v.count(manyOf).there - v.count(unanswering).there
}

// ofTargets returns how many clients of targets are there.
func (v *visits) ofTargets() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.present("") + v.count(unanswering).there
}

// size returns how many clients are there.
func (v *visits) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.there)
}

// all returns those who are there, the first come first.
func (v *visits) all() []Visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := make([]Visit, 0, len(v.there))
	for _, n := range v.there {
		list = append(list, n.record())
	}
	slices.SortFunc(list, func(a, b Visit) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// over returns those who have gone, the last first.
func (v *visits) over() []Visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := slices.Clone(v.past)
	slices.Reverse(list)
	return list
}

// each calls f for every kind of client.
func (v *visits) each(f func(kind string, c visitCount)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for kind, c := range v.counts {
		f(kind, *c)
	}
}

// serviceRegions is what the records call those who came for regions.
const serviceRegions = "regions"

// hostOf returns the address without the port, by which errors of one host are
// gathered.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
