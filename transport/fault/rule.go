package fault

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Action is what happens to a packet.
type Action uint8

// Actions.
const (
	Drop      Action = iota + 1
	Duplicate        // the packet goes twice
	Reorder          // the packet goes after Rule.Distance later ones
	Corrupt          // the ICRC no longer matches
	Delay            // the packet goes Rule.Delay later
)

var actionNames = [...]string{"pass", "drop", "duplicate", "reorder", "corrupt", "delay"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "unknown"
}

// Direction is the way of a packet, as the owner of the link sees it.
type Direction uint8

// Directions; the zero value of a Rule's field means both.
const (
	Tx Direction = 1 << iota
	Rx
)

// Rule hits the packets that satisfy all of its conditions; a zero condition is
// always satisfied. Of several rules the first that hits a packet decides.
type Rule struct {
	Action    Action
	Direction Direction                 // 0 = both, counted apart
	Opcodes   []rocev2.Opcode           // any of these
	PSNs      []rocev2.PSN              // any of these
	Match     func(*rocev2.Packet) bool // called with a lock held; the packet is valid during the call

	// The rest counts the packets that satisfy the conditions above.
	Nth   int     // only the nth, the first being 1
	Every int     // only each whose number is a multiple of this
	Rate  float64 // only with this probability; 0 = always
	Limit int     // at most this many times

	Delay    time.Duration // of Delay; with Reorder the longest that a packet is held, 0 = 10 ms
	Distance int           // of Reorder: later packets of the direction that overtake, 0 = 1
}

const defaultHold = 10 * time.Millisecond

// ruleState is a rule in one direction.
type ruleState struct {
	Rule
	parsed bool // a condition looks into the packet
	seen   int
	hits   int
}

func newRules(d Direction, rules []Rule) []ruleState {
	var s []ruleState
	for _, r := range rules {
		if r.Direction != 0 && r.Direction&d == 0 {
			continue
		}
		if r.Action == Reorder {
			r.Distance = max(r.Distance, 1)
			if r.Delay <= 0 {
				r.Delay = defaultHold
			}
		}
		s = append(s, ruleState{Rule: r, parsed: len(r.Opcodes) > 0 || len(r.PSNs) > 0 || r.Match != nil})
	}
	return s
}

// hit decides on a packet; p is nil if it does not parse.
func (r *ruleState) hit(p *rocev2.Packet, rng *rand.Rand) bool {
	if r.parsed {
		if p == nil ||
			len(r.Opcodes) > 0 && !slices.Contains(r.Opcodes, p.BTH.Opcode) ||
			len(r.PSNs) > 0 && !slices.Contains(r.PSNs, p.BTH.PSN) ||
			r.Match != nil && !r.Match(p) {
			return false
		}
	}
	r.seen++
	switch {
	case r.Nth > 0 && r.seen != r.Nth,
		r.Every > 0 && r.seen%r.Every != 0,
		r.Rate > 0 && rng.Float64() >= r.Rate,
		r.Limit > 0 && r.hits >= r.Limit:
		return false
	}
	r.hits++
	return true
}

// Counts tell what was done to the packets of one direction.
type Counts struct {
	Packets    uint64 // that the rules saw
	Dropped    uint64
	Duplicated uint64
	Reordered  uint64
	Corrupted  uint64
	Delayed    uint64
	Overflows  uint64 // not held back because too many are
}

// judge is the rules of one direction with their state.
type judge struct {
	rules []ruleState
	parse bool
	holds bool // a rule can hold packets back
	// inPlace says that no rule makes more packets of one, or later ones.
	inPlace   bool
	onlyDrops bool
	rng       *rand.Rand
	counts    Counts
	packet    rocev2.Packet
}

func (j *judge) set(d Direction, rules []Rule) {
	j.rules = newRules(d, rules)
	j.parse, j.holds, j.inPlace, j.onlyDrops = false, false, true, true
	for i := range j.rules {
		r := &j.rules[i]
		holds := r.Action == Delay || r.Action == Reorder
		j.parse = j.parse || r.parsed
		j.holds = j.holds || holds
		j.onlyDrops = j.onlyDrops && r.Action == Drop
		j.inPlace = j.inPlace && !holds && r.Action != Duplicate
	}
}

// decide returns the rule that hits the packet (BTH to ICRC), or nil. held is
// how many packets are held back already.
func (j *judge) decide(data []byte, held int) *ruleState {
	j.counts.Packets++
	var p *rocev2.Packet
	if j.parse && j.packet.Parse(data) == nil {
		p = &j.packet
	}
	for i := range j.rules {
		r := &j.rules[i]
		if !r.hit(p, j.rng) {
			continue
		}
		switch r.Action {
		case Drop:
			j.counts.Dropped++
		case Duplicate:
			j.counts.Duplicated++
		case Corrupt:
			j.counts.Corrupted++
		case Reorder, Delay:
			if held >= maxHeld {
				j.counts.Overflows++
				return nil
			}
			if r.Action == Reorder {
				j.counts.Reordered++
			} else {
				j.counts.Delayed++
			}
		}
		return r
	}
	return nil
}
