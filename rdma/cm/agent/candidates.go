package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Greeter answers a request: by a REP, or by a REJ if that is nil. If both are
// nil the request is one of those that the program is asked about. The agent
// fills in what it does for Accept and Reject, and the QPN and the starting PSN
// of the REP. A request that comes again is asked about again.
type Greeter func(path *Path, req *mad.REQ) (*mad.REP, *mad.REJ)

// candidate is a peer that was answered and that has not shown that it gets
// answers, as an entry of a SYN cache.
type candidate struct {
	addresses     addresses
	local, remote mad.CommID
	qpn           rocev2.QPN // held for it
	psn           rocev2.PSN
	flowLabel     uint32
	class         uint8
	ece           mad.ECE // that it was told
	hash          uint64  // of what identifies the request
	at            clock.Time
	listener      *listener // that has answered; over when it greets no more
	source        *list.List[candidate]
	inAll         list.Element[candidate]
	inSource      list.Element[candidate]
	req           [mad.Len]byte
}

const (
	// candidateLife is how long a peer has to answer a REP.
	candidateLife = 20 * time.Second
	// fewCandidates are so few that each REP may go again.
	fewCandidates = 1024
)

// turns are what a candidate has, and how long after its request: the RTU may
// be lost. Data that has come stands for it, and is looked for often, because a
// peer that gets no acknowledgement gives up after half a second. In some turns
// the REP goes again.
var turns = [...]struct {
	after time.Duration
	asks  bool
}{
	{50 * time.Millisecond, false},
	{250 * time.Millisecond, true},
	{350 * time.Millisecond, false},
	{600 * time.Millisecond, false},
	{800 * time.Millisecond, false},
	{time.Second, true},
	{1100 * time.Millisecond, false},
	{1400 * time.Millisecond, false},
	{1800 * time.Millisecond, false},
	{2200 * time.Millisecond, false},
	{2600 * time.Millisecond, false},
	{3 * time.Second, true},
	{3100 * time.Millisecond, false},
	{3400 * time.Millisecond, false},
}

func (c *candidate) path() Path {
	return Path{Local: c.addresses.local, Remote: c.addresses.remote, TrafficClass: c.class, HopLimit: hopLimit, FlowLabel: c.flowLabel, Control: c.addresses.control}
}

// candidateCache has the candidates of all listeners.
type candidateCache struct {
	cfg     *Config
	byHash  map[uint64]*candidate
	byID    map[mad.CommID]*candidate
	all     list.List[candidate]
	sources *[1 << sourceBits]list.List[candidate] // one of them pushes out its own first
	next    [len(turns)]*candidate                 // the first whose REP is still to go again
}

// enter adds a candidate. It returns the one that makes room for it, if one has
// to: the oldest of its source, or of all.
func (h *candidateCache) enter(c *candidate, source uint64) (gone *candidate) {
	if h.byID == nil {
		h.byID, h.byHash = map[mad.CommID]*candidate{}, map[uint64]*candidate{}
		h.sources = new([1 << sourceBits]list.List[candidate])
	}
	c.source = &h.sources[source>>(64-sourceBits)]
	c.inAll.Value, c.inSource.Value = c, c
	switch {
	case c.source.Len() >= h.cfg.Candidates/4:
		gone = c.source.Front()
	case h.all.Len() >= h.cfg.Candidates:
		gone = h.all.Front()
	}
	if gone != nil {
		h.unlist(gone)
	}
	h.all.PushBack(&c.inAll)
	c.source.PushBack(&c.inSource)
	h.byID[c.local], h.byHash[c.hash] = c, c
	for i := range h.next {
		if h.next[i] == nil {
			h.next[i] = c
		}
	}
	return gone
}

// leave takes a candidate out.
func (h *candidateCache) leave(c *candidate) {
	h.unlist(c)
	if h.all.Len() == 0 { // maps keep the memory of a flood
		*h = candidateCache{cfg: h.cfg}
	}
}

func (h *candidateCache) unlist(c *candidate) {
	for i := range h.next {
		if h.next[i] == c {
			h.next[i] = c.inAll.Next()
		}
	}
	h.all.Remove(&c.inAll)
	c.source.Remove(&c.inSource)
	delete(h.byID, c.local)
	delete(h.byHash, c.hash)
}

// of returns the candidate whose peer has sent a message with both IDs, or nil.
func (h *candidateCache) of(path *Path, local, remote mad.CommID) *candidate {
	c := h.byID[local]
	if c == nil || c.remote != remote || c.addresses != addressesOf(path) {
		return nil
	}
	return c
}

// deadline returns when attend must be called, and whether at all.
func (h *candidateCache) deadline() (at clock.Time, ok bool) {
	if h.all.Front() == nil {
		return 0, false
	}
	at = h.all.Front().at.Add(candidateLife)
	for i, c := range h.next {
		if c != nil {
			at = min(at, c.at.Add(turns[i].after))
		}
	}
	return at, true
}

// due returns a candidate that has a turn, and which: the last is to go.
func (h *candidateCache) due(now clock.Time) (c *candidate, turn int) {
	if c = h.all.Front(); c != nil && c.at.Add(candidateLife) <= now {
		return c, len(turns)
	}
	for i, c := range h.next {
		if c != nil && c.at.Add(turns[i].after) <= now {
			h.next[i] = c.inAll.Next()
			return c, i
		}
	}
	return nil, 0
}
