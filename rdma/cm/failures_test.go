package cm_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// bubble runs a test in virtual time, with two hosts on a network.
func bubble(t *testing.T, cfg fabric.Config, f func(t *testing.T, client, server *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, cfg, "192.0.2.1", "192.0.2.2")
		f(t, hosts[0], hosts[1])
	})
}

// Whatever the network loses, doubles or reorders, connections are made, carry
// a message each way, and end on both sides.
func TestLoss(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		cfg := fabric.Config{Seed: seed, Port: fabric.PortConfig{Delay: time.Millisecond, Loss: 0.25, Duplicate: 0.2, Reorder: 0.2, ReorderDelay: 5 * time.Millisecond}}
		bubble(t, cfg, func(t *testing.T, client, server *host) {
			for range 4 {
				a, b := connect(client, server, cm.DialConfig{})
				client.send(a.QP(), "ping")
				if m := server.message(); m != "ping" {
					t.Errorf("seed %d: the server got %q", seed, m)
				}
				server.send(b.QP(), "pong")
				if m := client.message(); m != "pong" {
					t.Errorf("seed %d: the client got %q", seed, m)
				}
				if err := b.Disconnect(server.context()); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				<-a.Done()
				wantErr(t, "the client's end", a.Err(), cm.ErrDisconnected)
				client.drain()
				server.drain()
			}
		})
	}
}

// drain takes all completions that there are.
func (h *host) drain() {
	synctest.Wait()
	var wc [64]verbs.WC
	for h.cq.Poll(wc[:]) > 0 {
	}
}

// A peer that is not there is unreachable after a minute, and nothing of the
// dial is left.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	bubble(t, fabric.Config{}, func(t *testing.T, client, server *host) {
		server.port.Cut()
		start := time.Now()
		_, err := cm.Dial(t.Context(), client.qp(verbs.RC), netip.AddrPortFrom(server.dev.Addr(), 7), cm.DialConfig{})
		wantErr(t, "Dial", err, cm.ErrUnreachable)
		wantErr(t, "Dial", err, os.ErrDeadlineExceeded)
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("after %v", took)
		}
		start = time.Now()
		_, err = cm.Dial(t.Context(), client.qp(verbs.RC), netip.AddrPortFrom(server.dev.Addr(), 7), cm.DialConfig{Retries: 2})
		wantErr(t, "Dial with 2 retries", err, cm.ErrUnreachable)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("with 2 retries after %v", took)
		}
		_, err = cm.Resolve(t.Context(), client.dev, netip.AddrPortFrom(server.dev.Addr(), 7), cm.ResolveConfig{})
		wantErr(t, "Resolve", err, cm.ErrUnreachable)
		// Where the context ends first, the error says what was waited
		// for.
		brief := func(call func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the peer has not answered") {
				t.Errorf("%v", err)
			}
		}
		brief(func(ctx context.Context) error {
			_, err := cm.Dial(ctx, client.qp(verbs.RC), netip.AddrPortFrom(server.dev.Addr(), 7), cm.DialConfig{})
			return err
		})
		brief(func(ctx context.Context) error {
			_, err := cm.Resolve(ctx, client.dev, netip.AddrPortFrom(server.dev.Addr(), 7), cm.ResolveConfig{})
			return err
		})
		if n := cm.IDs(client.dev); n != 0 {
			t.Errorf("%d IDs are left", n)
		}
	})
}

// A context ends a dial at once, and the listener learns that the dial was
// given up.
func TestDialContext(t *testing.T) {
	t.Parallel()
	bubble(t, fabric.Config{}, func(t *testing.T, client, server *host) {
		l, addr := server.listen(cm.ListenConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{})
		wantErr(t, "Dial", err, context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the dial took %v", took)
		}
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Accept(ctx)
		wantErr(t, "a request that was taken back", err, context.DeadlineExceeded)

		// The program has it in hand already.
		caused, cause := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		go func() {
			_, err := cm.Dial(caused, client.qp(verbs.RC), addr, cm.DialConfig{})
			wantErr(t, "Dial", err, mine)
		}()
		r, err := l.Accept(server.context())
		must(t, err)
		cause(mine)
		synctest.Wait()
		_, err = r.Accept(server.context(), server.qp(verbs.RC), cm.AcceptConfig{})
		wantErr(t, "accept what was taken back", err, cm.ErrGone)
		wantErr(t, "reject what was taken back", r.Reject(nil), cm.ErrGone)
		if n, m := cm.IDs(client.dev), cm.IDs(server.dev); n != 0 || m != 0 {
			t.Errorf("%d and %d IDs are left", n, m)
		}
	})
}

