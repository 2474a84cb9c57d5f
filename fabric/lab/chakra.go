package lab

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/traffic"
	"github.com/gosoftroce/rocev2/fabric/traffic/chakra"
)

// execution is execution traces that are played: each rank does what a node
// says when those that it depends on are over. Communication begins at once
// then; of computing each rank has one node at a time on its processor and one
// on its accelerator, the first in the trace that is ready.
type execution struct {
	*job
	traces []*chakra.Trace
	groups execGroups
	algo   Traffic // how collectives are carried out
	play   []execRank

	next  uint32 // number of the next message
	steps int64  // of all ranks
	bytes int64  // that are sent
}

// execRank is what a rank has. Nodes are numbered as in its trace.
type execRank struct {
	left  []int32   // dependencies that are not over
	after [][]int32 // nodes that depend on one
	over  int       // nodes that are
	comms map[int32]*comm
	under []int32    // communication that has begun and is not over
	ready [2][]int32 // computing that waits, sorted: of the accelerator, of the processor
	busy  [2]bool
	todo  []int32 // nodes without dependencies, that have not begun
}

// comm is the communication of a node.
type comm struct {
	plan    traffic.Collective // of a collective
	members []int              // the root first, where there is one
	root    int                // which of the group it is
	me      int                // among members
	inTurn  bool
	message uint32 // the first, or the only one
	step    *step
}

// chakra has execution traces begin.
func (r *run) chakra(tn *tenant, t *Traffic, hosts []int) error {
	if t.List == "" {
		return errors.New("list has the traces, or file says where they are")
	}
	if _, err := oneOf("algorithm", t.Algorithm, allReduces, 0); err != nil {
		return err
	}
	files, err := chakra.Unpack(t.List, chakra.Limits{})
	if err != nil {
		return err
	}
	if len(files) < 2 || len(files) > len(hosts) {
		return fmt.Errorf("there are traces of %d ranks: it takes 2 to %d, the number of hosts", len(files), len(hosts))
	}
	if err := r.provide(len(files)); err != nil {
		return err
	}
	x := &execution{job: r.newJob(tn, hosts[:len(files)]), algo: *t, play: make([]execRank, len(files))}
	if x.traces, err = chakra.Read(files, chakra.Limits{Nodes: mostFlows}); err != nil {
		return err
	}
	if err := x.prepare(); err != nil {
		return err
	}
	x.flow = tn.flow(hosts[0], hosts[len(files)-1], max(x.bytes, 1), t.Start, 0)
	x.waits = x.waiting
	r.open++
	r.net.At(event.Time(t.Start), x.start)
	return nil
}

// prepare finds out which messages there will be, and which ranks take part
// in which collective.
func (x *execution) prepare() error {
	var err error
	if x.groups, err = groupsOf(x.traces, x.algo.Groups); err != nil {
		return err
	}
	for rank := range x.traces {
		nodes := x.traces[rank].Nodes
		p := &x.play[rank]
		*p = execRank{left: make([]int32, len(nodes)), after: make([][]int32, len(nodes)), comms: map[int32]*comm{}}
		for i := range nodes {
			if nodes[i].Micros > uint64(mostTime/us) {
				return x.wrong(rank, i, fmt.Errorf("it takes %d us: at most %v", nodes[i].Micros, mostTime))
			}
			p.left[i] = int32(len(nodes[i].Deps))
			for _, d := range nodes[i].Deps {
				p.after[d] = append(p.after[d], int32(i))
			}
			if p.left[i] == 0 {
				p.todo = append(p.todo, int32(i))
			}
		}
	}
	if err := x.matchMessages(); err != nil {
		return err
	}
	return x.matchCollectives()
}

// wrong is an error about a node.
func (x *execution) wrong(rank, node int, err error) error {
	n := &x.traces[rank].Nodes[node]
	return fmt.Errorf("rank %d, node %d, %q: %w", rank, n.ID, n.Name, err)
}

// messageKey is what a send and its receive have in common, beside their order.
type messageKey struct {
	from, to int
	tag      uint32
}

