package lab

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/traffic"
)

// Iteration is one run of a collective: from when the first rank begins it to
// when the last one has nothing more to send or to wait for.
type Iteration struct {
	Start, End Time
}

// collective is a collective that all ranks of a job carry out, again and
// again.
type collective struct {
	*job
	plan       traffic.Collective
	iterations int
	compute    Time    // of each rank between two iterations
	inTurn     bool    // see step
	steps      []*step // the one that a rank is in
	over       [][]event.Time
}

const (
	mostRounds     = 1 << 26 // of all ranks and iterations
	mostIterations = 1 << 22 // of all ranks
)

// collective has a collective begin.
func (r *run) collective(tn *tenant, t *Traffic, hosts []int) error {
	n := orDefault(t.Ranks, len(hosts))
	if n < 2 || n > len(hosts) || t.List == "" && (t.Bytes == 0 || t.Bytes > mostMessage) {
		return fmt.Errorf("%d ranks with %v: there must be 2 to %d, with up to %v", n, t.Bytes, len(hosts), Bytes(mostMessage))
	}
	if err := join(r.ways.between(hosts[:n]...), r.provide(n)); err != nil {
		return err
	}
	plan, bytes, err := t.plan(n)
	if err != nil {
		return err
	}
	c := &collective{job: r.newJob(tn, hosts[:n]), plan: plan, iterations: max(t.Iterations, 1), compute: t.Compute,
		inTurn: sendsInTurn(t.Kind),
		steps:  make([]*step, n), over: make([][]event.Time, n)}
	switch all := int64(n) * int64(plan.Rounds()); {
	case t.Iterations < 0 || c.iterations > mostIterations/n:
		return fmt.Errorf("iterations is %d: with %d ranks it is 1 to %d", t.Iterations, n, mostIterations/n)
	case all > mostRounds/int64(c.iterations):
		return fmt.Errorf("%d ranks have %d messages in all, %d times: at most %d can be played", n, all, c.iterations, mostRounds)
	case t.Compute > 0 && c.iterations == 1:
		return errors.New("compute is the time between two iterations: set iterations, to 2 or more")
	}
	c.flow = tn.flow(hosts[0], hosts[n-1], bytes, t.Start, 0)
	c.waits = func(rank int, h held) string {
		if s := c.steps[rank]; s != nil {
			return s.waits(h)
		}
		return "computes"
	}
	c.cause = c.lastOf
	r.open++
	r.net.At(event.Time(t.Start), c.start)
	return nil
}

// sendsInTurn reports whether a rank of a collective sends to one after the
// other: down a tree the messages of a rank would share its cable else, and all
// be as late as the last.
func sendsInTurn(kind string) bool { return kind == "broadcast" || kind == "tree" }

// start connects all ranks, and has them begin.
func (c *collective) start() {
	c.begin()
	c.r.collectives = append(c.r.collectives, c)
	for round := range c.plan.Rounds() {
		for rank := range c.hosts {
			if to := c.plan.Step(rank, round).To; to >= 0 {
				if err := c.connect(rank, int(to)); err != nil {
					c.r.fail(0, err)
					return
				}
			}
		}
	}
	for rank := range c.hosts {
		c.iterate(rank)
	}
}

// iterate has a rank begin its next iteration.
func (c *collective) iterate(rank int) {
	k := len(c.over[rank])
	s := &step{j: c.job, inTurn: c.inTurn, plan: c.plan, me: rank, first: uint32(k * c.plan.Rounds())}
	s.done = func() {
		c.over[rank] = append(c.over[rank], c.r.net.TimeOf(c.hosts[rank]))
		if k+1 == c.iterations {
			c.end(rank)
			return
		}
		c.steps[rank] = nil
		c.after(rank, c.compute, func() { c.iterate(rank) })
	}
	c.steps[rank] = s
	s.enter()
}

