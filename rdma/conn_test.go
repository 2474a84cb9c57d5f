package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Messages of every length arrive whole and in order, whichever way they take:
// inline, packed, copied, or from the caller's memory. Also when packets are
// lost.
func TestMessagesOfEveryLength(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]pairConfig{
		"clean":   {tune: tuning{size: 128 << 10}},
		"lossy":   {tune: tuning{size: 128 << 10}, devices: verbstest.Config{Network: fabric.Config{Port: fabric.PortConfig{Loss: 0.02}, Seed: 1}}},
		"foreign": {tune: tuning{size: 128 << 10}, foreign: true},
		"shallow": {tune: tuning{size: 128 << 10, depth: reserved + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := newPair(t, cfg).connect()
				ctx := testContext(t)
				sizes := []int{0, 1, 8, maxInline, maxInline + 1, packMessage, packMessage + 1, copyMax, copyMax + 1, 128 << 10}
				const rounds = 30
				content := func(round, i int) []byte {
					return bytes.Repeat([]byte{byte(round*7 + i + 1)}, sizes[i])
				}
				errs := make(chan error, 1)
				go func() {
					for round := range rounds {
						for i := range sizes {
							if err := a.Send(ctx, content(round, i)); err != nil {
								errs <- err
								return
							}
						}
					}
					errs <- nil
				}()
				for round := range rounds {
					for i := range sizes {
						m, err := b.RecvMsg(ctx)
						if err != nil {
							t.Fatal(err)
						}
						if !bytes.Equal(m.Bytes(), content(round, i)) {
							t.Fatalf("round %d: message of %d bytes arrives with %d bytes, or others", round, sizes[i], len(m.Bytes()))
						}
						m.Release()
					}
				}
				must(t, <-errs)
				must(t, a.Flush(ctx))
				if n := a.core.qp.Stats().RNRReceived; n > 0 && !cfg.foreign {
					t.Errorf("the sender met %d RNR NAKs in spite of credits", n)
				}
			})
		})
	}
}

// Many goroutines send and receive at once on one connection, in both
// directions. Each message arrives once, those of one sender in order.
func TestConcurrentSendersAndReceivers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		const senders, each = 8, 300
		var wg sync.WaitGroup
		for _, c := range []*Conn{a, b} {
			for s := range senders {
				wg.Go(func() {
					for i := range each {
						if err := c.Send(ctx, fmt.Appendf(nil, "%d %d", s, i)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			var mu sync.Mutex
			got, left := map[string]bool{}, senders*each
			for range 3 {
				wg.Go(func() {
					for {
						mu.Lock()
						if left == 0 {
							mu.Unlock()
							return
						}
						left--
						mu.Unlock()
						m, err := c.RecvMsg(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if s := string(m.Bytes()); got[s] {
							t.Errorf("message %q comes twice", s)
						} else {
							got[s] = true
						}
						mu.Unlock()
						m.Release()
					}
				})
			}
			defer func() {
				if len(got) != senders*each {
					t.Errorf("%d messages of %d", len(got), senders*each)
				}
			}()
		}
		wg.Wait()
	})
}

// A small message that is held back with others goes out although its sender
// does nothing more.
func TestHeldBackMessagesGoOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		for round := range 20 {
			const n = 3 * direct
			for i := range n {
				must(t, a.Send(ctx, []byte{byte(i)}))
			}
			for i := range n {
				var p [8]byte
				k, err := b.Recv(ctx, p[:])
				if err != nil || k != 1 || p[0] != byte(i) {
					t.Fatalf("round %d: message %d: %v %v (%v)", round, i, k, p[0], err)
				}
			}
		}
	})
}

// A message that is longer than the buffer stays the next one.
func TestShortBuffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		must(t, a.Send(ctx, []byte("hello")))
		var p [5]byte
		if _, err := b.Recv(ctx, p[:4]); !errors.Is(err, ErrShortBuffer) {
			t.Errorf("error %v", err)
		}
		if n, err := b.Recv(ctx, p[:]); err != nil || string(p[:n]) != "hello" {
			t.Errorf("%q (%v)", p[:n], err)
		}
		if err := a.Send(ctx, make([]byte, a.MaxMessage()+1)); !errors.Is(err, ErrTooLong) {
			t.Errorf("a message that is too long: %v", err)
		}
		must(t, a.Send(ctx, make([]byte, a.MaxMessage())))
	})
}

// When a side closes the connection, the other one receives what was sent
// before, and then io.EOF. A call that waits on the closed side returns an
// error.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		waits := make(chan error)
		go func() { _, err := a.Recv(ctx, nil); waits <- err }()
		for i := range 40 {
			must(t, a.Send(ctx, bytes.Repeat([]byte{byte(i)}, 100)))
		}
		closed := make(chan error)
		go func() { closed <- a.Close() }()
		for i := range 40 {
			m, err := b.RecvMsg(ctx)
			if err != nil || m.Bytes()[0] != byte(i) {
				t.Fatalf("message %d: %v", i, err)
			}
			m.Release()
		}
		if _, err := b.RecvMsg(ctx); err != io.EOF {
			t.Errorf("after the last message: %v", err)
		}
		must(t, <-closed)
		if err := <-waits; !errors.Is(err, net.ErrClosed) {
			t.Errorf("who waited for a message: %v", err)
		}
		<-b.Done()
		if err := b.Err(); !errors.Is(err, ErrPeerClosed) {
			t.Errorf("Err: %v", err)
		}
		if err := b.Send(ctx, []byte("x")); !errors.Is(err, ErrPeerClosed) {
			t.Errorf("Send: %v", err)
		}
		if err := a.Send(ctx, []byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Send after Close: %v", err)
		}
	})
}

