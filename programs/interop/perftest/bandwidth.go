package perftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// runBandwidth goes through the sizes, and then ends the test, in the order
// that the originals have.
func (s *session) runBandwidth(ctx context.Context) error {
	t, both := s.cfg.Test, s.cfg.Bidirectional
	if t.Verb == Send {
		return s.runSendBandwidth(ctx)
	}
	if s.role == interop.Server && !both {
		if err := s.exchange.over(ctx); err != nil {
			return err
		}
		theirs, err := s.exchange.reports(ctx, report{})
		if err != nil {
			return err
		}
		s.record(resultOf(theirs))
		return s.exchange.bye(ctx)
	}
	var last Result
	for _, size := range s.cfg.sizes() {
		if both {
			if err := s.exchange.ready(ctx); err != nil {
				return err
			}
		}
		r, err := s.measure(ctx, newFlow(s, size, true, false))
		if err != nil {
			return err
		}
		if both && s.cfg.AllSizes {
			if err := s.exchange.over(ctx); err != nil {
				return err
			}
		}
		if last = r; both {
			if last, err = s.sum(ctx, r); err != nil {
				return err
			}
		}
		s.record(last)
	}
	if !both {
		if err := s.exchange.over(ctx); err != nil {
			return err
		}
		if _, err := s.exchange.reports(ctx, last.report()); err != nil {
			return err
		}
	}
	return s.exchange.bye(ctx)
}

func (s *session) runSendBandwidth(ctx context.Context) error {
	both := s.cfg.Bidirectional
	for _, size := range s.cfg.sizes() {
		f := newFlow(s, size, both || s.role == interop.Client, both || s.role == interop.Server)
		// In both directions the client begins, or a message would find
		// a peer without receives.
		f.hold = s.role == interop.Server
		if err := f.postRecvs(); err != nil {
			return err
		}
		if err := s.exchange.ready(ctx); err != nil {
			return err
		}
		r, err := s.measure(ctx, f)
		if err != nil {
			return err
		}
		if both && s.cfg.Duration == 0 {
			if r, err = s.sum(ctx, r); err != nil {
				return err
			}
		}
		s.record(r)
		if s.cfg.AllSizes {
			if err := s.exchange.over(ctx); err != nil {
				return err
			}
		}
	}
	return s.exchange.bye(ctx)
}

// sum exchanges reports and adds the peer's figures to the own.
func (s *session) sum(ctx context.Context, r Result) (Result, error) {
	theirs, err := s.exchange.reports(ctx, r.report())
	if err != nil {
		return r, err
	}
	p := resultOf(theirs)
	r.Average += p.Average
	r.Peak += p.Peak
	r.MsgRate += p.MsgRate
	return r, nil
}

func (s *session) measure(ctx context.Context, f *flow) (Result, error) {
	total := s.cfg.total()
	if f.sends && f.recvs {
		total *= 2
	}
	idle := s.cfg.IdleTimeout
	if f.sends && f.recvs {
		idle = s.cfg.patience() // both sides wait, and neither says so
	}
	g, end := s.guard(ctx, f.size, total, idle)
	defer end()
	return f.run(g)
}

// flow is the traffic of one size. In the steady state it allocates nothing:
// requests are built in place and posted in batches.
type flow struct {
	s            *session
	size         int
	sends, recvs bool
	hold         bool // send nothing before something has come

	qps      []flowQP
	limit    uint64 // operations of each queue pair, or no bound while time is
	step     int    // distance of consecutive addresses, 0 for a constant one
	places   uint64 // addresses before they repeat
	sent     uint64 // completed, all queue pairs
	received uint64

	meter    meter
	clock    clock
	timed    bool
	started  bool
	stopping bool        // the time is over: nothing new is posted
	alarm    *task.Timer // ends a wait when the time is over

	wrs  []verbs.SendWR
	sges []verbs.SGE
	rwrs []verbs.RecvWR
	rsge [1]verbs.SGE
	wc   [batch]verbs.WC
}

func newFlow(s *session, size int, sends, recvs bool) *flow {
	c := &s.cfg
	n, r := max(batch, c.PostList), max(batch, c.RecvPostList)
	return &flow{
		s: s, size: size, sends: sends, recvs: recvs,
		wrs: make([]verbs.SendWR, n), sges: make([]verbs.SGE, n), rwrs: make([]verbs.RecvWR, r),
	}
}

// flowQP is where one queue pair stands.
type flowQP struct {
	posted, done  uint64 // sends
	limit         uint64
	recvs, rlimit uint64 // receives posted, and to be posted
	owed          int    // receives used and not posted again
}

const (
	batch = 64

	noLimit = 1<<63 - 1

	// The ID of a request: the queue pair's index, the number of the
	// operation on it, and whether it is a receive.
	indexShift = 48
	countMask  = 1<<indexShift - 1
	recvFlag   = 1 << 63
)

