package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// raw sends a SEND past all rules.
func raw(t *testing.T, c *Conn, op verbs.Opcode, imm uint32, p []byte) {
	t.Helper()
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if err := c.core.out.post(&verbs.SendWR{Opcode: op, Imm: imm, Inline: p, Signaled: true}, slot{}); err != nil {
		t.Error(err)
	}
}

// A peer that breaks the protocol loses its connection, and nothing else
// happens.
func TestPeersThatBreakTheProtocol(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*testing.T, *Conn){
		"no immediate data":     func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSend, 0, []byte("x")) },
		"unknown kind":          func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSendImm, immOf(kinds, 0), nil) },
		"packed, short header":  func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSendImm, immOf(kindPacked, 0), []byte{0}) },
		"packed, short message": func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSendImm, immOf(kindPacked, 0), []byte{0, 9, 1}) },
		"credits with bytes":    func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSendImm, immOf(kindCredit, 1), []byte{0}) },
		"short request":         func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSendImm, immOf(kindRequest, 0), []byte{1, 0}) },
		"answer not asked for":  func(t *testing.T, c *Conn) { raw(t, c, verbs.OpSendImm, immOf(kindReply, 0), make([]byte, 8)) },
		"answer of half an entry": func(t *testing.T, c *Conn) {
			raw(t, c, verbs.OpSendImm, immOf(kindReply, 0), []byte{1, 0, 0, 1, 0, 1, 0, 0, 7})
		},
		"too many messages": func(t *testing.T, c *Conn) {
			for range baseWindow + 1 {
				raw(t, c, verbs.OpSendImm, immOf(kindMessage, 0), []byte("x"))
			}
		},
		"too many credits": func(t *testing.T, c *Conn) {
			for range 20 {
				raw(t, c, verbs.OpSendImm, immOf(kindCredit, 1<<16-1), nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{exports: map[string]Region{"r": {Size: 4096}}})
				ctx := testContext(t)
				bad, victim := p.connect()
				do(t, bad)
				// Messages before the fault may still
				// come, but not for ever.
				var err error
				var kept []Message
				for range 4 {
					var m Message
					if m, err = victim.RecvMsg(ctx); err != nil {
						break
					}
					kept = append(kept, m)
				}
				if !errors.Is(err, ErrProtocol) && !errors.Is(victim.Err(), ErrProtocol) {
					t.Errorf("the victim gets %v", err)
				}
				for _, m := range kept {
					m.Release() // also when the connection is over
				}
				<-bad.Done()
				a, b := p.connect()
				must(t, a.Send(ctx, []byte("still here")))
				var buf [20]byte
				if n, err := b.Recv(ctx, buf[:]); err != nil || string(buf[:n]) != "still here" {
					t.Errorf("another connection: %q (%v)", buf[:n], err)
				}
			})
		})
	}
}

// A message that is longer than this side has said is refused by the queue
// pair.
func TestOversizedMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{tune: tuning{size: 1024}})
		a, b := p.connect()
		big := must1[*verbs.MR](t)(a.Register(make([]byte, 4096), 0))
		a.core.mu.Lock()
		must(t, a.core.out.post(&verbs.SendWR{Opcode: verbs.OpSendImm, SGList: []verbs.SGE{big.All()}, Signaled: true}, slot{}))
		a.core.mu.Unlock()
		if _, err := b.RecvMsg(testContext(t)); !errors.Is(err, ErrProtocol) {
			t.Errorf("error %v", err)
		}
	})
}

// A client that floods the directory is answered as fast as it reads answers,
// even when no goroutine on the other side looks at the connection; it cannot
// make this side keep more than its window.
func TestDirectoryFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{exports: map[string]Region{"r": {Size: 4096}}}).connect()
		ctx := testContext(t)
		errs := make(chan error)
		const askers, each = 8, 100
		for range askers {
			go func() {
				for i := range each {
					name := []string{"r", "unknown"}[i%2]
					if r, err := a.Region(ctx, name); (err == nil) != (name == "r") || err == nil && r.Size() != 4096 {
						errs <- fmt.Errorf("region %q: %w", name, err)
						return
					}
				}
				errs <- nil
			}()
		}
		for range askers {
			must(t, <-errs)
		}
		b.core.mu.Lock()
		defer b.core.mu.Unlock()
		if n := len(b.core.in.requests); n > baseWindow {
			t.Errorf("%d requests are kept", n)
		}
	})
}