// A context ends a wait, and nothing is lost by it.
func TestContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.RecvMsg(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Recv: %v", err)
		}
		// The peer reads nothing: at some time Send waits.
		sent := 0
		for ; sent < 1000; sent++ {
			if err := a.Send(ended, make([]byte, 4000)); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				break
			}
		}
		if sent == 1000 {
			t.Fatal("Send never waits")
		}
		ctx := testContext(t)
		must(t, a.Send(func() context.Context {
			go func() {
				for range sent {
					m, err := b.RecvMsg(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					m.Release()
				}
			}()
			return ctx
		}(), []byte("last")))
		_ = rand.Int
	})
}

// READ, WRITE and atomics on memory that the peer has registered.
func TestOneSided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		ctx := testContext(t)
		mem := make([]byte, 3<<20)
		mr := must1[*verbs.MR](t)(b.Register(mem, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite|verbs.RemoteAtomic))
		for _, n := range []int{1, 8, maxInline, maxInline + 1, stageMax, stageMax + 1, 3 << 20} {
			out, in := make([]byte, n), make([]byte, n)
			for i := range out {
				out[i] = byte(rand.Uint32())
			}
			must(t, a.Write(ctx, mr.RemoteAt(0), out))
			if !bytes.Equal(mem[:n], out) {
				t.Errorf("%d bytes are not written", n)
			}
			must(t, a.Read(ctx, mr.RemoteAt(0), in))
			if !bytes.Equal(in, out) {
				t.Errorf("%d bytes are not read", n)
			}
		}
		must(t, mr.Store64(8, 40))
		if old, err := a.FetchAdd(ctx, mr.RemoteAt(8), 2); old != 40 || err != nil {
			t.Errorf("FetchAdd: %d, %v", old, err)
		}
		if old, err := a.CompareSwap(ctx, mr.RemoteAt(8), 42, 7); old != 42 || err != nil {
			t.Errorf("CompareSwap: %d, %v", old, err)
		}
		if v, _ := mr.Load64(8); v != 7 {
			t.Errorf("the word is %d", v)
		}
		// Operations under way while messages pass.
		local := must1[*verbs.MR](t)(a.Register(make([]byte, 4096), verbs.LocalWrite))
		var ops []*Op
		for i := range 200 {
			ops = append(ops, a.Go(verbs.SendWR{Opcode: verbs.OpRead, SGList: []verbs.SGE{local.Slice(0, 4096)}, Remote: mr.RemoteAt(i * 4096)}))
		}
		must(t, a.Send(ctx, []byte("behind")))
		<-ops[199].Done()
		for _, op := range ops {
			must(t, op.Wait(ctx))
		}
		if op := a.Go(verbs.SendWR{Opcode: verbs.OpSend}); op.Err() == nil {
			t.Error("a SEND that takes a receive without credit is not refused")
		}
		// A key that does not fit ends the connection, and says so.
		bad := mr.RemoteAt(0)
		bad.RKey ^= 0x100
		if err := a.Write(ctx, bad, []byte("x")); !errors.Is(err, ErrRefused) {
			t.Errorf("a wrong key: %v", err)
		}
		<-a.Done()
		<-b.Done()
		if err := b.Err(); !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrPeerClosed) {
			t.Errorf("the other side: %v", err)
		}
	})
}

// A stream has no bounds of messages, and each side can end its half.
func TestStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{}).connect()
		out := bytes.Repeat([]byte("abcdefghijk"), 50_000)
		go func() {
			s := b.Stream()
			io.Copy(s, s) // an echo
			s.CloseWrite()
		}()
		s := a.Stream()
		go func() {
			if _, err := s.Write(out); err != nil {
				t.Error(err)
			}
			if err := s.CloseWrite(); err != nil {
				t.Error(err)
			}
		}()
		in, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(in, out) {
			t.Errorf("%d bytes come back, or others (%v)", len(in), err)
		}
		must(t, s.Close())
	})
}

// A foreign peer may send at once, before its answer has been looked at, and
// ask for an event with it: that waits until it is known that it is foreign.
func TestMessageBeforeTheAnswerIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{foreign: true})
		a, b := must1[*Conn](t)(newConn(p.a)), must1[*Conn](t)(newConn(p.b))
		a.core.link, b.core.link = &wire{c: a, peer: &b}, &wire{c: b, peer: &a}
		defer a.Close()
		defer b.Close()
		must(t, b.core.in.listen(baseWindow+spare))
		verbstest.Connect(t, a.core.qp, b.core.qp)
		a.core.greeted(hello{}, false)
		op := a.Go(verbs.SendWR{Opcode: verbs.OpSend, Solicited: true, Inline: []byte("early")})
		must(t, op.Wait(t.Context()))
		synctest.Wait()
		b.core.greeted(hello{}, false)
		var buf [10]byte
		if n, err := b.Recv(t.Context(), buf[:]); err != nil || string(buf[:n]) != "early" {
			t.Errorf("%q (%v)", buf[:n], err)
		}
	})
}
