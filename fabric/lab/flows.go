package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/traffic"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/closest"
)

const (
	opRead = 2

	// A flow goes in messages of at most this many bytes; one without an
	// end has some shorter ones outstanding: more than a window.
	mostMessage   = 1 << 30
	mostFlow      = 16 * mostMessage
	endlessBytes  = 1 << 20
	endlessAtOnce = 4

	// These bound the memory: a flow under way has two queue pairs, and so
	// has a connection that is shared, or of an all-reduce.
	mostFlows  = 1 << 20
	mostOpen   = 1 << 16
	mostKept   = 1 << 18
	mostInside = 1 << 24 // packets

	mostAllToAll = 256 // hosts
)

func (t Time) duration() time.Duration { return time.Duration(t / Time(event.Nanosecond)) }

// begin has the flows of a traffic begin at their times.
func (r *run) begin(tn *tenant, t *Traffic, rand *event.Rand) error {
	if err := t.check(r.s.Until); err != nil {
		return err
	}
	if err := tn.refuse(t); err != nil {
		return err
	}
	op, err := oneOf("op", t.Op, operations, 0)
	if err != nil {
		return err
	}
	hosts, err := t.between(int(r.g.Hosts()))
	if err != nil {
		return err
	}
	switch {
	case t.Source != nil:
		return r.source(tn, t)
	case t.Kind == "load" || t.Kind == "bursts":
		return r.arrivals(tn, t, op, hosts, rand)
	case slices.Contains(collectives, t.Kind):
		return r.collective(tn, t, hosts)
	case t.Kind == "list":
		return r.list(tn, t, op)
	case t.Kind == "chakra":
		return r.chakra(tn, t, hosts)
	}
	list, err := t.pattern(len(hosts), rand)
	if err != nil {
		return err
	}
	if t.Bytes == 0 && r.s.Until == 0 {
		return errors.New("without bytes it goes on until the end: set until")
	}
	if err := r.provide(len(list)); err != nil {
		return err
	}
	for _, f := range list {
		f := tn.flow(hosts[f.Src], hosts[f.Dst], int64(t.Bytes), t.Start, op)
		if err := r.ways.between(f.Src, f.Dst); err != nil {
			return err
		}
		f.port = uint16(t.SrcPort)
		r.later(f)
	}
	return nil
}

// flow returns a flow of a tenant.
func (t *tenant) flow(src, dst int, bytes int64, start Time, op int) *Flow {
	return &Flow{Src: src, Dst: dst, Bytes: bytes, Start: start, Traffic: t.traffic, op: op, tenant: t}
}

// inClass has a flow go in the class of a DSCP, not in its tenant's.
func (f *Flow) inClass(r *run, dscp uint8) {
	f.class = dscp + 1
	f.tenant.stormed(r, dscp)
}

// later has a flow begin at its time.
func (r *run) later(f *Flow) {
	if f.Bytes > 0 {
		r.open++
	}
	r.net.At(event.Time(f.Start), func() { r.start(f) })
}

// provide counts what takes memory before the run: flows, and ranks.
func (r *run) provide(n int) error {
	if r.provided += n; r.provided > mostFlows {
		return fmt.Errorf("with what stands before it this is too much: a scenario has at most %d flows that it names, and ranks", mostFlows)
	}
	return nil
}

// pattern returns the flows of a kind that begin at once.
func (t *Traffic) pattern(hosts int, rand *event.Rand) ([]traffic.Flow, error) {
	bytes := max(int64(t.Bytes), 1) // patterns have no flows without an end
	switch t.Kind {
	case "flow":
		if t.From < 0 || t.From >= hosts || t.To < 0 || t.To >= hosts || t.From == t.To {
			return nil, fmt.Errorf("from host %d to host %d: there are 0 to %d, and they differ", t.From, t.To, hosts-1)
		}
		return []traffic.Flow{{Src: int32(t.From), Dst: int32(t.To)}}, nil
	case "incast":
		if t.Senders < 1 || t.Senders >= hosts {
			return nil, fmt.Errorf("%d senders to host 0, of %d hosts: there must be 1 to %d", t.Senders, hosts, hosts-1)
		}
		return traffic.Incast(t.Senders, bytes)
	case "permutation":
		if t.Across < 0 {
			return nil, fmt.Errorf("across is %d: it is how many hosts a switch has", t.Across)
		}
		if t.Across > 0 {
			return traffic.PermutationAcross(rand, hosts, t.Across, bytes)
		}
		return traffic.Permutation(rand, hosts, bytes)
	case "all-to-all":
		if hosts > mostAllToAll {
			return nil, fmt.Errorf("%d hosts have too many pairs: at most %d can all send to all", hosts, mostAllToAll)
		}
		return traffic.AllToAll(hosts, bytes)
	}
	return nil, fmt.Errorf("there is no such kind: there are %s%s", strings.Join(kinds, ", "), closest.Question(t.Kind, kinds))
}