func (f *flow) begin() {
	c := &f.s.cfg
	f.meter.size = f.size
	f.timed = c.Duration > 0
	f.limit = uint64(c.Iterations)
	if f.timed {
		f.limit = noLimit
	}
	if f.qps == nil {
		f.qps = make([]flowQP, c.QPs)
	}
	for i := range f.qps {
		f.qps[i].limit = f.limit
	}
	f.places = 1
	if f.size <= f.s.exchange.cycle/2 {
		f.step = (max(f.size, f.s.exchange.line) + f.s.exchange.line - 1) / f.s.exchange.line * f.s.exchange.line
		f.places = uint64(f.s.exchange.cycle / f.step)
	}
	wr := verbs.SendWR{Opcode: f.opcode()}
	if c.Test.Verb == Atomic && c.Atomic == FetchAdd {
		wr.CompareAdd = 1
	}
	for i := range f.wrs {
		f.wrs[i] = wr
		f.sges[i] = f.s.res.mr.Slice(0, f.size)
		f.wrs[i].SGList = f.sges[i : i+1]
	}
}

func (f *flow) opcode() verbs.Opcode {
	switch f.s.cfg.Test.Verb {
	case Write:
		return verbs.OpWrite
	case Read:
		return verbs.OpRead
	case Atomic:
		if f.s.cfg.Atomic == CompareSwap {
			return verbs.OpCompareSwap
		}
		return verbs.OpFetchAdd
	}
	return verbs.OpSend
}

// postRecvs fills the receive queues before the peer is told to begin.
func (f *flow) postRecvs() error {
	if !f.recvs {
		return nil
	}
	c := &f.s.cfg
	f.qps = make([]flowQP, c.QPs)
	queues := len(f.qps)
	if c.shared() {
		queues = 1
	}
	for i := range queues {
		q := &f.qps[i]
		q.rlimit = uint64(c.iterationsOfQueue())
		if c.Duration > 0 {
			q.rlimit = noLimit
		}
		q.recvs = uint64(f.s.res.posted[i]) // for messages that were lost
		q.owed = max(int(min(uint64(c.RxDepth), q.rlimit))-f.s.res.posted[i], 0)
		if err := f.repost(i); err != nil {
			return err
		}
	}
	return nil
}