// matchMessages gives sends and receives their numbers: the first send from a
// rank to another one with a tag is for the first receive, in the order of the
// traces.
func (x *execution) matchMessages() error {
	type place struct{ rank, node int }
	sends, receives := map[messageKey][]place{}, map[messageKey][]place{}
	var keys []messageKey // in the order of the traces
	for rank, t := range x.traces {
		for i := range t.Nodes {
			n := &t.Nodes[i]
			if n.Kind != chakra.Send && n.Kind != chakra.Recv {
				continue
			}
			key, of, mine := messageKey{rank, int(n.Dst), n.Tag}, sends, n.Src
			if n.Kind == chakra.Recv {
				key, of, mine = messageKey{int(n.Src), rank, n.Tag}, receives, n.Dst
			}
			switch {
			case key.from < 0 || key.to < 0 || key.from >= len(x.traces) || key.to >= len(x.traces) || key.from == key.to:
				return x.wrong(rank, i, fmt.Errorf("from rank %d to rank %d: there are 0 to %d, and they differ", key.from, key.to, len(x.traces)-1))
			case mine >= 0 && int(mine) != rank:
				return x.wrong(rank, i, fmt.Errorf("it is of rank %d, and in the trace of another one", mine))
			case n.Bytes > mostMessage:
				return x.wrong(rank, i, fmt.Errorf("it has %d bytes: at most %v", n.Bytes, Bytes(mostMessage)))
			}
			if len(sends[key])+len(receives[key]) == 0 {
				keys = append(keys, key)
			}
			of[key] = append(of[key], place{rank, i})
		}
	}
	for _, key := range keys {
		from, to := sends[key], receives[key]
		if err := x.reach(key.from, key.to); err != nil {
			return err
		}
		if len(from) != len(to) {
			return fmt.Errorf("rank %d has %d sends to rank %d with tag %d, which has %d receives for them", key.from, len(from), key.to, key.tag, len(to))
		}
		for k := range from {
			x.play[key.from].comms[int32(from[k].node)] = &comm{message: x.next}
			x.play[key.to].comms[int32(to[k].node)] = &comm{message: x.next}
			x.bytes += int64(x.traces[key.from].Nodes[from[k].node].Bytes)
			x.next++
			x.steps++
		}
	}
	return nil
}

// matchCollectives gives collectives their plans: the first one of a group at a
// rank is the first one of it at all others, in the order of the traces.
func (x *execution) matchCollectives() error {
	for rank, t := range x.traces {
		for i := range t.Nodes {
			if n := &t.Nodes[i]; n.Kind == chakra.Collective {
				c, err := x.matched(rank, n)
				if err != nil {
					return x.wrong(rank, i, err)
				}
				x.play[rank].comms[int32(i)] = c
			}
		}
	}
	return x.groups.check()
}

// matched returns a collective of a rank.
func (x *execution) matched(rank int, n *chakra.Node) (*comm, error) {
	g, err := x.groups.of(rank, n)
	if err != nil {
		return nil, err
	}
	me, least := g.at[rank], g.least
	k := g.count[me]
	g.count[me]++
	if rank == least { // it is the first of them here
		c := &comm{members: g.members, message: x.next}
		g.comms, g.nodes = append(g.comms, c), append(g.nodes, n)
		if err := join(x.reach(c.members...), x.planOf(c, g, n)); err != nil {
			return nil, err
		}
	}
	if k >= len(g.comms) {
		return nil, fmt.Errorf("rank %d has no such collective of group %q", least, n.Group)
	}
	if o := g.nodes[k]; o.Collective != n.Collective || o.Bytes != n.Bytes || o.Root != n.Root {
		return nil, fmt.Errorf("%v of %d bytes; of rank %d the same of group %q is %v of %d", n.Collective, n.Bytes, least, n.Group, o.Collective, o.Bytes)
	}
	mine := *g.comms[k]
	mine.me = (me - mine.root + len(g.members)) % len(g.members)
	return &mine, nil
}

// planOf says how a collective is carried out. Sizes are those of ASTRA-sim:
// what a rank has at the beginning, of which an all-gather makes as many times
// as much as there are ranks.
func (x *execution) planOf(c *comm, g *execGroup, n *chakra.Node) (err error) {
	ranks, bytes := len(c.members), max(int64(n.Bytes), 1)
	if n.Bytes > mostMessage {
		return fmt.Errorf("it has %d bytes: at most %v", n.Bytes, Bytes(mostMessage))
	}
	switch n.Collective {
	case chakra.AllReduce:
		t := Traffic{Kind: orDefault(x.algo.Algorithm, "ring"), Bytes: Bytes(bytes), Group: x.algo.Group}
		if t.Kind == "hierarchical" && ranks <= t.Group { // within a machine
			t.Kind = "ring"
		}
		c.inTurn = sendsInTurn(t.Kind)
		c.plan, _, err = t.plan(ranks)
	case chakra.AllGather:
		c.plan, err = traffic.AllGather(ranks, bytes*int64(ranks))
	case chakra.ReduceScatter, chakra.ReduceScatterBlock:
		c.plan, err = traffic.ReduceScatter(ranks, bytes)
	case chakra.AllToAll:
		c.plan, err = traffic.Pairwise(ranks, bytes)
	case chakra.Broadcast, chakra.Reduce:
		c.inTurn = n.Collective == chakra.Broadcast
		var in bool
		if c.root, in = g.at[int(n.Root)]; !in {
			return fmt.Errorf("its root, rank %d, is not in the group", n.Root)
		}
		c.members = append(slices.Clone(c.members[c.root:]), c.members[:c.root]...)
		if c.plan, err = traffic.Reduce(ranks, bytes); c.inTurn {
			c.plan, err = traffic.Broadcast(ranks, bytes)
		}
	case chakra.Barrier:
		c.plan, err = traffic.Barrier(ranks)
	default:
		return fmt.Errorf("%v is not supported: there are ALL_REDUCE, REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER", n.Collective)
	}
	if err != nil {
		return err
	}
	x.next += uint32(c.plan.Rounds())
	if x.steps += int64(c.plan.Rounds()) * int64(ranks); x.steps > mostRounds {
		return fmt.Errorf("with those before it, there are more than %d messages", mostRounds)
	}
	for round := range c.plan.Rounds() {
		for me := range ranks {
			x.bytes += c.plan.Step(me, round).Send.Bytes
		}
	}
	return nil
}