// arrivals has flows begin as they arrive.
func (r *run) arrivals(tn *tenant, t *Traffic, op int, hosts []int, rand *event.Rand) error {
	if err := r.ways.between(hosts...); err != nil {
		return err
	}
	load, err := share("load", t.Load, 1e6)
	until := orDefault(t.Until, r.s.Until)
	if err != nil {
		return err
	}
	if until == 0 {
		return errors.New("it says with until when arrivals end")
	}
	if until <= t.Start {
		return fmt.Errorf("arrivals end at %v, before they start at %v", until, t.Start)
	}
	var s traffic.Stream
	rate, n := r.s.Network.lineRate(r.g), len(hosts)
	if t.Kind == "load" {
		if t.Sizes == "" && t.Bytes == 0 {
			return errors.New("sizes or bytes must say how long flows are")
		}
		var sizes *traffic.Sizes
		if t.Sizes == "" && t.Bytes > 0 {
			sizes, err = traffic.Fixed(int64(t.Bytes))
		} else {
			sizes, err = traffic.ByName(t.Sizes)
		}
		if err != nil {
			return fmt.Errorf("sizes: %w", err)
		}
		s, err = traffic.Load{Hosts: n, Sizes: sizes, Rate: rate, Load: int(load), Until: int64(until - t.Start)}.Stream(rand)
	} else {
		s, err = traffic.Bursts{Hosts: n, Senders: t.Senders, Bytes: int64(t.Bytes), Rate: rate, Load: int(load), Until: int64(until - t.Start)}.Stream(rand)
	}
	if err != nil {
		return err
	}
	r.more++
	r.next(func() *Flow {
		a, ok := s.Next()
		if !ok {
			return nil
		}
		return tn.flow(hosts[a.Src], hosts[a.Dst], a.Bytes, t.Start+Time(a.At), op)
	})
	return r.provide(n) // bursts have a list of them
}

// next has the next flow of a row begin at its time, until there is none.
func (r *run) next(flow func() *Flow) {
	f := flow()
	if f == nil {
		r.more--
		return
	}
	r.net.At(event.Time(f.Start), func() {
		if f.Bytes > 0 {
			r.open++
		}
		r.start(f)
		if r.parts[r.net.PartOf(f.Src)].err == nil { // else the run is over
			r.next(flow)
		}
	})
}

// start begins a flow now.
func (r *run) start(f *Flow) {
	r.settle()
	if len(r.flows) >= mostFlows {
		r.fail(f.Src, fmt.Errorf("there are more than %d flows", mostFlows))
		return
	}
	pairs := f.tenant.pairs
	if f.Bytes > 0 {
		pairs = int(min(int64(pairs), f.Bytes))
	}
	if r.under += pairs; r.under > mostOpen {
		r.fail(f.Src, fmt.Errorf("more than %d flows, or queue pairs of them, are under way at once: more arrives than the network carries, or flows are very short", mostOpen))
		return
	}
	f.number = len(r.flows)
	r.flows = append(r.flows, f)
	if f.tenant.tcp != nil {
		if err := f.carry(r); err != nil {
			r.fail(f.Src, err)
		}
		return
	}
	for i := range pairs {
		c, err := r.connect(f, i)
		if err != nil {
			r.fail(f.Src, err)
			return
		}
		f.conns = append(f.conns, c)
	}
	if t := r.told[f.number]; t != nil {
		t.begin(f.conns[0].x)
	}
	if f.Bytes == 0 {
		r.endless += pairs
		for _, c := range f.conns {
			for range endlessAtOnce {
				r.again(f, c)
			}
		}
		return
	}
	r.reap()
	f.Ideal = r.ideal(f)
	r.send(f)
}

// send posts the messages of a flow with an end, each queue pair its part.
func (r *run) send(f *Flow) {
	n := int64(len(f.conns))
	part := func(i int) int64 { i64 := int64(i); return f.Bytes*(i64+1)/n - f.Bytes*i64/n }
	for i := range f.conns {
		f.left += int((part(i) + mostMessage - 1) / mostMessage)
	}
	f.unread = f.left
	for i, c := range f.conns {
		if f.arrived != nil && f.op != opRead {
			c.y.Received = func(adapter.Message) { f.receive() }
		}
		for left := part(i); left > 0; left -= mostMessage {
			r.post(f.Src, c, r.request(f, c, min(left, mostMessage)))
		}
	}
}