// Rejections: by the program, with words; because no program listens; for the
// wrong type; for a path MTU that the server's link does not carry.
func TestReject(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	ctx := client.context()
	l, addr := server.listen(cm.ListenConfig{})
	requests := make(chan *cm.Request, 8)
	go func() {
		for r, err := l.Accept(ctx); err == nil; r, err = l.Accept(ctx) {
			requests <- r
			if err := r.Reject([]byte("no")); err != nil {
				t.Error(err)
			}
			wantErr(t, "answer twice", r.Reject(nil), cm.ErrGone)
		}
	}()
	_, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{PrivateData: []byte("please")})
	r := wantRejected(t, "by the program", err, cm.ReasonConsumer)
	wantBytes(t, "its words", r.PrivateData, zeros("no", 148))
	_, err = cm.Dial(ctx, client.qp(verbs.RC), netip.AddrPortFrom(addr.Addr(), addr.Port()^1), cm.DialConfig{})
	wantRejected(t, "nothing listens", err, cm.ReasonInvalidService)
	_, err = cm.Dial(ctx, client.qp(verbs.UC), addr, cm.DialConfig{})
	wantRejected(t, "another type", err, cm.ReasonTransport)
	if n := len(requests); n != 1 {
		t.Errorf("the program has seen %d requests", n)
	}
	must(t, l.Close())
	_, err = cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{})
	wantRejected(t, "closed", err, cm.ReasonInvalidService)

	u, addr := server.listen(cm.ListenConfig{Space: cm.UDP})
	go func() {
		if r, err := u.Accept(ctx); err != nil || r.Reject([]byte("not you")) != nil {
			t.Error("reject a SIDR request:", err)
		}
	}()
	_, err = cm.Resolve(ctx, client.dev, addr, cm.ResolveConfig{})
	if status := (*cm.StatusError)(nil); !errors.As(err, &status) || status.Status != 2 || string(status.PrivateData[:7]) != "not you" {
		t.Errorf("a service that refuses: %v", err)
	}
	_, err = cm.Resolve(ctx, client.dev, netip.AddrPortFrom(addr.Addr(), addr.Port()^1), cm.ResolveConfig{})
	if status := (*cm.StatusError)(nil); !errors.As(err, &status) || status.Status != 1 {
		t.Errorf("nothing serves: %v", err)
	}
}

// A rejection without a word is repeated without ECE only where the peer is
// another software.
func TestRejectOnce(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	ctx := client.context()
	l, addr := server.listen(cm.ListenConfig{})
	var seen int
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r, err := l.Accept(ctx); err == nil; r, err = l.Accept(ctx) {
			seen++
			_ = r.Reject(nil)
		}
	}()
	_, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{})
	wantRejected(t, "by our own software", err, cm.ReasonConsumer)
	_, err = cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{ECE: cm.ECE{VendorID: 0x15b3}}) // the server does not know it, and does not mark its REJ
	wantRejected(t, "as by another software", err, cm.ReasonConsumer)
	must(t, l.Close())
	<-done
	if seen != 3 {
		t.Errorf("the server saw %d requests; want 1 and 2", seen)
	}
}

// The peer's device goes: the connection ends at once, for all calls that wait.
func TestDeviceCloses(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	a, b := connect(client, server, cm.DialConfig{})
	l, _ := client.listen(cm.ListenConfig{})
	client.send(a.QP(), "ping")
	server.message() // now the server knows that the client is ready
	server.dev.Close()
	<-a.Done()
	<-b.Done()
	wantErr(t, "the other side", a.Err(), cm.ErrDisconnected)
	wantErr(t, "this side", b.Err(), cm.ErrClosed)
	wantErr(t, "this side", b.Err(), net.ErrClosed)
	_, err := cm.Listen(server.dev, netip.AddrPort{}, cm.ListenConfig{})
	wantErr(t, "listen on a closed device", err, verbs.ErrClosed)
	must(t, b.Close())
	must(t, b.Disconnect(t.Context()))

	done := make(chan error)
	go func() {
		_, err := l.Accept(t.Context())
		done <- err
	}()
	go func() {
		_, err := cm.Dial(t.Context(), client.qp(verbs.RC), netip.MustParseAddrPort("192.0.2.9:7"), cm.DialConfig{})
		done <- err
	}()
	for cm.IDs(client.dev) < 1 { // until the dial is under way
		if err := client.context().Err(); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	client.dev.Close()
	for range 2 {
		if err := <-done; !errors.Is(err, net.ErrClosed) && !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a call when the device is closed: %v", err)
		}
	}
}