// A directory that lies is a broken protocol, and no panic.
func FuzzWire(f *testing.F) {
	h := hello{regions: true, credits: 2, size: 4096, user: []byte("user")}
	f.Add(h.encode())
	f.Add((&dirRequest{dirLookup, 7, "name"}).encode())
	f.Add((&dirReply{op: dirList, tag: 7, entries: []dirEntry{{addr: 1, size: 2, rkey: 3, rights: 1, name: "n"}}}).encode(dirReplyMax))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok, err := parseHello(b); ok && err == nil {
			again, ok, err := parseHello(h.encode())
			if !ok || err != nil || again.credits != h.credits || again.size != h.size || again.regions != h.regions || !bytes.Equal(again.user, h.user) {
				t.Errorf("%+v becomes %+v (%v)", h, again, err)
			}
		}
		if r, err := parseDirRequest(b); err == nil {
			if again, err := parseDirRequest(r.encode()); err != nil || again != r {
				t.Errorf("%+v becomes %+v (%v)", r, again, err)
			}
		}
		if r, err := parseDirReply(b); err == nil {
			if again, err := parseDirReply(r.encode(1 << 30)); err != nil || len(again.entries) != len(r.entries) || again.tag != r.tag {
				t.Errorf("%+v becomes %+v (%v)", r, again, err)
			}
		}
		for rest := b; len(rest) > 0; {
			m, after, err := nextPacked(rest)
			if err != nil {
				break
			}
			if len(m)+packHeader+len(after) != len(rest) {
				t.Fatal("bytes are gone")
			}
			rest = after
		}
	})
}

// A peer that falls silent is noticed by the keepalive, although neither side
// sends: Done is closed, and calls that wait for a message return an error.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keepAlive = 10 * time.Second
		p := newPair(t, pairConfig{tune: tuning{keepAlive: keepAlive}})
		a, b := p.connect()
		waits := make(chan error)
		go func() { _, err := b.RecvMsg(context.Background()); waits <- err }()
		go func() { _, err := a.RecvMsg(context.Background()); waits <- err }()
		time.Sleep(10 * keepAlive)
		if a.Err() != nil || b.Err() != nil {
			t.Fatalf("idle connections end: %v, %v", a.Err(), b.Err())
		}
		if n := a.core.qp.Stats().SendDone; n < 3 {
			t.Errorf("%d keepalives in ten times their time", n)
		}
		must(t, a.Write(t.Context(), verbs.RemoteAddr{}, nil)) // which the peer acknowledges
		p.ports[0].Cut()
		cut := time.Now()
		<-a.Done()
		if took := time.Since(cut); took < keepAlive/2 || took > keepAlive+2*time.Second {
			t.Errorf("a peer that falls silent after a sign is noticed after %v", took)
		}
		<-b.Done()
		for range 2 {
			if err := <-waits; !errors.Is(err, ErrPeerGone) {
				t.Errorf("who waited: %v", err)
			}
		}
	})
}

