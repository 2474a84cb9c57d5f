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
	ranks int                   // that are not done
}

func (r *run) collective(t *Traffic) error {
	n := orDefault(t.Ranks, int(r.g.Hosts()))
	if n < 2 || n > int(r.g.Hosts()) || t.Bytes == 0 || t.Bytes > mostMessage {
		return fmt.Errorf("%d ranks with %v: there must be 2 to %d, with up to %v", n, t.Bytes, r.g.Hosts(), Bytes(mostMessage))
	}
	c := &collective{r: r, conns: map[int64]*connection{}, ranks: n,
		round: make([]int, n), sent: make([]int, n), got: make([]map[int]bool, n)}
	var err error
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
	c.flow = &Flow{Dst: n - 1, Bytes: int64(t.Bytes), Start: t.Start}
	r.open++
	r.net.At(event.Time(t.Start), func() {
		r.flows = append(r.flows, c.flow)
		for rank := range n {
			c.got[rank] = map[int]bool{}
			c.enter(rank)
		}
	})
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
	conn, err := c.connect(rank, to)
	if err != nil {
		c.r.fail(err)
		return
	}
	c.sent[rank]++
	c.r.post(conn, adapter.Request{Op: ib.OpWriteImm, Bytes: uint32(bytes), Imm: uint32(c.round[rank]), Done: func(m adapter.Completion) {
		if m.Status != ib.StatusSuccess {
			c.r.fail(fmt.Errorf("a message from rank %d to rank %d: %v", rank, to, m.Status))
		}
		c.sent[rank]--
		c.r.drain(conn)
		c.done(rank)
	}})
}

func (c *collective) connect(rank, to int) (*connection, error) {
	key := int64(rank)<<32 | int64(to)
	if conn := c.conns[key]; conn != nil {
		return conn, nil
	}
	x, y, err := c.r.a.Connect(rank, to, c.r.conn)
	if err != nil {
		return nil, err
	}
	y.Received = func(m adapter.Message) { c.arrived(to, int(m.Imm)) }
	conn := &connection{x: x, y: y}
	c.conns[key] = conn
	return conn, nil
}

// done counts a rank that has nothing more to send or to wait for.
func (c *collective) done(rank int) {
	if c.round[rank] != c.plan.Rounds() || c.sent[rank] > 0 {
		return
	}
	c.round[rank]++ // once
	if c.ranks--; c.ranks == 0 {
		c.flow.End = Time(c.r.net.Now())
		c.r.open--
	}
}
