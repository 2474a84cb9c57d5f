package conn

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// Memory may have pages that must be fetched first (memreg.PagedMemory). A
// queue pair never waits for one: what needs it is put off, the driver fetches
// it elsewhere, and says when it is there.
//
//	payload  the requester stops before the packet
//	result   a response is dropped; the requester stops, and asks again from
//	         there on
//	message  a request is dropped in silence; when its page is there, a sequence
//	         NAK asks for it
//	answer   what waits to be sent stops before a response of a READ, or the
//	         one to a FLUSH, whose bytes are brought to stable storage
//
// The requester's timer is stopped meanwhile, and no retry is spent: what is in
// flight may lack the packet that asks for an acknowledgement. A peer whose
// request waits so long that its timer runs out repeats it, and spends its own.

// Need is what a half needs memory for.
type Need uint8

// The needs: two of the requester, two of the responder.
const (
	NeedPayload Need = iota // requester: the data of the next packet
	NeedResult              // requester: where a response goes
	NeedMessage             // responder: where a request goes
	NeedAnswer              // responder: the data of the next READ response, or the FLUSH that it answers
)

// Fetch is memory that must be fetched so that a queue pair can go on, or be
// brought to stable storage.
type Fetch struct {
	memreg.Missing
	Need   Need
	Ticket uint32   // of a FLUSH: which one
	Fault  ib.Fault // the driver sets it to what Missing.Fetch returned, or to FaultGone without calling that
}

// Fetches is what one half waits for: at most one fetch for each need. It takes
// memory when there is something. The zero value waits for nothing.
type Fetches struct{ *fetches }

type fetches struct {
	missing [2]memreg.Missing
	wanted  [2]bool // Poll has not returned it yet
	pending [2]bool // Done was not called yet
}

// slot is the place of a need among those of its half.
func (n Need) slot() Need { return n & 1 }

// Add records what to fetch for a half of c.
func (f *Fetches) Add(c *Conn, need Need, m memreg.Missing) {
	if f.fetches == nil {
		f.fetches = &fetches{}
	}
	i := need.slot()
	f.missing[i], f.wanted[i], f.pending[i] = m, true, true
	c.Events |= Fetching
}

// Pending reports whether what was added for a need is not done.
func (f *Fetches) Pending(need Need) bool {
	return f.fetches != nil && f.pending[need.slot()]
}

// Poll returns the next fetch, each once. The first need of this half is base.
func (f *Fetches) Poll(base Need) (Fetch, bool) {
	if f.fetches == nil {
		return Fetch{}, false
	}
	for i := range f.wanted {
		if f.wanted[i] {
			m := f.missing[i]
			f.wanted[i], f.missing[i] = false, memreg.Missing{}
			return Fetch{Missing: m, Need: base + Need(i)}, true
		}
	}
	return Fetch{}, false
}

// Done ends what Poll has returned for a need. It returns false if nothing
// waits for that any more.
func (f *Fetches) Done(need Need) bool {
	i := need.slot()
	if f.fetches == nil || !f.pending[i] || f.wanted[i] {
		return false
	}
	f.pending[i] = false
	return true
}
