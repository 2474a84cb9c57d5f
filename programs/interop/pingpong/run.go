package pingpong

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// lane is where one queue pair stands.
type lane struct {
	sending  bool
	awaiting bool
	foreign  int // bytes of a message of another size, or 0
}

// counts is where a run stands, all lanes together.
type counts struct {
	lanes                  []lane
	posted, sent, received int
	reposted               int // receives that were posted in place of used ones
}

// sizeError says that the peer was started with another message size.
func (s *session) sizeError(theirs string) error {
	return fmt.Errorf("the two sides run different tests: messages (-s) have %d bytes here, %s there", s.cfg.Size, theirs)
}

// sendsFirst reports whether this side begins.
func (s *session) sendsFirst() bool {
	return (s.role == interop.Server) == s.cfg.traits().serverFirst
}

func (s *session) run(ctx context.Context) (Result, error) {
	c := &s.cfg
	var report func(uint64)
	if c.OnProgress != nil {
		report = func(n uint64) { c.OnProgress(n, 2*uint64(c.Iterations)) }
	}
	g := work.NewGuard(ctx, s.tasks(), c.patience(), nil, report)
	defer g.Stop()
	res := Result{Bytes: 2 * uint64(c.Size) * uint64(c.Iterations), Iterations: c.Iterations}
	start := s.tasks().Now()
	n := counts{lanes: make([]lane, c.QPs)}
	for i := range n.lanes {
		n.lanes[i].awaiting = true
		if s.sendsFirst() && n.posted < c.Iterations {
			if err := s.send(i, &n); err != nil {
				return res, err
			}
		}
	}
	for n.sent < c.Iterations || n.received < c.Iterations {
		k, err := s.w.Next(g, s.wc[:])
		if err != nil {
			return res, s.explain(err, &n)
		}
		g.Add(k)
		if err := s.handle(s.wc[:k], &n); err != nil {
			if !s.lastUnconfirmed(err, &n) {
				return res, err
			}
			res.Unconfirmed = true
			break
		}
	}
	res.Elapsed = s.tasks().Since(start)
	return res, s.validate()
}

// explain says how far a run came that was ended. Over an unreliable service
// silence means loss.
func (s *session) explain(err error, n *counts) error {
	service := s.cfg.traits().service
	if !service.Reliable() && errors.Is(err, interop.ErrNoProgress) {
		return &interop.LossError{Service: service, Sent: uint64(n.sent), Received: uint64(n.received), Silence: s.cfg.LossTimeout}
	}
	return fmt.Errorf("after %d messages sent and %d received: %w", n.sent, n.received, err)
}

// handle takes completions. It sends the next message of a lane when its last
// one is complete and the peer's has arrived.
func (s *session) handle(wc []verbs.WC, n *counts) error {
	for i := range wc {
		at, err := s.lanes.Find(wc[i].QPN)
		if err != nil {
			return err
		}
		if err := s.check(&wc[i], &n.lanes[at], n); err != nil {
			return err
		}
		if wc[i].ID == sendID {
			n.sent++
			n.lanes[at].sending = false
		} else {
			n.received++
			n.lanes[at].awaiting = false
		}
		if err := s.repost(n); err != nil {
			return err
		}
		if l := &n.lanes[at]; n.posted < s.cfg.Iterations && !l.sending && !l.awaiting {
			l.awaiting = true
			if err := s.send(at, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns an error if a completion is not what it should be. A message of
// another size is an error once the own one is through, so that both sides see
// it.
func (s *session) check(wc *verbs.WC, l *lane, n *counts) error {
	switch {
	case l.foreign > 0 && wc.ID == sendID:
		return s.sizeError(fmt.Sprint(l.foreign))
	case wc.ID == recvID && wc.Status == verbs.StatusLocLenErr:
		return s.sizeError("more")
	case wc.Status != verbs.StatusSuccess:
		return &interop.CompletionError{Doing: "ping-pong", Done: uint64(n.sent + n.received), WC: *wc}
	case wc.ID == recvID && int(wc.ByteLen) != s.grh+s.cfg.Size && l.foreign == 0:
		l.foreign = int(wc.ByteLen) - s.grh
		if n.posted == s.cfg.Iterations && !l.sending {
			return s.sizeError(fmt.Sprint(l.foreign))
		}
	}
	return nil
}

// repost fills the receive queue up when it runs low.
func (s *session) repost(n *counts) error {
	used := n.received - n.reposted
	if len(s.recvs)-used > len(n.lanes) || n.received >= s.cfg.Iterations || used == 0 {
		return nil
	}
	n.reposted += used
	return s.lanes.PostRecv(0, s.recvs[:used]...)
}

func (s *session) send(at int, n *counts) error {
	n.posted++
	n.lanes[at].sending = true
	wr := verbs.SendWR{
		ID: sendID, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{s.mr.Slice(s.grh, s.cfg.Size)},
	}
	s.lanes.Address(at, &wr)
	return s.lanes.Lanes[at].Send.PostSend(wr)
}

// lastUnconfirmed reports whether the only failure is that the acknowledgement
// of a last message did not come. The originals exit at once when they are
// done, so it is not sent again if it is lost.
func (s *session) lastUnconfirmed(err error, n *counts) bool {
	var ce *interop.CompletionError
	return errors.As(err, &ce) && ce.WC.Status == verbs.StatusRetryExcErr &&
		n.received >= s.cfg.Iterations && n.sent >= s.cfg.Iterations-len(n.lanes) && n.posted == s.cfg.Iterations
}

// ErrContent is wrapped by the error of a run whose buffer does not hold what
// it should.
var ErrContent = errors.New("wrong content")

// validate checks the pattern that the first sender writes: a zero at the start
// of every page, the fill byte elsewhere.
func (s *session) validate() error {
	if !s.cfg.Validate {
		return nil
	}
	page := os.Getpagesize()
	for i, b := range s.message() {
		want := byte(fill)
		if i%page == 0 {
			want = 0
		}
		if b != want {
			return fmt.Errorf("%w: byte %d of the buffer is 0x%02x, expected 0x%02x (both sides must validate)", ErrContent, i, b, want)
		}
	}
	return nil
}

// linger answers what the peer may still send again.
func (s *session) linger(ctx context.Context) {
	if s.cfg.Linger <= 0 || !s.cfg.traits().service.Reliable() {
		return
	}
	_ = s.tasks().Sleep(ctx, s.cfg.Linger)
}