// A context that ends in the middle of a transfer from or to the caller's
// memory: when the call returns the device does not touch that memory any more.
// A short one is left, and the connection goes on.
func TestContextInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		a, b := p.connect()
		mr := must1[*verbs.MR](t)(b.Register(make([]byte, 16<<20), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite|verbs.RemoteAtomic))
		for name, do := range map[string]func(context.Context) error{
			"read":   func(ctx context.Context) error { return a.Read(ctx, mr.RemoteAt(0), make([]byte, 8)) },
			"write":  func(ctx context.Context) error { return a.Write(ctx, mr.RemoteAt(0), make([]byte, 8)) },
			"atomic": func(ctx context.Context) error { _, err := a.FetchAdd(ctx, mr.RemoteAt(0), 0); return err },
		} {
			p.ports[1].Cut()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			p.ports[1].Plug()
			if err := do(context.Background()); err != nil {
				t.Errorf("%s afterwards: %v", name, err)
			}
		}
		// A long one that comes to its end soon is waited for.
		buf := make([]byte, 16<<20)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := a.Read(ctx, mr.RemoteAt(0), buf); !errors.Is(err, context.Canceled) || a.Err() != nil {
			t.Errorf("a long read: %v, %v", err, a.Err())
		}
		// One that does not ends the connection.
		ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		p.ports[1].Cut()
		if err := a.Read(ctx, mr.RemoteAt(0), buf); !errors.Is(err, ErrTransfer) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a long read without a peer: %v", err)
		}
		a.core.mu.Lock()
		if a.core.out.outstanding() != 0 {
			t.Error("requests are outstanding when the call has returned")
		}
		a.core.mu.Unlock()
		p.ports[1].Plug()
	})
}

// In the steady state nothing allocates.
func TestAllocations(t *testing.T) { // not parallel: it counts
	if race.Enabled {
		t.Skip("the race detector has pools drop what is put into them: run it without -race")
	}
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, pairConfig{tune: tuning{size: 128 << 10}, devices: verbstest.Config{}}).connect()
		ctx := testContext(t)
		mr := must1[*verbs.MR](t)(b.Register(make([]byte, 1<<20), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite|verbs.RemoteAtomic))
		buf := make([]byte, 128<<10)
		message := func(n int) func() {
			return func() {
				must(t, a.Send(ctx, buf[:n]))
				must(t, drop(b.RecvMsg(ctx)))
				must(t, b.Send(ctx, buf[:n]))
				must(t, drop(a.RecvMsg(ctx)))
			}
		}
		for name, f := range map[string]func(){
			"8 bytes": message(8), "4 KiB": message(4096), "128 KiB": message(128 << 10),
			"read 8":      func() { must(t, a.Read(ctx, mr.RemoteAt(0), buf[:8])) },
			"read 64 KiB": func() { must(t, a.Read(ctx, mr.RemoteAt(0), buf[:64<<10])) },
			"write 8":     func() { must(t, a.Write(ctx, mr.RemoteAt(0), buf[:8])) },
			"fetch add":   func() { must1[uint64](t)(a.FetchAdd(ctx, mr.RemoteAt(0), 1)) },
		} {
			for range 50 {
				f()
			}
			// The goroutines of the devices, and a collection that
			// empties the pools, may count.
			if n := testing.AllocsPerRun(200, f); n >= 1 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	})
}

func drop(m Message, err error) error {
	if err == nil {
		m.Release()
	}
	return err
}

// Connections cost little, and give everything back.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		ctx := testContext(t)
		const n = 300
		for range 2 {
			var conns []*Conn
			for i := range n {
				a, b := p.connect()
				conns = append(conns, a, b)
				if i%10 == 0 {
					must(t, a.Send(ctx, []byte("hello")))
					must(t, drop(b.RecvMsg(ctx)))
				}
			}
			for _, c := range conns {
				must(t, c.Close())
			}
		}
		for _, h := range []*hub{p.a, p.b} {
			h.mu.Lock()
			free := 0
			for b := h.free; b != nil; b = b.next {
				free++
			}
			if len(h.conns) != 0 || free != h.buffers || h.extra != min(max(busyBytes/h.size, 16), 4096) {
				t.Errorf("%d connections are left; %d of %d buffers are free; extra %d", len(h.conns), free, h.buffers, h.extra)
			}
			if most := 2 * n * (baseWindow + spare + 2); h.buffers > most {
				t.Errorf("%d buffers, more than %d", h.buffers, most)
			}
			h.mu.Unlock()
		}
	})
}
