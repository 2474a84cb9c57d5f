package secure

import (
	"context"
	"slices"
	"sync"
)

// Queue has the handshakes of a listener's clients, side by side, so that a
// slow one holds up no other. Its functions are set before the first Next.
type Queue[R, C any] struct {
	Request func(context.Context) (R, error)    // returns the next request, or why there is none any more
	Accept  func(context.Context, R) (C, error) // accepts it and secures the connection; of an error it leaves nothing
	Close   func(C)                             // closes a connection that the program has not taken

	start sync.Once
	done  chan C
	room  chan struct{}
	fail  error         // why there is no request any more
	over  chan struct{} // closed then

	ctx context.Context // of Accept
	end context.CancelFunc

	mu   sync.Mutex
	busy []*context.CancelFunc // of handshakes under way, the oldest first
}

// most is how many handshakes there are at once, connections that the program
// has not taken included. Beyond that the oldest handshake makes room.
const most = 256

// Next returns the next connection that is secured, or the error of Request, or
// that of ctx.
func (q *Queue[R, C]) Next(ctx context.Context) (c C, err error) {
	q.begin()
	select {
	case c = <-q.done:
		return c, nil
	case <-q.over:
		return c, q.fail
	case <-ctx.Done():
		return c, ctx.Err()
	}
}

// End ends the handshakes, and closes connections that the program has not
// taken. The caller has Request return an error from then on.
func (q *Queue[R, C]) End() {
	q.begin()
	q.end()
}

func (q *Queue[R, C]) begin() {
	q.start.Do(func() {
		q.done, q.over, q.room = make(chan C), make(chan struct{}), make(chan struct{}, most)
		q.ctx, q.end = context.WithCancel(context.Background())
		go q.run()
	})
}

// run accepts connections until there are no requests any more.
func (q *Queue[R, C]) run() {
	var all sync.WaitGroup
	for {
		r, err := q.Request(context.Background())
		if err != nil {
			q.fail = err
			break
		}
		entered := q.enter()
		ctx, cancel := q.begins()
		all.Go(func() {
			q.one(ctx, r, cancel)
			if entered {
				<-q.room
			}
		})
	}
	q.end()
	all.Wait()
	close(q.over)
}

// enter waits for room. It reports false if the queue has ended.
func (q *Queue[R, C]) enter() bool {
	select {
	case q.room <- struct{}{}:
		return true
	default:
	}
	q.mu.Lock()
	if len(q.busy) > 0 { // else all wait for the program
		(*q.busy[0])()
		q.busy = q.busy[1:]
	}
	q.mu.Unlock()
	select {
	case q.room <- struct{}{}:
		return true
	case <-q.ctx.Done():
		return false
	}
}

// begins returns the context of a handshake. From then on it can make room,
// also if its goroutine has not begun.
func (q *Queue[R, C]) begins() (context.Context, *context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = append(q.busy, &cancel)
	return ctx, &cancel
}

// one has the handshake of a request, and waits for the program to take the
// connection.
func (q *Queue[R, C]) one(ctx context.Context, r R, cancel *context.CancelFunc) {
	defer (*cancel)()
	c, err := q.Accept(ctx, r)
	q.mu.Lock()
	q.busy = slices.DeleteFunc(q.busy, func(b *context.CancelFunc) bool { return b == cancel })
	q.mu.Unlock()
	switch {
	case err != nil:
		return
	case ctx.Err() != nil: // it has been told to make room
		q.Close(c)
		return
	}
	select {
	case q.done <- c:
	case <-q.ctx.Done():
		q.Close(c)
	}
}
