package rdma

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// freeBuffers returns how often each free buffer of a hub is in its list.
func freeBuffers(h *hub) map[*buffer]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[*buffer]int{}
	for b := h.free; b != nil && seen[b] == 0; b = b.next {
		seen[b]++
	}
	return seen
}

// A program gives a Buffer back more than once, as a deferred Discard beside
// SendBuffer does. It goes back once: two connections never get the same one.
func TestBufferGivenBackTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		a, b := p.connect()
		c, _ := p.connect()
		ctx := testContext(t)
		for name, first := range map[string]func(Buffer) error{
			"sent":      func(b Buffer) error { return a.SendBuffer(ctx, b, 4) },
			"discarded": func(b Buffer) error { b.Discard(); return nil },
			"too long":  func(b Buffer) error { a.SendBuffer(ctx, b, 1<<20); return nil },
		} {
			buf := must1[Buffer](t)(a.Buffer(ctx))
			copy(buf.Bytes(), "one.")
			must(t, first(buf))
			must(t, a.Flush(ctx)) // the buffer is free
			others := [2]Buffer{must1[Buffer](t)(a.Buffer(ctx)), {}}
			copy(others[0].Bytes(), "mine")
			buf.Discard()
			if err := a.SendBuffer(ctx, buf, 4); !errors.Is(err, ErrGivenBack) {
				t.Errorf("%s: SendBuffer returns %v", name, err)
			}
			buf.Discard()
			if buf.Bytes() != nil {
				t.Errorf("%s: the buffer still has bytes", name)
			}
			others[1] = must1[Buffer](t)(c.Buffer(ctx))
			copy(others[1].Bytes(), "else")
			if string(others[0].Bytes()[:4]) != "mine" {
				t.Fatalf("%s: two connections have the same buffer", name)
			}
			for _, o := range others {
				o.Discard()
			}
			if name == "sent" {
				m, err := b.RecvMsg(ctx)
				must(t, err)
				if string(m.Bytes()) != "one." {
					t.Errorf("%q came", m.Bytes())
				}
				m.Release()
			}
		}
		Buffer{}.Discard()
		if err := a.SendBuffer(ctx, Buffer{}, 0); !errors.Is(err, ErrGivenBack) {
			t.Errorf("a Buffer of no connection: %v", err)
		}
	})
}

// A Message that is released again does not take the memory from the messages
// that came with it, or that lie in its place now.
func TestMessageReleasedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		var old []Message
		for i := range 200 {
			text := bytes.Repeat([]byte{byte(i)}, 1+i%50*60) // some are packed
			must(t, a.Send(ctx, text))
			m, err := b.RecvMsg(ctx)
			must(t, err)
			for _, o := range old {
				o.Release()
			}
			if !bytes.Equal(m.Bytes(), text) {
				t.Fatalf("message %d is gone", i)
			}
			m.Release()
			if m.Bytes() != nil {
				t.Fatal("a message that is released has bytes")
			}
			old = append(old, m, m)
		}
		Message{}.Release()
		must(t, a.Close())
		must(t, b.Close())
		for _, h := range []*hub{a.core.hub, b.core.hub} {
			if n := h.holds.Load(); n != 0 {
				t.Errorf("%d holds of the memory are left", n)
			}
			if free := freeBuffers(h); len(free) != h.buffers {
				t.Errorf("%d of %d buffers are free", len(free), h.buffers)
			}
		}
	})
}

// Errors of messages that do not fit say how long they are, and what fits.
func TestErrorsSaySizes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		a.core.maxSend = 287
		buf := must1[Buffer](t)(a.Buffer(ctx))
		sent := a.SendBuffer(ctx, buf, 512)
		a.core.maxSend = 1 << 20
		buf = must1[Buffer](t)(a.Buffer(ctx))
		beyond := a.SendBuffer(ctx, buf, 20000)
		a.core.maxSend = 287
		must(t, a.Send(ctx, []byte("hello")))
		_, short := b.Recv(ctx, make([]byte, 4))
		for _, c := range []struct {
			err, is error
			says    string
		}{
			{a.Send(ctx, make([]byte, 512)), ErrTooLong, "512 bytes, the peer takes 287"},
			{sent, ErrTooLong, "512 bytes, the peer takes 287"},
			{beyond, ErrTooLong, "20000 bytes, the buffer has 16384"},
			{short, ErrShortBuffer, "the message has 5 bytes, the buffer 4"},
		} {
			if !errors.Is(c.err, c.is) || !strings.Contains(c.err.Error(), c.says) {
				t.Errorf("%v: it does not say %q", c.err, c.says)
			}
		}
	})
}
