package rdma

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// An answer to another question than the one with its tag ends the connection:
// nothing else would wake the call that asked.
func TestAnswerToAnotherQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		_, c := p.connect()
		c.core.mu.Lock()
		defer c.core.mu.Unlock()
		call := &dirCall{op: dirLookup}
		call.left = 1
		c.core.calls = &dirCalls{open: map[uint16]*dirCall{7: call}}
		reply := dirReply{op: dirList, tag: 7}
		b := must1[*buffer](t)(c.core.hub.take())
		defer c.core.hub.put(b)
		if err := c.core.answered(b, copy(b.bytes(), reply.encode(dirReplyMax))); !errors.Is(err, ErrProtocol) {
			t.Errorf("error %v", err)
		}
	})
}

// grow has b receive until its peer may send more than at first, and leaves a
// message that is not released.
func grow(t *testing.T, a, b *Conn) Message {
	t.Helper()
	ctx := testContext(t)
	go func() {
		for range 40 {
			if a.Send(ctx, make([]byte, packMessage+1)) != nil {
				return
			}
		}
	}()
	for range 39 {
		m, err := b.RecvMsg(ctx)
		must(t, err)
		m.Release()
	}
	m, err := b.RecvMsg(ctx)
	must(t, err)
	return m
}

// extraOf returns how many receives busy connections may still have.
func extraOf(h *hub) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.extra
}

// What a busy connection has had more than others is there for the next ones,
// also where a message is released when the connection is closed.
func TestReceivesComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		before := extraOf(p.b)
		a, b := p.connect()
		m := grow(t, a, b)
		if extraOf(p.b) == before {
			t.Fatal("the connection was not busy")
		}
		b.core.mu.Lock()
		b.core.in.shrinkTo(baseWindow)
		b.core.mu.Unlock()
		must(t, b.Close())
		m.Release()
		if after := extraOf(p.b); after != before {
			t.Errorf("%d receives for busy connections, %d before", after, before)
		}
	})
}

// A connection that finds no memory for more receives leaves them to others.
func TestReceivesWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		a, b := p.connect()
		ctx := testContext(t)
		must(t, a.Send(ctx, []byte("one")))
		must(t, a.Flush(ctx))
		must(t, a.Send(ctx, []byte("two")))
		must(t, a.Flush(ctx))
		p.b.mu.Lock()
		before, free := p.b.extra, p.b.free
		p.b.free, p.b.closed = nil, true // no memory
		p.b.mu.Unlock()
		var buf [8]byte
		for range 2 {
			if _, err := b.Recv(ctx, buf[:]); err != nil {
				t.Error(err)
			}
		}
		p.b.mu.Lock()
		after := p.b.extra
		p.b.free, p.b.closed = free, false
		p.b.mu.Unlock()
		if after != before {
			t.Errorf("%d receives for busy connections, %d before", after, before)
		}
	})
}

// late is a context that ends once Err was called looks times.
type late struct {
	context.Context
	looks atomic.Int32
}

func (l *late) Err() error {
	if l.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// An Accept whose context ends when it has a request already rejects it:
// otherwise the peer would wait for minutes.
func TestAcceptThatIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		da, db := verbstest.Devices(t)
		lc := ListenConfig{Device: db}
		l, err := lc.Listen(t.Context(), db.Addr().String()+":0")
		must(t, err)
		defer l.Close()
		dialed := make(chan error, 1)
		go func() {
			c, err := (&Dialer{Device: da}).Dial(testContext(t), l.Addr().String())
			if err == nil {
				c.Close()
			}
			dialed <- err
		}()
		synctest.Wait()
		if n := cm.ReadStats(db).HalfOpen; n != 1 {
			t.Errorf("%d requests are there", n)
		}
		ctx := &late{Context: testContext(t)}
		ctx.looks.Store(1)
		if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("accept: %v", err)
		}
		var rejected *cm.RejectedError
		if err := <-dialed; !errors.As(err, &rejected) {
			t.Errorf("dial: %v", err)
		}
	})
}
