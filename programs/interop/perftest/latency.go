package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// runLatency goes through the sizes and ends the test.
func (s *session) runLatency(ctx context.Context) error {
	t := s.cfg.Test
	if t.clientOnly() && s.role == interop.Server {
		return s.exchange.bye(ctx)
	}
	p := &pinger{s: s, times: NewHistogram()}
	for _, size := range s.cfg.sizes() {
		p.prepare(size)
		if t.Verb == Send {
			if err := p.postRecvs(); err != nil {
				return err
			}
			if err := s.exchange.ready(ctx); err != nil {
				return err
			}
		}
		r, err := s.measureLatency(ctx, p)
		if err != nil {
			return err
		}
		s.record(r)
	}
	if t.Verb != Write {
		return s.exchange.bye(ctx)
	}
	// Here the originals just leave. This side stays for what the peer may
	// still want acknowledged, until it has left too.
	s.exchange.ctl.Finish(finishLimit)
	return nil
}

func (s *session) measureLatency(ctx context.Context, p *pinger) (Result, error) {
	g, end := s.guard(ctx, p.size, s.cfg.total(), s.cfg.patience())
	defer end()
	p.g = g
	if s.cfg.Duration > 0 {
		// The peer keeps the same time: a wait for it ends with ours.
		p.deadline = func() *task.Timer {
			return tasksOf(s.dev).AfterFunc(s.cfg.Duration, func() { g.Cancel(errTimeUp) })
		}
	}
	defer p.disarm()
	var err error
	switch s.cfg.Test.Verb {
	case Send:
		err = p.sends()
	case Write:
		err = p.writes()
	default:
		err = p.requests()
	}
	if err != nil && !p.ended(err) {
		if !s.cfg.Service.Reliable() && errors.Is(err, interop.ErrNoProgress) {
			return Result{}, &interop.LossError{Service: s.cfg.Service, Sent: p.posted, Received: p.received, Silence: s.cfg.LossTimeout}
		}
		return Result{}, fmt.Errorf("after %d round trips of %d bytes: %w", p.done, p.size, err)
	}
	return p.result(), nil
}

// pinger measures the time between one operation and the next.
type pinger struct {
	s    *session
	g    *work.Guard
	size int
	goal uint64 // round trips, or no bound while time is

	times          *Histogram
	posted, done   uint64 // own operations; done: as far as completions say
	received       uint64
	patient        bool // each operation has a completion, which is waited for before the next
	rposted        uint64
	last           time.Time
	first, counted time.Time
	clock          clock
	deadline       func() *task.Timer
	alarm          *task.Timer

	wr   [1]verbs.SendWR
	sge  [1]verbs.SGE
	rwr  [batch]verbs.RecvWR
	rsge [1]verbs.SGE
	wc   [batch]verbs.WC
}

func (p *pinger) prepare(size int) {
	s := p.s
	times := p.times
	times.Reset()
	*p = pinger{s: s, size: size, times: times, goal: uint64(s.cfg.Iterations)}
	if s.cfg.Duration > 0 {
		p.goal = noLimit
	}
	f := flow{s: s} // for its choice of operation
	p.wr[0] = verbs.SendWR{Opcode: f.opcode()}
	if s.cfg.Test.Verb == Atomic && s.cfg.Atomic == FetchAdd {
		p.wr[0].CompareAdd = 1
	}
	if s.cfg.Test.Verb != Send {
		r := s.exchange.remoteOf(0)
		p.wr[0].Remote = verbs.RemoteAddr{Addr: r.VAddr, RKey: r.RKey}
	}
	s.res.lanes.Address(0, &p.wr[0])
	if size <= s.cfg.Inline && s.cfg.Test.Verb <= Write {
		p.wr[0].Inline = s.res.mr.Bytes()[s.res.sourceOffset(0):][:size]
	} else {
		p.sge[0] = s.res.mr.Slice(s.res.sourceOffset(0), size)
		p.wr[0].SGList = p.sge[:]
		// Its number is written into the memory that a WRITE may be
		// sent again from.
		p.patient = s.cfg.Test.Verb == Write
	}
	p.rsge[0] = s.res.mr.Slice(s.res.targetOffset(0), s.res.grh+size)
	for i := range p.rwr {
		p.rwr[i] = verbs.RecvWR{ID: recvFlag, SGList: p.rsge[:]}
	}
}

func (p *pinger) disarm() {
	if p.alarm != nil {
		p.alarm.Stop()
	}
}

