package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

// playable says what of a network is too large: the entries of all tables take
// memory, and it takes time to find the ways.
func playable(g *topology.Graph) error {
	leaves := int64(0)
	for s := g.Hosts(); s < g.Nodes(); s++ {
		if slices.ContainsFunc(g.Ports(s), func(p topology.Port) bool { return g.IsHost(p.Peer) }) {
			leaves++
		}
	}
	const mostBytes, mostSteps = 1 << 30, 1 << 32
	bytes, steps := int64(g.Switches())*(4*leaves+2*int64(g.Hosts())), leaves*int64(len(g.Links()))
	if bytes > mostBytes || steps > mostSteps {
		return fmt.Errorf("network is too large: %d switches with ways to %d hosts at %d of them, and %d links", g.Switches(), g.Hosts(), leaves, len(g.Links()))
	}
	return nil
}

// stop ends the run by an error, unless one has ended it before.
func (r *run) stop(err error) {
	if err != nil && r.err == nil {
		r.err, r.at = err, Time(r.net.Now())
	}
}

// interrupted reports whether the caller wants the run to end.
func (r *run) interrupted() bool { return r.ctx != nil && r.ctx.Err() != nil }

const usualLimit = Time(10 * event.Second)

// play runs the network, and looks at it in between.
func (r *run) play(ctx context.Context, m *sampler) {
	r.ctx = ctx
	warm := r.s.Warm == 0
	limit := orDefault(r.s.Until, orDefault(r.s.Limit, usualLimit))
	for now := Time(0); now < limit; {
		next := min(now+m.step, limit)
		if !warm && next >= r.s.Warm {
			next = r.s.Warm
		}
		if r.advance(next); r.err != nil {
			m.look(Time(r.net.Now()))
			return
		}
		now = next
		if !warm && now == r.s.Warm {
			warm = true
			r.markWarm(m)
		}
		m.look(now)
		if r.s.Until == 0 && r.open == 0 && r.more == 0 {
			if !warm {
				r.stop(fmt.Errorf("warm is %v, and all is over: nothing was measured", r.s.Warm))
			}
			return
		}
	}
	if r.s.Until == 0 && r.open+r.more > 0 {
		err := fmt.Errorf("%d flows have not completed at the limit: set until where they need not", r.open)
		if r.more > 0 {
			err = fmt.Errorf("flows go on to arrive at the limit, and %d have not completed", r.open)
		}
		if since := m.still(); since > 0 {
			err = fmt.Errorf("%w; since %v the network stands still, in pauses that do not end", err, since)
		}
		r.stop(err)
	}
}

// progress tells the caller how far the run is.
func (r *run) progress() {
	if r.s.Progress != nil {
		r.s.Progress(Progress{Now: Time(r.net.Now()), End: r.s.Until, Events: r.net.Totals().Events, Open: r.open})
	}
}

// sliceEvents is about how many events there are between two looks at whether
// the run goes on: some hundredths of a second.
const sliceEvents = 50_000

// longSlice is how long it may be between two looks where little happens, or a
// part in 2^16 of all: what begins later would go on unseen for as long.
const longSlice = 100 * us

// advance runs the network up to a time, in slices, or until the run ends.
func (r *run) advance(to Time) {
	for now := Time(r.net.Now()); now < to && r.err == nil; now = Time(r.net.Now()) {
		n := r.net.Run(event.Time(min(now+r.slice, to)))
		switch {
		case n > 2*sliceEvents:
			r.slice = max(r.slice/2, 1)
		case n < sliceEvents/2 && r.slice < max(longSlice, to>>16):
			r.slice *= 2
		}
		r.settle()
		r.progress()
		if r.interrupted() {
			r.stop(context.Cause(r.ctx))
		}
		if inside := r.net.Totals().Inside(); inside > r.mostInside {
			r.stop(fmt.Errorf("%d packets are under way at once: windows, rates and delays of cables are too large", inside))
		}
	}
}