// receive notes a message that has arrived at the far end.
func (f *Flow) receive() {
	if f.unread--; f.unread == 0 {
		f.arrived()
	}
}

// again posts another message of a flow without an end.
func (r *run) again(f *Flow, conn *connection) {
	bytes := uint32(endlessBytes)
	if window := f.tenant.window; window > endlessBytes*endlessAtOnce {
		bytes = uint32(window / 2)
	}
	r.post(f.Src, conn, adapter.Request{Op: r.op[f.op], Bytes: bytes, Done: func(c adapter.Completion) {
		if c.Status != ib.StatusSuccess {
			f.Status = c.Status
			return
		}
		r.again(f, conn)
	}})
}

// request is a message of a flow.
func (r *run) request(f *Flow, conn *connection, n int64) adapter.Request {
	op := r.op[f.op]
	if f.arrived != nil && op == ib.OpWrite {
		op = ib.OpWriteImm // the far end is told
	}
	return adapter.Request{Op: op, Bytes: uint32(n), Done: func(c adapter.Completion) {
		if c.Status != ib.StatusSuccess && f.Status == ib.StatusSuccess {
			f.Status = c.Status
		}
		r.drain(f.Src, conn)
		if f.left--; f.left > 0 {
			return
		}
		f.End = Time(c.End)
		if !r.s.Adapter.Shared {
			for _, c := range f.conns {
				c.x.Close()
			}
		}
		p := &r.parts[r.net.PartOf(f.Src)]
		p.over = append(p.over, f)
		if f.arrived != nil && f.op == opRead { // the data have come here
			f.arrived()
		}
		if f.ended != nil {
			f.ended()
		}
	}}
}

// connect returns one of the connections of a flow. One without an end has its
// own: what arrives there is what is measured of it.
func (r *run) connect(f *Flow, pair int) (*connection, error) {
	port := f.port
	if port != 0 {
		port += uint16(pair)
	}
	key := flowKey{f.Src, f.Dst, port, f.class, f.tenant.like, pair}
	shared := r.s.Adapter.Shared && f.Bytes > 0
	if c := r.shared[key]; c != nil && shared {
		return c, nil
	}
	if shared || f.Bytes == 0 {
		if err := r.keep(); err != nil {
			return nil, err
		}
	}
	cfg := f.tenant.connection(r, f.Src, f.Dst)
	if port != 0 {
		cfg.SrcPort = port
	}
	if f.class != 0 {
		cfg.TrafficClass = r.s.Adapter.trafficClass(int(f.class) - 1)
		if class := classOf(&r.profile, int(f.class)-1); r.s.Adapter.MinProbe == 0 && !r.profile.Classes[class].Lossless {
			cfg.MinProbe = lossyProbe.duration()
		}
	}
	x, y, err := r.a.Connect(f.Src, f.Dst, cfg)
	if err != nil {
		return nil, err
	}
	c := &connection{x: x, y: y}
	if shared {
		r.shared[key] = c
	}
	return c, nil
}

// flowKey is what flows that share a connection have in common.
type flowKey struct {
	src, dst int
	port     uint16
	class    uint8
	tenant   int
	pair     int
}

// keep counts a connection that stays until the end.
func (r *run) keep() error {
	if r.kept++; r.kept > mostKept {
		return fmt.Errorf("there are more than %d connections: those that are shared stay to the end, so leave shared out, or take fewer hosts", mostKept)
	}
	return nil
}

// post posts a request at a host, or has it wait for room in the send queue.
func (r *run) post(host int, c *connection, q adapter.Request) {
	post := func() error { return c.x.Post(q) }
	if len(c.backlog) > 0 {
		c.backlog = append(c.backlog, post)
		return
	}
	if err := post(); errors.Is(err, ib.ErrQueueFull) {
		c.backlog = append(c.backlog, post)
	} else if err != nil {
		r.fail(host, err)
	}
}

// drain posts what waits, as far as there is room.
func (r *run) drain(host int, c *connection) {
	for len(c.backlog) > 0 {
		if err := c.backlog[0](); errors.Is(err, ib.ErrQueueFull) {
			return
		} else if err != nil {
			r.fail(host, err)
			return
		}
		c.backlog = c.backlog[1:]
	}
}