// ended reports whether err is just the end of a run that time bounds.
func (p *pinger) ended(err error) bool {
	if errors.Is(err, errTimeUp) {
		return true
	}
	// In write_lat the peer ends the connection when its time is up, which
	// may be a moment before ours is.
	return p.s.cfg.Duration > 0 && p.s.cfg.Test.Verb == Write && errors.Is(err, interop.ErrPeerClosed) &&
		!tasksOf(p.s.dev).Now().Before(p.clock.to)
}

// over reports whether the time of the run is up.
func (p *pinger) over() bool {
	return p.goal == noLimit && !p.last.IsZero() && !p.last.Before(p.clock.end)
}

// tick takes the time at which an operation is posted.
func (p *pinger) tick() {
	now := tasksOf(p.s.dev).Now()
	if p.last.IsZero() {
		p.first = now
		p.clock = newClock(now, p.s.cfg.Duration, p.s.cfg.Margin)
		if p.deadline != nil {
			p.alarm = p.deadline()
		}
	} else {
		p.count(now)
	}
	p.last = now
}

func (p *pinger) count(now time.Time) {
	if p.goal != noLimit || p.clock.sampling(now) {
		p.times.Add(now.Sub(p.last))
		p.counted = now
	} else if p.times.Count() == 0 {
		p.first = now
	}
	p.g.Add(1)
}

// signalEvery says how many messages one completion stands for. The answer of
// the peer says that a message has come. A completion as well for each would
// have both sides send an acknowledgement for each.
const signalEvery = 8

// signals reports whether operation n asks for a completion.
func (p *pinger) signals(n uint64) bool {
	return p.patient || n%signalEvery == 0 || n == p.goal || p.s.cfg.sendDepth() == 1
}

func (p *pinger) post() error {
	p.tick()
	s := p.s
	p.posted++
	wr := &p.wr[0]
	wr.ID = p.posted
	wr.Signaled = p.signals(p.posted)
	return s.res.lanes.Lanes[0].Send.PostSend(p.wr[:]...)
}

// take waits for completions and counts them.
func (p *pinger) take() error {
	n, err := p.s.res.w.Next(p.g, p.wc[:])
	if err != nil {
		return err
	}
	return p.handle(n)
}

func (p *pinger) handle(n int) error {
	for i := range p.wc[:n] {
		wc := &p.wc[i]
		if wc.Status != verbs.StatusSuccess {
			return &interop.CompletionError{
				Doing: fmt.Sprintf("%v latency with %d bytes", p.s.cfg.Test.Verb, p.size), Done: p.done, WC: *wc,
			}
		}
		if wc.ID&recvFlag != 0 {
			p.received++
			continue
		}
		p.done = wc.ID
	}
	return nil
}

// settle waits for completions, as far as the next post needs them. After the
// last operation it waits for all.
func (p *pinger) settle() error {
	open := uint64(p.s.cfg.sendDepth()) - 1
	if p.patient || p.posted == p.goal {
		open = 0
	}
	for p.posted-p.done > open {
		if err := p.take(); err != nil {
			return err
		}
	}
	return nil
}

// requests measures READs and atomics: one at a time, a whole round trip each.
func (p *pinger) requests() error {
	for p.done < p.goal && !p.over() {
		if err := p.post(); err != nil {
			return err
		}
		if err := p.settle(); err != nil {
			return err
		}
	}
	p.count(tasksOf(p.s.dev).Now())
	return nil
}