// lastOf follows the ranks that wait for each other's messages, from one on, to
// the one whose message was sent and has not come.
func (c *collective) lastOf(rank int) int {
	for range c.hosts { // none is there twice: each is some rounds after the next
		s := c.steps[rank]
		if s == nil || s.round >= c.plan.Rounds() {
			return rank
		}
		from := int(c.plan.Step(rank, s.round).From)
		if from < 0 || c.sent(from, s.first+uint32(s.round)) {
			return rank
		}
		rank = from
	}
	return rank
}

// sent reports whether a rank has sent a message, of those that it sends.
func (c *collective) sent(rank int, message uint32) bool {
	s := c.steps[rank]
	if s == nil {
		return message < uint32(len(c.over[rank])*c.plan.Rounds())
	}
	return message <= s.first+uint32(s.round)
}

// times returns the iterations that all ranks have ended.
func (c *collective) times() (all []Iteration) {
	whole := c.iterations
	for _, over := range c.over {
		whole = min(whole, len(over))
	}
	for k := range whole {
		it := Iteration{Start: c.flow.Start}
		for rank, over := range c.over {
			if k > 0 {
				if began := Time(c.over[rank][k-1]) + c.compute; rank == 0 || began < it.Start {
					it.Start = began
				}
			}
			it.End = max(it.End, Time(over[k]))
		}
		all = append(all, it)
	}
	return all
}

// plan returns the steps of a collective, and how many bytes it is about.
func (t *Traffic) plan(n int) (c traffic.Collective, bytes int64, err error) {
	bytes = int64(t.Bytes)
	switch t.Kind {
	case "ring":
		c, err = traffic.Ring(n, bytes)
	case "tree":
		c, err = traffic.Tree(n, bytes)
	case "halving":
		c, err = traffic.HalvingDoubling(n, bytes)
	case "hierarchical":
		if t.Group < 2 || t.Group >= n || n%t.Group != 0 {
			return nil, 0, fmt.Errorf("group is %d: it is how many ranks a machine has, so that %d ranks are two machines or more, all full", t.Group, n)
		}
		c, err = traffic.Hierarchical(n, t.Group, bytes)
	case "all-gather":
		c, err = traffic.AllGather(n, bytes)
	case "reduce-scatter":
		c, err = traffic.ReduceScatter(n, bytes)
	case "broadcast":
		c, err = traffic.Broadcast(n, bytes)
	default:
		if t.File != "" && t.List == "" {
			return nil, 0, errors.New("list has the bytes, or file says where they are")
		}
		if t.List == "" {
			c, err = traffic.Pairwise(n, bytes)
			break
		}
		var rows [][]int64
		if rows, bytes, err = matrixOf(t.List, n); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", orDefault(t.File, "list"), err)
		}
		c, err = traffic.PairwiseOf(rows)
	}
	return c, bytes, err
}

// matrixOf reads how many bytes each of n ranks has for each: CSV, of which row
// i is what rank i has.
func matrixOf(text string, n int) (rows [][]int64, sum int64, err error) {
	in := csv.NewReader(strings.NewReader(text))
	in.Comment, in.TrimLeadingSpace, in.ReuseRecord, in.FieldsPerRecord = '#', true, true, n
	for {
		record, err := in.Read()
		switch {
		case errors.Is(err, io.EOF) && len(rows) == n:
			return rows, sum, nil
		case errors.Is(err, io.EOF), err == nil && len(rows) == n:
			return nil, 0, fmt.Errorf("there are not as many rows as ranks, %d", n)
		case err != nil: // with its line
			return nil, 0, err
		}
		row := make([]int64, n)
		for i, text := range record {
			b, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				b, err = units.Bytes(text)
			}
			if err == nil && (b < 0 || b > mostMessage) {
				err = fmt.Errorf("%q: it is up to %v", text, Bytes(mostMessage))
			}
			if err != nil {
				line, _ := in.FieldPos(i)
				return nil, 0, fmt.Errorf("line %d: for rank %d: %w", line, i, err)
			}
			if row[i] = b; i != len(rows) {
				sum += b
			}
		}
		rows = append(rows, row)
	}
}
