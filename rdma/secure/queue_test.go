package secure

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// testQueue is a queue of numbers, of which those below stalled have a
// handshake that does not end by itself.
func testQueue(stalled int, closed *atomic.Int64) (*Queue[int, int], chan int) {
	requests := make(chan int)
	return &Queue[int, int]{
		Request: func(context.Context) (int, error) {
			if r, ok := <-requests; ok {
				return r, nil
			}
			return 0, net.ErrClosed
		},
		Accept: func(ctx context.Context, r int) (int, error) {
			if r < stalled {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return r, nil
		},
		Close: func(int) { closed.Add(1) },
	}, requests
}

// TestStalledHandshakesMakeRoom has more clients than there is room for begin a
// handshake, and say nothing more: one that does is served at once.
func TestStalledHandshakesMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, requests := testQueue(2*most, new(atomic.Int64))
		go func() {
			for i := range 2*most + 1 {
				requests <- i
			}
		}()
		if c, err := q.Next(t.Context()); err != nil || c != 2*most {
			t.Errorf("%d, %v", c, err)
		}
		close(requests)
		q.End()
	})
}

// TestRequestsAtOnce has requests come faster than their handshakes begin: the
// silent ones make room all the same, for those that speak.
func TestRequestsAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			const all = 3 * most // of which the program takes most
			var closed, asked atomic.Int64
			q, _ := testQueue(0, &closed)
			end := make(chan struct{})
			q.Request = func(context.Context) (int, error) {
				if n := asked.Add(1); n <= all {
					return int(n), nil
				}
				<-end
				return 0, net.ErrClosed
			}
			q.Accept = func(ctx context.Context, r int) (int, error) {
				if r > 2*most {
					return r, nil
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}
			for range most {
				if c, err := q.Next(t.Context()); err != nil || c <= 2*most {
					t.Fatalf("%d, %v", c, err)
				}
			}
			go close(end)
			q.End()
			<-q.over
		})
	}
}

// TestMadeRoomInTheEnd has the handshake that makes room succeed at that
// moment: its connection is closed, and another one has its place.
func TestMadeRoomInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		q, requests := testQueue(0, &closed)
		q.Accept = func(ctx context.Context, r int) (int, error) {
			if r < most {
				<-ctx.Done()
			}
			return r, nil
		}
		q.begin()
		for i := range most + 1 {
			requests <- i
		}
		synctest.Wait()
		if c, err := q.Next(t.Context()); err != nil || c != most || closed.Load() != 1 {
			t.Errorf("%d, %v; %d closed", c, err, closed.Load())
		}
		close(requests)
		q.End()
		<-q.over
		if got := closed.Load(); got != most {
			t.Errorf("%d of %d connections were closed", got, most)
		}
	})
}

// TestEndOfFullQueue ends a queue whose connections the program does not take:
// they are closed, and nothing goes on.
func TestEndOfFullQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		q, requests := testQueue(0, &closed)
		q.begin()
		for i := range most + 1 {
			requests <- i
		}
		synctest.Wait()
		close(requests)
		q.End()
		<-q.over
		if _, err := q.Next(t.Context()); err != net.ErrClosed {
			t.Errorf("after the end: %v", err)
		}
		if got := closed.Load(); got != most+1 {
			t.Errorf("%d of %d connections were closed", got, most+1)
		}
	})
}