func (p *pinger) postRecvs() error {
	for p.rposted < min(uint64(p.s.cfg.RxDepth), p.goal) {
		if err := p.postRecv(int(min(uint64(p.s.cfg.RxDepth), p.goal) - p.rposted)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pinger) postRecv(n int) error {
	n = int(min(uint64(min(n, batch)), p.goal-p.rposted))
	p.rposted += uint64(n)
	return p.s.res.lanes.PostRecv(0, p.rwr[:n]...)
}

// sends measures messages that go back and forth.
func (p *pinger) sends() error {
	server := p.s.role == interop.Server
	for p.posted < p.goal && !p.over() {
		due := p.posted // messages that have come by now
		if server {
			due++
		}
		if due > 0 {
			if err := p.awaitMessage(due); err != nil {
				return err
			}
		}
		if err := p.post(); err != nil {
			return err
		}
		if err := p.settle(); err != nil {
			return err
		}
	}
	if !server && p.goal != noLimit {
		if err := p.awaitMessage(p.goal); err != nil {
			return err
		}
		p.count(tasksOf(p.s.dev).Now())
	}
	return nil
}

// awaitMessage waits until n messages have come and posts the receives anew.
func (p *pinger) awaitMessage(n uint64) error {
	for p.received < n {
		if err := p.take(); err != nil {
			return err
		}
	}
	if p.rposted < p.goal {
		return p.postRecv(1)
	}
	return nil
}

// writes measures WRITEs that go back and forth: each side watches the last
// byte of its buffer for the number of the round. Here it is the server that
// begins, unlike with SEND.
func (p *pinger) writes() error {
	second := p.s.role == interop.Client
	source := p.s.res.mr.Bytes()[p.s.res.sourceOffset(0):][:p.size]
	for p.posted < p.goal && !p.over() {
		if second || p.posted > 0 {
			if err := p.watch(byte(p.received + 1)); err != nil {
				return err
			}
		}
		source[p.size-1] = byte(p.posted + 1)
		if err := p.post(); err != nil {
			return err
		}
		if err := p.confirm(); err != nil {
			return err
		}
	}
	if !second && p.goal != noLimit {
		if err := p.watch(byte(p.goal)); err != nil {
			return err
		}
		p.count(tasksOf(p.s.dev).Now())
	}
	return nil
}

// confirm is settle for WRITEs. The peer leaves only when it has got the last
// one, so its end is as good as the acknowledgement of that.
func (p *pinger) confirm() error {
	err := p.settle()
	if p.posted == p.goal && errors.Is(err, interop.ErrPeerClosed) {
		return nil
	}
	return err
}

// Watching memory: how often it is looked at before other goroutines may run
// and the time is looked at, and after how long without change the watch
// sleeps between two looks (see work.Spin).
const (
	looksPerYield = 64
	watchLimit    = 2 * time.Millisecond
	watchNap      = 50 * time.Microsecond
)

// watch waits for a value of the last byte of the buffer that the peer writes.
func (p *pinger) watch(want byte) error {
	var start, left time.Time
	for i := 1; ; i++ {
		if ok, err := p.look(want); ok || err != nil {
			return err
		}
		// Polling is what moves packets in while this goroutine keeps
		// the processor, and shows errors.
		if n := p.s.res.w.CQ.Poll(p.wc[:]); n > 0 {
			if err := p.handle(n); err != nil {
				return err
			}
		}
		if i%looksPerYield != 0 {
			continue
		}
		if p.g.Stopped() {
			if ok, _ := p.look(want); ok { // the peer left after its last WRITE
				return nil
			}
			if err := p.stillComing(&left); err != nil {
				return err
			}
		}
		runtime.Gosched()
		switch now := tasksOf(p.s.dev).Now(); {
		case start.IsZero():
			start = now
		case now.Sub(start) > watchLimit:
			tasksOf(p.s.dev).Sleep(context.Background(), watchNap)
		}
	}
}

// stillComing returns nil while the last WRITE of a peer that has left may be
// on its way: over UC the peer does not wait until it has come. left is when
// that began.
func (p *pinger) stillComing(left *time.Time) error {
	err := p.g.Err(verbs.ErrClosed)
	if p.s.cfg.Service.Reliable() || p.posted != p.goal || !errors.Is(err, interop.ErrPeerClosed) {
		return err
	}
	if left.IsZero() {
		*left = tasksOf(p.s.dev).Now()
	}
	if tasksOf(p.s.dev).Since(*left) > p.s.cfg.LossTimeout {
		return interop.ErrNoProgress // it is lost
	}
	return nil
}

// look reads the last byte of the buffer, with the region's atomic load of the
// word around it.
func (p *pinger) look(want byte) (bool, error) {
	off := p.s.res.targetOffset(0) + p.size - 1
	v, err := p.s.res.mr.Load64(off &^ 7)
	if err != nil {
		return false, err
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	if b[off&7] != want {
		return false, nil
	}
	p.received++
	return true, nil
}

func (p *pinger) result() Result {
	div := 2
	if p.s.cfg.Test.hasReadDepth() {
		div = 1
	}
	l := p.times.Latencies(div)
	n := p.times.Count()
	r := Result{Size: p.size, Iterations: n, Latency: &l}
	if n > 0 {
		r.Elapsed = p.counted.Sub(p.first)
	}
	if s := r.Elapsed.Seconds(); s > 0 {
		r.MsgRate = float64(n) / s
	}
	if p.goal != noLimit {
		// The side that goes second sees one interval less than there
		// are round trips.
		r.Iterations = p.posted
	}
	r.Average = r.MsgRate * float64(p.size)
	r.Peak = r.Average
	return r
}