// repost posts the receives that a queue pair is owed, if it still needs them.
func (f *flow) repost(i int) error {
	q := &f.qps[i]
	for q.owed > 0 {
		n := min(q.owed, len(f.rwrs))
		q.owed -= n
		n = int(min(uint64(n), q.rlimit-q.recvs))
		if n == 0 {
			continue
		}
		// A receive that is left over from a lost message takes one of
		// the next size.
		f.rsge[0] = f.s.res.mr.Slice(f.s.res.targetOffset(i), f.s.res.grh+f.s.cfg.Size)
		for j := range n {
			f.rwrs[j] = verbs.RecvWR{ID: recvFlag | uint64(i)<<indexShift, SGList: f.rsge[:]}
		}
		q.recvs += uint64(n)
		f.s.res.posted[i] += n
		if err := f.s.res.lanes.PostRecv(i, f.rwrs[:n]...); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) run(g *work.Guard) (Result, error) {
	f.begin()
	defer func() {
		if f.alarm != nil {
			f.alarm.Stop()
		}
	}()
	if f.sends && !f.hold {
		f.start(g, tasksOf(f.s.dev).Now())
		if err := f.fillAll(); err != nil {
			return Result{}, err
		}
	}
	for !f.over() {
		n, err := f.s.res.w.Next(g, f.wc[:])
		if err != nil {
			if errors.Is(err, errTimeUp) || f.lost(err) {
				break
			}
			return Result{}, f.explain(err)
		}
		if err := f.handle(g, n); err != nil {
			return Result{}, err
		}
	}
	r := f.meter.result()
	if f.recvs && !f.timed {
		r.Lost = f.s.cfg.total() - f.received
	}
	return r, nil
}

// start begins the measurement: with the first operation posted, or the first
// message received.
func (f *flow) start(g *work.Guard, now time.Time) {
	f.started = true
	f.meter.begin(now)
	if !f.timed || f.s.cfg.Endless {
		return
	}
	f.clock = newClock(now, f.s.cfg.Duration, f.s.cfg.Margin)
	limit := f.s.cfg.Duration
	switch {
	case f.sends && f.s.cfg.Test.Verb == Send:
		limit += drainLimit
	case f.sends:
		return // completions come, or the guard ends the run
	}
	f.alarm = tasksOf(f.s.dev).AfterFunc(limit, func() { g.Cancel(errTimeUp) })
}

var errTimeUp = errors.New("the time of the run is up")

// drainLimit bounds the wait for SENDs that are outstanding when the time is
// over: the peer's time is over too, and then it posts no more receives.
const drainLimit = time.Second

// stop lets every queue pair finish what it has begun, up to the next operation
// that asks for a completion.
func (f *flow) stop() {
	if f.stopping {
		return
	}
	f.stopping = true
	mod := uint64(f.s.cfg.CQMod)
	for i := range f.qps {
		q := &f.qps[i]
		q.limit = (q.posted + mod - 1) / mod * mod
	}
}

func (f *flow) drained() bool {
	for i := range f.qps {
		if f.qps[i].done < f.qps[i].limit {
			return false
		}
	}
	return true
}

// over reports whether all operations are through.
func (f *flow) over() bool {
	if f.timed {
		return f.stopping && (!f.sends || f.drained())
	}
	total := f.s.cfg.total()
	return (!f.sends || f.sent >= total) && (!f.recvs || f.received >= total)
}

func (f *flow) explain(err error) error {
	return fmt.Errorf("%d messages of %d bytes sent, %d received: %w", f.sent, f.size, f.received, err)
}

func (f *flow) fillAll() error {
	for i := range f.qps {
		if err := f.fill(i); err != nil {
			return err
		}
	}
	return nil
}

// fill posts as many operations as the send queue has room for, in whole lists
// if the user asked for lists.
func (f *flow) fill(i int) error {
	q := &f.qps[i]
	depth, list := uint64(f.s.cfg.TxDepth), uint64(f.s.cfg.PostList)
	most := uint64(len(f.wrs))
	if list > 1 {
		most = list
	}
	for {
		left := q.limit - q.posted
		n := min(depth-(q.posted-q.done), left, most)
		if n < min(list, left) || n == 0 {
			return nil
		}
		for j := range f.wrs[:n] {
			f.build(i, j, q.posted+uint64(j))
		}
		q.posted += n
		if err := f.s.res.lanes.Lanes[i].Send.PostSend(f.wrs[:n]...); err != nil {
			return err
		}
	}
}

// build makes operation number n of queue pair i in place j of the batch.
func (f *flow) build(i, j int, n uint64) {
	s, wr := f.s, &f.wrs[j]
	off := int(n%f.places) * f.step
	at := s.res.sourceOffset(i) + off
	if f.size <= s.cfg.Inline && s.cfg.Test.Verb <= Write {
		wr.SGList, wr.Inline = nil, s.res.mr.Bytes()[at:at+f.size]
	} else {
		f.sges[j].Addr = s.res.mr.Addr() + uint64(at)
	}
	s.res.lanes.Address(i, wr)
	if s.cfg.Test.Verb != Send {
		r := s.exchange.remoteOf(i)
		wr.Remote = verbs.RemoteAddr{Addr: r.VAddr + uint64(off), RKey: r.RKey}
	}
	wr.ID = uint64(i)<<indexShift | (n+1)&countMask
	wr.Signaled = (n+1)%uint64(s.cfg.CQMod) == 0 || n+1 == f.limit
}

// handle takes n completions from the queue and posts what follows from them.
func (f *flow) handle(g *work.Guard, n int) error {
	now := tasksOf(f.s.dev).Now()
	if !f.started {
		f.start(g, now)
	}
	var ops uint64
	for k := range f.wc[:n] {
		wc := &f.wc[k]
		if wc.Status != verbs.StatusSuccess {
			return &interop.CompletionError{Doing: f.doing(wc), Done: f.sent + f.received, WC: *wc}
		}
		i := int(wc.ID &^ recvFlag >> indexShift)
		q := &f.qps[i]
		if wc.ID&recvFlag != 0 {
			f.received++
			f.s.res.posted[i]--
			q.owed++
			if !f.sends || f.timed {
				ops++
			}
			continue
		}
		through := wc.ID & countMask
		f.sent += through - q.done
		ops += through - q.done
		q.done = through
	}
	g.Add(n)
	if f.s.cfg.Endless {
		f.interval(now, ops)
		return f.next(now)
	}
	if !f.timed || f.clock.sampling(now) {
		f.meter.add(now, ops)
	} else if f.meter.count == 0 {
		f.meter.begin(now)
	}
	return f.next(now)
}

// interval counts operations of a run without end, which has a result for
// every interval.
func (f *flow) interval(now time.Time, ops uint64) {
	f.meter.add(now, ops)
	if now.Sub(f.meter.start) >= f.s.cfg.Duration {
		f.s.record(f.meter.result())
		f.meter.begin(now)
	}
}

func (f *flow) doing(wc *verbs.WC) string {
	if wc.ID&recvFlag != 0 {
		return fmt.Sprintf("receive of %d bytes", f.size)
	}
	return fmt.Sprintf("%v of %d bytes", f.s.cfg.Test.Verb, f.size)
}

// next posts receives, then sends.
func (f *flow) next(now time.Time) error {
	for i := range f.qps {
		if f.qps[i].owed >= f.s.cfg.RecvPostList {
			if err := f.repost(i); err != nil {
				return err
			}
		}
	}
	if f.timed && !f.s.cfg.Endless && !now.Before(f.clock.end) {
		f.stop()
	}
	if !f.sends {
		return nil
	}
	return f.fillAll()
}
