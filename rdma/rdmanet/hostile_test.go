package rdmanet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// A peer that does not keep to the protocol loses its connection, at once, and
// harms no other connection.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	imm := func(imm uint32, payload string) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.OpWriteImm, Imm: imm, Inline: []byte(payload)}
	}
	for why, wr := range map[string]verbs.SendWR{
		"more bytes than it wrote":    imm(rsocket.Imm(rsocket.OpData, 1000), "x"),
		"more bytes than there are":   imm(rsocket.Imm(rsocket.OpData, rsocket.MaxValue), ""),
		"an unknown kind":             imm(rsocket.Imm(3, 0), ""),
		"an unknown control code":     imm(rsocket.Imm(rsocket.OpControl, 77), ""),
		"a map that was not offered":  imm(rsocket.Imm(rsocket.OpIOMap, 0), ""),
		"half a target":               imm(rsocket.Imm(rsocket.OpSGL, 9), "12345678"),
		"a message by SEND":           {Opcode: verbs.OpSend},
		"a WRITE outside of the ring": {Opcode: verbs.OpWriteImm, Remote: verbs.RemoteAddr{Addr: 1, RKey: 1}, Inline: []byte("x")},
		"a READ":                      {Opcode: verbs.OpRead},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t)
				x, y := connect(t, a, b, Options{})
				if wr.Remote == (verbs.RemoteAddr{}) && len(wr.Inline) > 0 {
					block := y.ep.block(y.opts)
					wr.Remote = verbs.RemoteAddr{Addr: block.Ring.Addr, RKey: verbs.Key(block.Ring.Key)}
				}
				if wr.Opcode == verbs.OpRead {
					wr.SGList, wr.Remote = []verbs.SGE{x.ep.ring.Slice(0, 8)}, y.ep.ring.RemoteAt(0)
				}
				if err := x.ep.qp.PostSend(wr); err != nil {
					t.Fatal(err)
				}
				_, err := y.Read(make([]byte, 10))
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the reader gets %v", err)
				}
				if _, err := y.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the writer gets %v", err)
				}
				if err := y.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A request for a connection that carries something other than a block is
// rejected with the reason; a dialer that gets such an answer does not go on.
func TestForgedBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, d := listening(t, Options{})
		accepted := make(chan error, 1)
		go func() {
			_, err := ln.Accept()
			accepted <- err
		}()
		for want, change := range map[string]func([]byte) []byte{
			"version 9":    func(p []byte) []byte { p[0] = 9; return p },
			"0 credits":    func(p []byte) []byte { p[2], p[3] = 0, 0; return p },
			"slots":        func(p []byte) []byte { p[20] = 0xff; return p },
			"beyond":       func(p []byte) []byte { copy(p[24:], "\xff\xff\xff\xff\xff\xff\xff\xff"); return p },
			"version 0, t": func(p []byte) []byte { return nil },
		} {
			o, _ := Options{}.withDefaults()
			ep := endpointOf(t, d.Device, o)
			defer ep.close()
			block := ep.block(o)
			_, err := cm.Dial(t.Context(), ep.qp, ln.cm.Addr().(*cm.Addr).AddrPort, cm.DialConfig{PrivateData: change(block.AppendTo(nil))})
			var rejected *cm.RejectedError
			if !errors.As(err, &rejected) || !strings.Contains(string(rejected.PrivateData), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		ln.Close()
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returns %v", err)
		}
	})
}

func TestPeerThatSpeaksAnotherProtocol(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, d := listening(t, Options{})
		ln.cm.Greet(nil)
		go func() {
			r, err := ln.cm.Accept(t.Context())
			if err != nil {
				return
			}
			o, _ := Options{}.withDefaults()
			ep, err := newEndpoint(ln.Device(), o, 0, promise{})
			if err == nil {
				defer ep.close()
				r.Accept(t.Context(), ep.qp, cm.AcceptConfig{PrivateData: []byte("something else")})
			}
			<-t.Context().Done()
		}()
		if _, err := d.DialContext(t.Context(), "rdma", ln.Addr().String()); !errors.Is(err, rsocket.ErrBlock) {
			t.Errorf("the error is %v", err)
		}
	})
}

// A dead peer is noticed: by the retries, if this side writes, and by the
// keepalive, if it only reads.
func TestDeadPeer(t *testing.T) {
	t.Parallel()
	for _, writes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, q := verbstest.NewPair(t)
			x, _ := connect(t, p.Dev, q.Dev, Options{KeepAlive: 10 * time.Second})
			q.Port.Cut()
			if writes {
				if _, err := x.Write([]byte("hello")); err != nil {
					t.Error(err)
				}
			}
			begin := time.Now()
			_, err := x.Read(make([]byte, 1))
			if !errors.Is(err, syscall.ECONNRESET) || !errors.Is(err, verbs.StatusRetryExcErr) {
				t.Errorf("writes %v: the error is %v", writes, err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("writes %v: after %v", writes, took)
			}
			x.Close()
		})
	}
}

