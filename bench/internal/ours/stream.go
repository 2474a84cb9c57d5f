package ours

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/verbs"
)

const maxPost = 64 // requests posted by one call

// stream keeps Depth operations outstanding, on the queue pairs in turn. The
// last of each burst asks for a completion.
type stream struct {
	*side
	opcode verbs.Opcode

	wrs  [maxPost]verbs.SendWR
	sge  [maxPost]verbs.SGE
	rwr  [1]verbs.RecvWR
	rsge [1]verbs.SGE
	wc   [256]verbs.WC

	room        []int // free entries of each send queue
	turn        int
	outstanding int
	done        uint64 // operations completed
	received    uint64 // messages of the peer
	place       int    // of the next operation in memory
	watch       *watch

	partner *stream // the other side, if this program serves that one too
}

// Run keeps the stream up, or serves the peer's.
func (s *stream) Run(stop <-chan struct{}) (pair.Result, error) {
	s.prepareRecv()
	if !s.cfg.Active {
		return s.serve(stop)
	}
	var err error
	if s.opcode, err = opcode(s.cfg.Op); err != nil {
		return pair.Result{}, err
	}
	s.prepare()
	s.watch = newWatch()
	defer s.watch.end()
	r := newResult()
	var doneBefore uint64
	begin := time.Now()
	warm := true
	for {
		if err := s.fill(); err != nil {
			return r, err
		}
		if err := s.take(); err != nil {
			return r, err
		}
		t := time.Since(begin)
		if warm && t >= s.cfg.Warm {
			warm, doneBefore = false, s.done
			s.begin()
		}
		if t >= s.cfg.Warm+s.cfg.Measure {
			break
		}
	}
	s.costs(&r)
	n := float64(s.done - doneBefore)
	r.Values["messages"] = n
	r.Values["gbps"] = n * float64(s.cfg.Size) * 8 / 1e9 / r.Values["seconds"]
	r.Values["mmsg"] = n / 1e6 / r.Values["seconds"]
	for s.outstanding > 0 {
		if err := s.take(); err != nil {
			return r, err
		}
	}
	r.Values["sent"] = float64(s.done)
	if s.cfg.Both { // the peer began a moment later, and still needs receives
		if err := s.linger(100 * time.Millisecond); err != nil {
			return r, err
		}
	}
	s.mishaps(&r)
	return r, nil
}

// linger handles what still arrives for a while.
func (s *stream) linger(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); runtime.Gosched() {
		if err := s.handle(s.wc[:s.cq.Poll(s.wc[:])]); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) prepareRecv() {
	s.rsge[0] = s.target.Slice(0, s.cfg.grh()+s.cfg.Size)
	s.rwr[0].SGList = s.rsge[:]
}

func (s *stream) prepare() {
	s.room = make([]int, len(s.qps))
	for i := range s.room {
		s.room[i] = s.cfg.depth()
	}
	for i := range s.wrs {
		s.wrs[i] = verbs.SendWR{Opcode: s.opcode, CompareAdd: 1, SGList: s.sge[i : i+1]}
		s.sge[i] = s.source.Slice(0, s.cfg.Size)
	}
	s.cfg.Burst = min(s.cfg.Burst, maxPost, s.cfg.Depth)
}

// fill posts bursts on the queue pairs in turn while there is room for them.
func (s *stream) fill() error {
	size, burst := s.cfg.Size, s.cfg.Burst
	for s.outstanding+burst <= s.cfg.Depth && s.room[s.turn] >= burst {
		for j := range s.wrs[:burst] {
			if s.place+size > s.target.Len() {
				s.place = 0
			}
			wr := &s.wrs[j]
			s.sge[j].Addr = s.source.Addr() + uint64(s.place)
			wr.ID = uint64(s.turn)
			s.address(wr, s.turn)
			wr.Signaled = j == burst-1
			if s.opcode != verbs.OpSend {
				wr.Remote = s.remote.At(uint64(s.place))
			}
			s.place += (size + 63) &^ 63
		}
		if err := s.qps[s.turn].PostSend(s.wrs[:burst]...); err != nil {
			return fmt.Errorf("posting: %w", err)
		}
		s.outstanding += burst
		s.room[s.turn] -= burst
		if s.turn++; s.turn == len(s.qps) {
			s.turn = 0
		}
	}
	return nil
}

// take waits for completions and handles them.
func (s *stream) take() error {
	n := s.cq.Poll(s.wc[:])
	if n == 0 {
		var err error
		if n, err = s.cq.Wait(s.watch.ctx, s.wc[:]); err != nil {
			return fmt.Errorf("%d operations outstanding: %w", s.outstanding, s.watch.why(err))
		}
	}
	s.watch.progress.Add(1)
	if s.partner != nil {
		if err := s.partner.drain(); err != nil {
			return err
		}
	}
	return s.handle(s.wc[:n])
}

// drain handles all completions that there are.
func (s *stream) drain() error {
	for n := len(s.wc); n == len(s.wc); {
		n = s.cq.Poll(s.wc[:])
		if err := s.handle(s.wc[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) handle(wcs []verbs.WC) error {
	for i := range wcs {
		wc := &wcs[i]
		if wc.Status != verbs.StatusSuccess {
			return wc.Err()
		}
		q := int(wc.ID &^ recvFlag)
		if wc.ID&recvFlag != 0 {
			s.received++
			s.rwr[0].ID = wc.ID
			if err := s.qps[q].PostRecv(s.rwr[:]...); err != nil {
				return fmt.Errorf("posting a receive: %w", err)
			}
			continue
		}
		s.done += uint64(s.cfg.Burst)
		s.outstanding -= s.cfg.Burst
		s.room[q] += s.cfg.Burst
	}
	return nil
}

// serve answers until stop: receives are posted again, everything else is the
// device's work.
func (s *stream) serve(stop <-chan struct{}) (pair.Result, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-stop; cancel() }()
	s.beginAfterWarm()
	for ctx.Err() == nil {
		n, err := s.next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return pair.Result{}, err
		}
		if err := s.handle(s.wc[:n]); err != nil {
			return pair.Result{}, err
		}
	}
	r := newResult()
	s.costs(&r)
	if !s.cfg.reliable() {
		if err := s.linger(drainTime); err != nil {
			return r, err
		}
	}
	r.Values["received"] = float64(s.received)
	s.mishaps(&r)
	return r, nil
}

// next takes completions in the way that the test wants its passive side.
func (s *stream) next(ctx context.Context) (int, error) {
	switch {
	case s.cfg.Spin:
		n := s.cq.Poll(s.wc[:])
		if n == 0 {
			runtime.Gosched()
		}
		return n, nil
	case s.cfg.Op == "send":
		return s.cq.Wait(ctx, s.wc[:])
	}
	<-ctx.Done()
	return 0, ctx.Err()
}