// The RTU never comes: the server's connection ends by itself.
func TestNoRTU(t *testing.T) {
	t.Parallel()
	bubble(t, fabric.Config{Port: fabric.PortConfig{Delay: time.Millisecond}}, func(t *testing.T, client, server *host) {
		l, addr := server.listen(cm.ListenConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{}) }()
		r, err := l.Accept(server.context())
		must(t, err)
		client.port.Cut()
		cancel()
		c, err := r.Accept(server.context(), server.qp(verbs.RC), cm.AcceptConfig{})
		must(t, err)
		start := time.Now()
		<-c.Done()
		wantErr(t, "the server's end", c.Err(), cm.ErrUnreachable)
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("after %v", took)
		}
		if s := c.QP().State(); s != verbs.StateErr {
			t.Errorf("the queue pair is in %v", s)
		}
		if n := cm.IDs(server.dev); n != 0 {
			t.Errorf("%d IDs are left", n)
		}
	})
}

// A peer that does not answer a DREQ: Disconnect says so, in bounded time.
func TestDisconnectFromTheDead(t *testing.T) {
	t.Parallel()
	bubble(t, fabric.Config{}, func(t *testing.T, client, server *host) {
		a, _ := connect(client, server, cm.DialConfig{})
		server.port.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, "Disconnect with a context", a.Disconnect(ctx), context.DeadlineExceeded)
		server.port.Plug()
		b, _ := connect(client, server, cm.DialConfig{})
		server.port.Cut()
		wantErr(t, "Disconnect", b.Disconnect(client.context()), cm.ErrUnreachable)
		<-b.Done()
	})
}

// Many dial at once, from several goroutines, and all ends are seen.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	ctx := client.context()
	l, addr := server.listen(cm.ListenConfig{})
	const dialers, each = 16, 8
	var wg sync.WaitGroup
	wg.Go(func() {
		for range dialers * each {
			r, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			wg.Go(func() {
				q, err := server.pd.CreateQP(verbs.QPConfig{SendCQ: server.cq, RecvCQ: server.cq, MaxSendWR: 2, MaxRecvWR: 2})
				if err != nil {
					t.Error(err)
					return
				}
				defer q.Close()
				c, err := r.Accept(ctx, q, cm.AcceptConfig{PrivateData: r.PrivateData()})
				if err != nil {
					t.Error(err)
					return
				}
				<-c.Done()
			})
		}
	})
	for i := range dialers {
		wg.Go(func() {
			for j := range each {
				q, err := client.pd.CreateQP(verbs.QPConfig{SendCQ: client.cq, RecvCQ: client.cq, MaxSendWR: 2, MaxRecvWR: 2})
				if err != nil {
					t.Error(err)
					return
				}
				c, err := cm.Dial(ctx, q, addr, cm.DialConfig{PrivateData: []byte{byte(i), byte(j)}})
				if err != nil {
					t.Error(err)
					return
				}
				if p := c.PrivateData(); p[0] != byte(i) || p[1] != byte(j) {
					t.Errorf("dialer %d/%d has the answer for %d/%d", i, j, p[0], p[1])
				}
				if j%2 == 0 {
					err = c.Close()
				} else {
					err = c.Disconnect(ctx)
				}
				if err != nil {
					t.Error(err)
				}
				q.Close()
			}
		})
	}
	wg.Wait()
}