// Close waits for what was written, and not for ever.
func TestLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, q := verbstest.NewPair(t)
		x, y := connect(t, p.Dev, q.Dev, Options{})
		q.Port.Cut()
		time.AfterFunc(200*time.Millisecond, q.Port.Plug)
		x.Write([]byte("late"))
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(y); string(got) != "late" || err != nil {
			t.Errorf("%q, %v", got, err)
		}

		x, _ = connect(t, p.Dev, q.Dev, Options{Linger: 100 * time.Millisecond})
		q.Port.Cut()
		x.Write([]byte("never"))
		begin := time.Now()
		if err := x.Close(); !errors.Is(err, errLinger) || time.Since(begin) > time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		time.Sleep(time.Minute) // of virtual time: the retries end
	})
}

// A stream survives loss, and a slow reader holds the writer up without an RNR.
func TestLossAndSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, q := verbstest.NewPair(t)
		x, y := connect(t, p.Dev, q.Dev, Options{RecvBuffer: 8 << 10, Credits: 4})
		p.Port.SetLoss(0.02)
		want := pattern(1 << 20)
		go func() {
			if n, err := x.Write(want); n != len(want) || err != nil {
				t.Errorf("wrote %d: %v", n, err)
			}
			x.CloseWrite()
		}()
		buf := make([]byte, 3000)
		var got []byte
		for {
			time.Sleep(time.Millisecond)
			n, err := y.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if string(got) != string(want) {
			t.Errorf("%d bytes of %d", len(got), len(want))
		}
		if s := y.QP().Stats(); s.RNRSent != 0 {
			t.Errorf("%d RNR NAKs", s.RNRSent)
		}
	})
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// Half close: what was written before is read, then io.EOF; the other direction
// goes on. Everything after the end has an error that programs know.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		x, y := connect(t, a, b, Options{})
		x.Write([]byte("question"))
		if err := x.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
		if got, err := io.ReadAll(y); string(got) != "question" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if n, err := y.Write([]byte("answer")); n != 6 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		y.Close()
		if got, err := io.ReadAll(x); string(got) != "answer" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		for name, f := range map[string]func() error{
			"Close":      y.Close,
			"CloseWrite": y.CloseWrite,
			"Read":       func() error { _, err := y.Read(make([]byte, 1)); return err },
			"Write":      func() error { _, err := y.Write(make([]byte, 1)); return err },
			"deadline":   func() error { return y.SetDeadline(time.Time{}) },
			"no bytes":   func() error { _, err := y.Read(nil); return err },
		} {
			if err := f(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
}

// A Write that a slow peer holds up ends with CloseWrite, Close and its
// deadline.
func TestBlockedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		for name, tt := range map[string]struct {
			end  func(*Conn)
			want error
		}{
			"CloseWrite": {func(c *Conn) { c.CloseWrite() }, syscall.EPIPE},
			"Close":      {func(c *Conn) { c.Close() }, net.ErrClosed},
			"deadline":   {func(c *Conn) { c.SetWriteDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		} {
			x, _ := connect(t, a, b, Options{RecvBuffer: 8 << 10})
			done := make(chan error, 1)
			go func() {
				n, err := x.Write(make([]byte, 1<<20))
				if n == 0 || n > 16<<10 {
					t.Errorf("%s: %d bytes were written", name, n)
				}
				done <- err
			}()
			synctest.Wait() // until it waits
			tt.end(x)
			if err := <-done; !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	a, _ := verbstest.Devices(t)
	for want, f := range map[string]func() error{
		"RecvBuffer is 1; 4096 to": func() error {
			_, err := (&ListenConfig{Device: a, Options: Options{RecvBuffer: 1}}).Listen(t.Context(), "rdma", "192.0.2.1:0")
			return err
		},
		"Credits is 100000": func() error {
			_, err := (&Dialer{Device: a, Options: Options{Credits: 100000}}).DialContext(t.Context(), "rdma", "192.0.2.1:1")
			return err
		},
		"unknown network udp":  func() error { _, err := Dial(t.Context(), "udp", "192.0.2.1:1"); return err },
		"missing port":         func() error { _, err := Dial(t.Context(), "rdma", "192.0.2.1"); return err },
		"fits the network":     func() error { _, err := Dial(t.Context(), "rdma6", "192.0.2.1:1"); return err },
		"no address that fits": func() error { _, err := Listen("rdma6", "127.0.0.1:7471"); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// late is a context that ends at the second look.
type late struct {
	context.Context
	looked atomic.Bool
}

func (l *late) Err() error {
	if l.looked.Swap(true) {
		return context.Canceled
	}
	return nil
}

// An AcceptContext whose context ends when it has a connection already ends
// that: otherwise the peer would wait for minutes.
func TestAcceptThatIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, d := listening(t, Options{})
		c, err := d.DialContext(t.Context(), "rdma", ln.Addr().String())
		must(t, err)
		defer c.Close()
		if _, err := ln.AcceptContext(&late{Context: t.Context()}); !errors.Is(err, context.Canceled) {
			t.Errorf("accept: %v", err)
		}
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})
}
