package secure

import (
	"context"
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
	fail  error         // why there is no request any more
	over  chan struct{} // closed then
}

// most is how many handshakes there are at once, connections that the program
// has not taken included.
const most = 256

// Next returns the next connection that is secured, or the error of Request, or
// that of ctx.
func (q *Queue[R, C]) Next(ctx context.Context) (c C, err error) {
	q.start.Do(func() {
		q.done, q.over = make(chan C), make(chan struct{})
		go q.run()
	})
	select {
	case c = <-q.done:
		return c, nil
	case <-q.over:
		return c, q.fail
	case <-ctx.Done():
		return c, ctx.Err()
	}
}

// run accepts connections until there are no requests any more.
func (q *Queue[R, C]) run() {
	var all sync.WaitGroup
	room := make(chan struct{}, most)
	ctx, cancel := context.WithCancel(context.Background())
	for {
		room <- struct{}{}
		r, err := q.Request(ctx)
		if err != nil {
			q.fail = err
			break
		}
		all.Go(func() {
			defer func() { <-room }()
			c, err := q.Accept(ctx, r)
			if err != nil {
				return
			}
			select {
			case q.done <- c:
			case <-ctx.Done():
				q.Close(c)
			}
		})
	}
	cancel()
	all.Wait()
	close(q.over)
}
