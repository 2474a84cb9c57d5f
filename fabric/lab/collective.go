package lab

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/traffic"
	"github.com/gosoftroce/rocev2/ib"
)

// collective is an all-reduce under way: each host is a rank. What a rank sends
// in a round goes as a WRITE with immediate data, which is the round; it begins
// the next round when what it receives has arrived.
type collective struct {
	r     *run
	plan  traffic.Collective
	conns map[int64]*connection // by the ranks; only looked up
	round []int                 // of each rank
	sent  []int                 // messages of each rank that have not completed
	got   []map[int]bool        // by rank: rounds whose message has arrived
	flow  *Flow                 // the whole, as one flow from rank 0
	ended []event.Time          // when each rank had nothing more to do; 0: not yet
}

const mostRounds = 1 << 26 // of all ranks

func (r *run) collective(t *Traffic) error {
	n := orDefault(t.Ranks, int(r.g.Hosts()))
	if n < 2 || n > int(r.g.Hosts()) || t.Bytes == 0 || t.Bytes > mostMessage {
		return fmt.Errorf("%d ranks with %v: there must be 2 to %d, with up to %v", n, t.Bytes, r.g.Hosts(), Bytes(mostMessage))
	}
	err := r.provide(n)
	if err != nil {
		return err
	}
	c := &collective{r: r, conns: map[int64]*connection{}, ended: make([]event.Time, n),
		round: make([]int, n), sent: make([]int, n), got: make([]map[int]bool, n)}
	switch t.Kind {
	case "ring":
		c.plan, err = traffic.Ring(n, int64(t.Bytes))
	case "tree":
		c.plan, err = traffic.Tree(n, int64(t.Bytes))
	default:
		c.plan, err = traffic.HalvingDoubling(n, int64(t.Bytes))
	}
	if err != nil {
		return err
	}
	if all := int64(n) * int64(c.plan.Rounds()); all > mostRounds {
		return fmt.Errorf("%d ranks have %d messages in all: at most %d can be played", n, all, mostRounds)
	}
	c.flow = &Flow{Dst: n - 1, Bytes: int64(t.Bytes), Start: t.Start}
	r.open++
	r.net.At(event.Time(t.Start), func() {
		r.flows = append(r.flows, c.flow)
		r.rings = append(r.rings, c)
		if err := c.connect(); err != nil {
			r.fail(0, err)
			return
		}
		for rank := range n {
			c.got[rank] = map[int]bool{}
			c.enter(rank)
		}
	})
	return nil
}

// connect makes the connections of all rounds. A rank cannot make one later: it
// would do so at another host, too.
func (c *collective) connect() error {
	for round := range c.plan.Rounds() {
		for rank := range c.ended {
			s := c.plan.Step(rank, round)
			key := int64(rank)<<32 | int64(s.To)
			if s.To < 0 || c.conns[key] != nil {
				continue
			}
			if err := c.r.keep(); err != nil {
				return err
			}
			x, y, err := c.r.a.Connect(rank, int(s.To), c.r.connection(rank, int(s.To)))
			if err != nil {
				return err
			}
			y.Received = func(m adapter.Message) { c.arrived(int(s.To), int(m.Imm)) }
			c.conns[key] = &connection{x: x, y: y}
		}
	}
	return nil
}

// enter has a rank do what its round begins with, and go on as far as nothing
// is to be waited for.
func (c *collective) enter(rank int) {
	for ; c.round[rank] < c.plan.Rounds(); c.round[rank]++ {
		s := c.plan.Step(rank, c.round[rank])
		if s.To >= 0 {
			c.send(rank, int(s.To), s.Send.Bytes)
		}
		if s.From >= 0 && !c.got[rank][c.round[rank]] {
			return
		}
		delete(c.got[rank], c.round[rank])
	}
	c.done(rank)
}

// arrived has a rank go on that has waited for a message.
func (c *collective) arrived(rank, round int) {
	c.got[rank][round] = true
	if round != c.round[rank] || c.plan.Step(rank, round).From < 0 {
		return
	}
	delete(c.got[rank], round)
	c.round[rank]++
	c.enter(rank)
}

// send sends a message of the round that a rank is in.
func (c *collective) send(rank, to int, bytes int64) {
	conn := c.conns[int64(rank)<<32|int64(to)]
	c.sent[rank]++
	c.r.post(rank, conn, adapter.Request{Op: ib.OpWriteImm, Bytes: uint32(bytes), Imm: uint32(c.round[rank]), Done: func(m adapter.Completion) {
		if m.Status != ib.StatusSuccess {
			c.r.fail(rank, fmt.Errorf("a message from rank %d to rank %d: %v", rank, to, m.Status))
		}
		c.sent[rank]--
		c.r.drain(rank, conn)
		c.done(rank)
	}})
}

// done notes that a rank has nothing more to send or to wait for.
func (c *collective) done(rank int) {
	if c.round[rank] != c.plan.Rounds() || c.sent[rank] > 0 {
		return
	}
	c.round[rank]++ // once
	c.ended[rank] = c.r.net.TimeOf(rank)
}

// settle reports whether all ranks are done, and notes when they were.
func (c *collective) settle() bool {
	last := event.Time(0)
	for _, at := range c.ended {
		if at == 0 {
			return false
		}
		last = max(last, at)
	}
	c.flow.End = Time(last)
	c.r.open--
	return true
}
