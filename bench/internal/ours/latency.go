package ours

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
	"github.com/gosoftroce/rocev2/verbs"
)

// signalEvery says how many unsignalled sends go before one with a completion,
// without which the send queue's entries are not free again.
const signalEvery = 8

var errStopped = errors.New("stopped")

// latency does one operation at a time: SENDs and WRITEs that the peer answers
// with its own; READs, atomics and, with Ack, WRITEs that its device answers.
type latency struct {
	*side
	watch *watch
	stop  <-chan struct{} // nil on the active side
	ctx   context.Context // ends with the watch, or, on the passive side, at the stop

	wr       [1]verbs.SendWR
	sge      [1]verbs.SGE
	rwr      [1]verbs.RecvWR
	rsge     [1]verbs.SGE
	wc       [16]verbs.WC
	word     [8]byte
	posted   uint64
	received uint64
	finished uint64 // completions of own operations
}

// Run asks and measures, or answers.
func (l *latency) Run(stop <-chan struct{}) (pair.Result, error) {
	op, err := opcode(l.cfg.Op)
	if err != nil {
		return pair.Result{}, err
	}
	if l.cfg.Op == "write" && (l.cfg.Size != 8 || l.cfg.Events) {
		return pair.Result{}, errors.New("WRITE latency is of 8 bytes, polling memory")
	}
	l.watch = newWatch()
	defer l.watch.end()
	l.ctx = l.watch.ctx
	l.wr[0] = verbs.SendWR{Opcode: op, CompareAdd: 1, SGList: l.sge[:]}
	l.sge[0] = l.source.Slice(0, l.cfg.Size)
	if op == verbs.OpWrite || op == verbs.OpSend && l.cfg.Size == len(l.word) {
		l.wr[0].SGList, l.wr[0].Inline = nil, l.word[:]
	}
	if op != verbs.OpSend {
		l.wr[0].Remote = l.remote.At(0)
	}
	l.rwr[0] = verbs.RecvWR{ID: recvFlag, SGList: l.rsge[:]}
	l.rsge[0] = l.target.Slice(0, l.cfg.Size)
	if l.cfg.Active {
		return l.ask()
	}
	l.stop = stop
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-stop; cancel() }()
	l.ctx = ctx
	return l.answer()
}

func (l *latency) ask() (pair.Result, error) {
	times := make([]uint32, 0, 1<<20)
	r := newResult()
	begin := time.Now()
	warm := true
	for {
		t0 := time.Now()
		if err := l.roundTrip(); err != nil {
			return r, fmt.Errorf("round trip %d: %w", l.posted, err)
		}
		now := time.Now()
		t := now.Sub(begin)
		if warm {
			if warm = t < l.cfg.Warm; !warm {
				l.begin()
			}
			continue
		}
		if t >= l.cfg.Warm+l.cfg.Measure || len(times) == cap(times) {
			break
		}
		times = append(times, uint32(min(now.Sub(t0), 4*time.Second)))
	}
	l.costs(&r)
	r.Values["messages"] = float64(len(times))
	r.Values["p50_us"] = stats.Percentile(times, 50) / 1e3
	r.Values[cell.P99] = stats.Percentile(times, 99) / 1e3
	r.Values[cell.P999] = stats.Percentile(times, 99.9) / 1e3
	r.Values["max_us"] = stats.Percentile(times, 100) / 1e3
	l.mishaps(&r)
	return r, nil
}

func (l *latency) roundTrip() error {
	if err := l.post(); err != nil {
		return err
	}
	switch {
	case l.oneSided():
	case l.cfg.Op == "send":
		return l.awaitMessage()
	default:
		return l.awaitWord(l.posted)
	}
	for l.finished < l.posted {
		if err := l.wait(); err != nil {
			return err
		}
	}
	return nil
}

// oneSided reports whether the device of the peer answers, not its program.
func (l *latency) oneSided() bool {
	return l.cfg.Op == "read" || l.cfg.Op == "atomic" || l.cfg.Ack
}

