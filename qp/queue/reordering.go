package queue

import (
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Reordering is how far a path brings packets out of their order: what is
// missing after so many packets that were sent later may only be late (the
// reordering window of RFC 8985, section 6.2, counted in packets, as in RFC
// 4653). On a path that keeps the order the window is 0. It grows at once when
// something comes late that was taken for missing, to twice as many packets as
// had overtaken it. It shrinks by half when the packets that are missing have
// been lost, time after time, or have come much less late.
type Reordering struct {
	Now clock.Time
	// What has been missing since Missed, or for longer, is not only late.
	Missed clock.Time
	// What has been missing for a shorter time than since Ripe may only be
	// late, if the path is not known to keep the order, whatever has
	// overtaken it.
	Ripe clock.Time
	// What was sent again at Late or before must have been answered, if it
	// has arrived. What was sent again after Soon is not likely to have
	// been.
	Late, Soon clock.Time
	Half       clock.Time
	// Exact says that what is kept is known, not told: it is kept here.
	Exact bool

	order *order // what the host knows of its paths; nil: nothing

	again    bool       // READs were asked for again, as a whole, up to
	upTo     rocev2.PSN // here: their responses may come twice
	judged   bool       // it is known whether the path keeps the order
	window   uint16     // packets
	most     uint16     // what the window may become
	seen     uint16     // the most packets by which something was overtaken of late
	judgment uint16     // how much has turned out since the window last changed
	spurious uint16     // packets that were sent again and had only been late, not taken yet
}

const (
	// MaxReordering is the largest reordering window, in packets.
	MaxReordering = 1024
	// lossJudgment is what a loss counts beside a packet that was only
	// late, and fullJudgment after how much the window is looked at: RFC
	// 8985, section 6.2, has 16 losses.
	lossJudgment = 32
	fullJudgment = 16 * lossJudgment
	// manyLate is how many packets have not come yet that were sent before
	// something was sent again, where that is not what has come.
	manyLate = 8
)

// SetMost bounds the window: at most that many packets after a gap may be kept.
func (o *Reordering) SetMost(packets int) {
	o.most = uint16(min(max(packets, 0), MaxReordering))
	o.window = min(o.window, o.most)
}

// order is what the connections of a host have learned of its paths: above 0
// that they keep the order. New connections begin with it. It is bounded, so
// that a network that changes is learned anew.
type order int8

const (
	mostOrder = 8
	lateOrder = 4 // packets that are lost are common in any network, and late ones in few
)

// join has the path begin with what others know, and tell it what it learns.
func (o *Reordering) join(of *order) {
	o.order = of
	o.judged = o.judged || *of > 0
}

// learn tells the other paths whether something was lost, or only late.
func (o *Reordering) learn(late bool) {
	switch {
	case o.order == nil:
	case late:
		*o.order = max(*o.order-lateOrder, -mostOrder)
	default:
		*o.order = min(*o.order+1, mostOrder)
	}
}

// Judged reports whether it is known if the path keeps the order.
func (o *Reordering) Judged() bool { return o.judged }

// Judge records that it is known: what was missing for long enough has been
// lost.
func (o *Reordering) Judge() { o.judged = true }

// Seen reports whether packets of the path have come out of their order.
func (o *Reordering) Seen() bool { return o.window > 0 }

// Window returns how many packets something is overtaken by that may only be
// late.
func (o *Reordering) Window() int { return int(o.window) }

// Waits reports whether a packet that is missing when all that was sent after
// it has come may only be late.
func (o *Reordering) Waits() bool { return !o.judged || o.window > 0 }

// ripe reports whether a packet that has been missing since at, and that others
// have overtaken, can be taken for lost.
func (o *Reordering) ripe(at clock.Time) bool { return !o.Waits() || o.Exact || at <= o.Ripe }

// overtaken returns how many packets must have overtaken one that is lost.
func (o *Reordering) overtaken() int { return int(o.window) + 1 }

// TakeSpurious returns how many packets have turned out to be sent again
// without need since the last call.
func (o *Reordering) TakeSpurious() int {
	n := o.spurious
	o.spurious = 0
	return int(n)
}

// early reports whether a hole that was sent again is filled so early that it
// must have been by what was sent first: sooner than a round trip takes, and
// before packets have come that had been sent before it. Either alone may
// deceive: a queue can have been in the shortest round trip, and packets can be
// lost. What has come extends reach PSNs beyond the hole.
func (o *Reordering) early(h *Hole, reach uint32) bool {
	return h.sent && !h.twice && h.at > o.Soon && reach+manyLate <= h.mark.Ahead(h.PSN)
}

// filled records that a hole has been filled.
func (o *Reordering) filled(h *Hole, early bool) {
	switch {
	case h.answer || h.guess:
		return
	case !h.sent: // it has come by itself
	case early:
		o.spurious++
	default:
		return
	}
	if o.window == 0 {
		o.learn(true)
	}
	o.judged = true
	o.seen = max(o.seen, h.over)
	o.window = max(o.window, min(2*o.seen, o.most))
	o.judge(1)
}

// Again records that responses up to end are asked for once more, whether they
// are missing or not.
func (o *Reordering) Again(end rocev2.PSN) {
	if !o.again || end.After(o.upTo) {
		o.again, o.upTo = true, end
	}
}

// Advance records that everything before una has come.
func (o *Reordering) Advance(una rocev2.PSN) { o.again = o.again && una.Before(o.upTo) }

// ComesTwice reports whether psn may come because it was asked for twice.
func (o *Reordering) ComesTwice(psn rocev2.PSN) bool { return o.again && psn.Before(o.upTo) }

// Passed records that a packet came by itself which one that was sent later had
// overtaken.
func (o *Reordering) Passed() { o.filled(&Hole{over: 1}, false) }

// Lost records that a packet is lost: enough others have overtaken it.
func (o *Reordering) Lost() {
	if !o.judged {
		o.learn(false)
	}
	o.judged = true
	if o.window > 0 {
		o.judge(lossJudgment)
	}
}

func (o *Reordering) judge(n uint16) {
	if o.judgment += n; o.judgment < fullJudgment {
		return
	}
	o.window = max(min(2*o.seen, o.most), o.window/2)
	o.seen, o.judgment = 0, 0
}
