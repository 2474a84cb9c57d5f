package lab

import (
	"errors"
	"fmt"
	"math"
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

// begin has the flows of a kind of traffic begin at their times.
func (r *run) begin(t *Traffic, rand *event.Rand) error {
	hosts := int(r.g.Hosts())
	op, err := oneOf("op", t.Op, operations, 0)
	if err != nil {
		return err
	}
	switch {
	case !inRange(t.Start, t.Until):
		return fmt.Errorf("start or until is negative, or above %v", mostTime)
	case t.Bytes < 0 || t.Bytes > mostFlow:
		return fmt.Errorf("bytes is %v: a flow has at most %v", t.Bytes, Bytes(mostFlow))
	case t.SrcPort != 0 && (t.SrcPort < ib.MinSrcPort || t.SrcPort > math.MaxUint16):
		return fmt.Errorf("src_port is %d: it is %d to %d", t.SrcPort, ib.MinSrcPort, math.MaxUint16)
	case r.s.Until > 0 && t.Start >= r.s.Until:
		return fmt.Errorf("it starts at %v, and the run ends at %v", t.Start, r.s.Until)
	}
	switch t.Kind {
	case "load", "bursts":
		return r.arrivals(t, op, rand)
	case "ring", "tree", "halving":
		return r.collective(t)
	case "list":
		return r.list(t, op)
	}
	list, err := t.pattern(hosts, rand)
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
		f := &Flow{Src: int(f.Src), Dst: int(f.Dst), Bytes: int64(t.Bytes), Start: t.Start, op: op, port: uint16(t.SrcPort)}
		if f.Bytes > 0 {
			r.open++
		}
		r.net.At(event.Time(t.Start), func() { r.start(f) })
	}
	return nil
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
func (r *run) arrivals(t *Traffic, op int, rand *event.Rand) error {
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
	rate, hosts := r.g.HostRate(), int(r.g.Hosts())
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
		s, err = traffic.Load{Hosts: hosts, Sizes: sizes, Rate: rate, Load: int(load), Until: int64(until - t.Start)}.Stream(rand)
	} else {
		s, err = traffic.Bursts{Hosts: hosts, Senders: t.Senders, Bytes: int64(t.Bytes), Rate: rate, Load: int(load), Until: int64(until - t.Start)}.Stream(rand)
	}
	if err != nil {
		return err
	}
	r.more++
	r.next(s, t.Start, op)
	return r.provide(hosts) // bursts have a list of them
}

// next has the next flow of a stream begin at its time.
func (r *run) next(s traffic.Stream, start Time, op int) {
	a, ok := s.Next()
	if !ok {
		r.more--
		return
	}
	f := &Flow{Src: int(a.Src), Dst: int(a.Dst), Bytes: a.Bytes, Start: start + Time(a.At), op: op}
	r.net.At(event.Time(f.Start), func() {
		r.open++
		r.start(f)
		if r.parts[r.net.PartOf(f.Src)].err == nil { // else the run is over
			r.next(s, start, op)
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
	if r.under++; r.under > mostOpen {
		r.fail(f.Src, fmt.Errorf("more than %d flows are under way at once: more arrives than the network carries, or flows are very short", mostOpen))
		return
	}
	f.number = len(r.flows)
	r.flows = append(r.flows, f)
	var err error
	if f.conn, err = r.connect(f); err != nil {
		r.fail(f.Src, err)
		return
	}
	if t := r.told[f.number]; t != nil {
		t.begin(f.conn.x)
	}
	if f.Bytes == 0 {
		r.endless++
		for range endlessAtOnce {
			r.again(f)
		}
		return
	}
	r.reap()
	f.Ideal = r.ideal(f)
	for left := f.Bytes; left > 0; left -= mostMessage {
		f.left++
		r.post(f.Src, f.conn, r.request(f, min(left, mostMessage)))
	}
}

// again posts another message of a flow without an end.
func (r *run) again(f *Flow) {
	bytes := uint32(endlessBytes)
	if r.window > endlessBytes*endlessAtOnce {
		bytes = uint32(r.window / 2)
	}
	r.post(f.Src, f.conn, adapter.Request{Op: r.op[f.op], Bytes: bytes, Done: func(c adapter.Completion) {
		if c.Status != ib.StatusSuccess {
			f.Status = c.Status
			return
		}
		r.again(f)
	}})
}

// request is a message of a flow.
func (r *run) request(f *Flow, n int64) adapter.Request {
	return adapter.Request{Op: r.op[f.op], Bytes: uint32(n), Done: func(c adapter.Completion) {
		if c.Status != ib.StatusSuccess && f.Status == ib.StatusSuccess {
			f.Status = c.Status
		}
		r.drain(f.Src, f.conn)
		if f.left--; f.left > 0 {
			return
		}
		f.End = Time(c.End)
		if !r.s.Adapter.Shared {
			f.conn.x.Close()
		}
		p := &r.parts[r.net.PartOf(f.Src)]
		p.over = append(p.over, f)
	}}
}

// connect returns the connection of a flow. One without an end has its own:
// what arrives there is what is measured of it.
func (r *run) connect(f *Flow) (*connection, error) {
	key, shared := flowKey{f.Src, f.Dst, f.port}, r.s.Adapter.Shared && f.Bytes > 0
	if c := r.shared[key]; c != nil && shared {
		return c, nil
	}
	if shared || f.Bytes == 0 {
		if err := r.keep(); err != nil {
			return nil, err
		}
	}
	cfg := r.connection(f.Src, f.Dst)
	if f.port != 0 {
		cfg.SrcPort = f.port
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