func (l *latency) post() error {
	l.posted++
	wr := &l.wr[0]
	wr.ID = l.posted
	wr.Signaled = l.posted%signalEvery == 0 || l.oneSided()
	binary.LittleEndian.PutUint64(l.word[:], l.posted)
	return l.qps[0].PostSend(l.wr[:]...)
}

// answer serves until stop.
func (l *latency) answer() (pair.Result, error) {
	l.beginAfterWarm()
	r := newResult()
	err := l.answers()
	if !errors.Is(err, errStopped) {
		return r, err
	}
	l.costs(&r)
	l.mishaps(&r)
	return r, nil
}

func (l *latency) answers() error {
	switch {
	case l.oneSided():
		if !l.cfg.Spin {
			<-l.stop
			return errStopped
		}
		for {
			if err := l.wait(); err != nil {
				return err
			}
		}
	case l.cfg.Op == "send":
		for {
			if err := l.awaitMessage(); err != nil {
				return err
			}
			if err := l.post(); err != nil {
				return err
			}
		}
	}
	for n := uint64(1); ; n++ {
		if err := l.awaitWord(n); err != nil {
			return err
		}
		if err := l.post(); err != nil {
			return err
		}
	}
}

// awaitMessage waits for one message and posts its receive again.
func (l *latency) awaitMessage() error {
	for want := l.received + 1; l.received < want; {
		if err := l.wait(); err != nil {
			return err
		}
	}
	return l.qps[0].PostRecv(l.rwr[:]...)
}

// awaitWord polls the memory that the peer writes to. Polling the completion
// queue lets the device receive on this goroutine.
func (l *latency) awaitWord(want uint64) error {
	raw := make8(want)
	for i := 1; ; i++ {
		if err := l.handle(l.cq.Poll(l.wc[:])); err != nil {
			return err
		}
		v, err := l.target.Load64(0)
		if err != nil {
			return err
		}
		if v == raw {
			l.watch.progress.Add(1)
			return nil
		}
		if err := l.check(i); err != nil {
			return err
		}
	}
}

// make8 returns what Load64 shows of a word that was sent as little endian.
func make8(v uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return binary.NativeEndian.Uint64(b[:])
}

// check looks now and then whether the run must end.
func (l *latency) check(i int) error {
	if i%1024 != 0 {
		return nil
	}
	select {
	case <-l.stop:
		return errStopped
	case <-l.watch.ctx.Done():
		if l.cfg.Active {
			return context.Cause(l.watch.ctx)
		}
	default:
	}
	return nil
}

// wait takes completions by polling or, in event mode, by sleeping on the
// completion channel.
func (l *latency) wait() error {
	for i := 1; ; i++ {
		if n := l.cq.Poll(l.wc[:]); n > 0 {
			return l.handle(n)
		}
		if l.cfg.Events {
			l.cq.Arm(false)
			if n := l.cq.Poll(l.wc[:]); n > 0 { // it came before the arming
				return l.handle(n)
			}
			if err := l.sleep(); err != nil {
				return err
			}
			continue
		}
		if err := l.check(i); err != nil {
			return err
		}
	}
}

// sleep blocks on the completion channel. A passive side may sleep until it is
// stopped; the watch of an active one ends it earlier.
func (l *latency) sleep() error {
	_, err := l.ch.Get(l.ctx)
	switch {
	case err == nil:
		return nil
	case l.stop != nil && l.ctx.Err() != nil:
		return errStopped
	}
	return l.watch.why(err)
}

func (l *latency) handle(n int) error {
	if n > 0 {
		l.watch.progress.Add(1)
	}
	for i := range l.wc[:n] {
		wc := &l.wc[i]
		if wc.Status != verbs.StatusSuccess {
			return wc.Err()
		}
		if wc.ID&recvFlag != 0 {
			l.received++
		} else {
			l.finished++
		}
	}
	return nil
}