// What programs ask for wrongly is refused at once, in words.
func TestMisuse(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	ctx := t.Context()
	l, addr := server.listen(cm.ListenConfig{})
	over, cancel := context.WithCancel(ctx)
	cancel()
	connected, _ := connect(client, server, cm.DialConfig{})
	dialWith := func(cfg cm.DialConfig) func() error {
		return func() error { _, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cfg); return err }
	}
	for what, try := range map[string]func() error{
		"no queue pair":     func() error { _, err := cm.Dial(ctx, nil, addr, cm.DialConfig{}); return err },
		"context":           func() error { _, err := cm.Dial(over, client.qp(verbs.RC), addr, cm.DialConfig{}); return err },
		"UD":                func() error { _, err := cm.Dial(ctx, client.qp(verbs.UD), addr, cm.DialConfig{}); return err },
		"connected already": func() error { _, err := cm.Dial(ctx, connected.QP(), addr, cm.DialConfig{}); return err },
		"no address": func() error {
			_, err := cm.Dial(ctx, client.qp(verbs.RC), netip.AddrPort{}, cm.DialConfig{})
			return err
		},
		"port 0": func() error {
			_, err := cm.Dial(ctx, client.qp(verbs.RC), netip.AddrPortFrom(addr.Addr(), 0), cm.DialConfig{})
			return err
		},
		"IPv6": func() error {
			_, err := cm.Dial(ctx, client.qp(verbs.RC), netip.MustParseAddrPort("[2001:db8::1]:7"), cm.DialConfig{})
			return err
		},
		"57 bytes": func() error {
			_, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{PrivateData: make([]byte, 57)})
			return err
		},
		"MTU": func() error { _, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{PathMTU: 9}); return err },
		"space": func() error {
			_, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{Space: 77})
			return err
		},
		"RetryCount":            dialWith(cm.DialConfig{RetryCount: verbs.Set(8)}),
		"RNRRetry":              dialWith(cm.DialConfig{RNRRetry: verbs.Set(8)}),
		"Retries":               dialWith(cm.DialConfig{Retries: 16}),
		"listen: no device":     func() error { _, err := cm.Listen(nil, addr, cm.ListenConfig{}); return err },
		"listen: other address": func() error { _, err := cm.Listen(client.dev, addr, cm.ListenConfig{}); return err },
		"listen: port in use":   func() error { _, err := cm.Listen(server.dev, addr, cm.ListenConfig{}); return err },
		"listen: type": func() error {
			_, err := cm.Listen(server.dev, netip.AddrPort{}, cm.ListenConfig{Type: verbs.GSI})
			return err
		},
		"listen: UD over TCP": func() error {
			_, err := cm.Listen(server.dev, netip.AddrPort{}, cm.ListenConfig{Type: verbs.UD, Space: cm.TCP})
			return err
		},
		"listen: RC over UDP": func() error {
			_, err := cm.Listen(server.dev, netip.AddrPort{}, cm.ListenConfig{Type: verbs.RC, Space: cm.UDP})
			return err
		},
		"accept: context":    func() error { _, err := l.Accept(over); return err },
		"resolve: TCP":       func() error { _, err := cm.Resolve(ctx, client.dev, addr, cm.ResolveConfig{Space: cm.TCP}); return err },
		"resolve: no device": func() error { _, err := cm.Resolve(ctx, nil, addr, cm.ResolveConfig{}); return err },
		"resolve: 181 bytes": func() error {
			_, err := cm.Resolve(ctx, client.dev, addr, cm.ResolveConfig{PrivateData: make([]byte, 181)})
			return err
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	wrong := make(chan struct{})
	go func() {
		defer close(wrong)
		r, err := l.Accept(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		for what, q := range map[string]*verbs.QP{"nil": nil, "of another device": client.qp(verbs.RC), "of another type": server.qp(verbs.UC)} {
			if _, err := r.Accept(ctx, q, cm.AcceptConfig{}); err == nil {
				t.Errorf("accepted with a queue pair %s", what)
			}
		}
		if _, err := r.Accept(ctx, server.qp(verbs.RC), cm.AcceptConfig{PrivateData: make([]byte, 197)}); err == nil {
			t.Error("197 bytes of private data")
		}
		if _, err := r.Accept(ctx, server.qp(verbs.RC), cm.AcceptConfig{RNRRetry: verbs.Set(8)}); err == nil {
			t.Error("8 repetitions")
		}
		_, err = r.Accept(ctx, server.qp(verbs.RC), cm.AcceptConfig{}) // nothing of it has answered the request
		if err != nil {
			t.Error(err)
		}
	}()
	c, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{})
	must(t, err)
	<-wrong
	must(t, c.Close())
}

// The device's program has the management queue pair itself.
func TestGSIInUse(t *testing.T) {
	t.Parallel()
	client, _ := pair(t)
	q, err := client.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: client.cq, RecvCQ: client.cq})
	must(t, err)
	_, err = cm.Listen(client.dev, netip.AddrPort{}, cm.ListenConfig{})
	wantErr(t, "Listen", err, verbs.ErrGSIInUse)
	must(t, q.Close())
	client.listen(cm.ListenConfig{}) // works now
}