// start connects all ranks, and has them begin.
func (x *execution) start() {
	x.begin()
	for rank := range x.traces {
		nodes := x.traces[rank].Nodes
		for i := range nodes {
			if err := x.connectFor(rank, &nodes[i], x.play[rank].comms[int32(i)]); err != nil {
				x.r.fail(0, err)
				return
			}
		}
	}
	for rank := range x.traces {
		x.run(rank)
	}
}

// connectFor makes the connections that a node needs.
func (x *execution) connectFor(rank int, n *chakra.Node, c *comm) error {
	switch n.Kind {
	case chakra.Send:
		return x.connect(rank, int(n.Dst))
	case chakra.Collective:
		for round := range c.plan.Rounds() {
			if to := c.plan.Step(c.me, round).To; to >= 0 {
				if err := x.connect(rank, c.members[to]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run has a rank begin what nothing holds back.
func (x *execution) run(rank int) {
	p := &x.play[rank]
	for {
		for len(p.todo) > 0 {
			node := p.todo[0]
			p.todo = p.todo[1:]
			x.enter(rank, node)
		}
		if !x.compute(rank, 0) && !x.compute(rank, 1) {
			break
		}
	}
	if p.over == len(p.left) && !x.ranks[rank].over {
		x.end(rank)
	}
}

// enter begins a node, or has it wait for what computes it.
func (x *execution) enter(rank int, node int32) {
	n, c, p := &x.traces[rank].Nodes[node], x.play[rank].comms[node], &x.play[rank]
	done := func() {
		x.over(rank, node)
		x.run(rank)
	}
	switch n.Kind {
	case chakra.Compute:
		unit := unitOf(n)
		at, _ := slices.BinarySearch(p.ready[unit], node)
		p.ready[unit] = slices.Insert(p.ready[unit], at, node)
	case chakra.Send:
		p.under = append(p.under, node)
		x.send(rank, int(n.Dst), int64(n.Bytes), c.message, done)
	case chakra.Recv:
		p.under = append(p.under, node)
		if x.arrived(rank, c.message, done) {
			x.over(rank, node)
		}
	case chakra.Collective:
		p.under = append(p.under, node)
		began := false // then a collective that is over at once is so below
		c.step = &step{j: x.job, inTurn: c.inTurn, plan: c.plan, members: c.members, me: c.me, first: c.message, done: func() {
			x.over(rank, node)
			if began {
				x.run(rank)
			}
		}}
		c.step.enter()
		began = true
	default:
		x.over(rank, node)
	}
}

// unitOf returns what computes a node.
func unitOf(n *chakra.Node) int {
	if n.CPU {
		return 1
	}
	return 0
}

// compute has a unit of a rank begin the next node, and reports whether some is
// over already, as it takes no time.
func (x *execution) compute(rank, unit int) bool {
	p := &x.play[rank]
	if p.busy[unit] || len(p.ready[unit]) == 0 {
		return false
	}
	node := p.ready[unit][0]
	p.ready[unit] = p.ready[unit][1:]
	took := Time(x.traces[rank].Nodes[node].Micros) * us
	if took == 0 {
		x.over(rank, node)
		return true
	}
	p.busy[unit] = true
	x.after(rank, took, func() {
		p.busy[unit] = false
		x.over(rank, node)
		x.run(rank)
	})
	return false
}

// over notes that a node is, for those that depend on it.
func (x *execution) over(rank int, node int32) {
	p := &x.play[rank]
	p.over++
	if at := slices.Index(p.under, node); at >= 0 {
		p.under = slices.Delete(p.under, at, at+1)
	}
	for _, next := range p.after[node] {
		if p.left[next]--; p.left[next] == 0 {
			p.todo = append(p.todo, next)
		}
	}
}

// waiting says what a rank waits for.
func (x *execution) waiting(rank int, h held) string {
	p := &x.play[rank]
	text := fmt.Sprintf("has done %d of %d nodes, and ", p.over, len(p.left))
	if len(p.under) == 0 {
		return text + "computes"
	}
	node := p.under[0]
	n, c := &x.traces[rank].Nodes[node], p.comms[node]
	text += fmt.Sprintf("is at node %d, %q, which ", n.ID, n.Name)
	switch n.Kind {
	case chakra.Send:
		return text + "waits for acknowledgements of rank " + strconv.Itoa(int(n.Dst)) + x.whereOf(h, rank, int(n.Dst))
	case chakra.Recv:
		return text + "waits for rank " + strconv.Itoa(int(n.Src)) + x.whereOf(h, int(n.Src), rank)
	}
	return text + c.step.waits(h)
}

// whereOf says where what a rank has for another one is.
func (x *execution) whereOf(h held, from, to int) string {
	return strings.TrimSuffix(": "+x.r.where(h, x.hosts[from], x.hosts[to]), ": ")
}
