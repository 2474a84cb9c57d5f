package cm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

func welcome(*cm.Greeting) (cm.AcceptConfig, error) {
	return cm.AcceptConfig{PrivateData: []byte("welcome")}, nil
}

// adopt makes the queue pair of a request that the listener has answered, with
// receives posted, and accepts it.
func (h *host) adopt(r *cm.Request) (*cm.Conn, error) {
	h.t.Helper()
	q, err := h.pd.CreateQP(verbs.QPConfig{SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 16, Number: r.QPN()})
	must(h.t, err)
	must(h.t, q.Init())
	for i := range 8 {
		must(h.t, q.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{h.mr.Slice(1<<15+i<<10, 1<<10)}}))
	}
	return r.Accept(h.context(), q, cm.AcceptConfig{})
}

// A listener that greets answers by itself. What the peer sends before the
// program has made a queue pair is not lost, and nothing is sent again.
func TestGreet(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{})
	l.Greet(welcome)
	q := client.qp(verbs.RC)
	c, err := cm.Dial(client.context(), q, addr, cm.DialConfig{PrivateData: []byte("me")})
	must(t, err)
	if got := string(c.PrivateData()[:7]); got != "welcome" {
		t.Errorf("the listener says %q", got)
	}
	client.send(q, "early")
	r, err := l.Accept(server.context())
	must(t, err)
	if r.QPN() == 0 || r.QPN() != c.Params().QPN || string(r.PrivateData()[:2]) != "me" {
		t.Errorf("%v, %q; the client has %v", r.QPN(), r.PrivateData(), c.Params().QPN)
	}
	s, err := server.adopt(r)
	must(t, err)
	if got := server.message(); got != "early" {
		t.Errorf("%q", got)
	}
	server.send(s.QP(), "answer")
	if got := client.message(); got != "answer" {
		t.Errorf("%q", got)
	}
	must(t, c.Close())
	wantErr(t, "the end", s.Wait(server.context()), cm.ErrDisconnected)
}

// A program that answers a message as soon as it has it can do so: nothing
// comes before the queue pair is in RTS.
func TestGreetedCanAnswerAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		l, addr := server.listen(cm.ListenConfig{})
		l.Greet(welcome)
		q := client.qp(verbs.RC)
		c, err := cm.Dial(client.context(), q, addr, cm.DialConfig{})
		must(t, err)
		client.send(q, "early")
		r, err := l.Accept(server.context())
		must(t, err)
		s, err := server.pd.CreateQP(verbs.QPConfig{SendCQ: server.cq, RecvCQ: server.cq, MaxSendWR: 16, MaxRecvWR: 16, Number: r.QPN()})
		must(t, err)
		must(t, s.Init())
		must(t, s.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{server.mr.Slice(0, 1<<10)}}))
		must(t, s.Modify(&verbs.Attr{State: verbs.StateRTR, AV: verbs.AddressVector{DGID: client.dev.Addr()}, PathMTU: verbs.MTU1024,
			DestQPN: q.QPN(), RQPSN: c.Params().PSN, MaxDestRdAtomic: 1}, verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|
			verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer))
		synctest.Wait()
		var wc [1]verbs.WC
		if server.cq.Poll(wc[:]) != 0 {
			t.Error("a message has come in RTR")
		}
		must(t, c.Close())
	})
}

// What a Greeter refuses is rejected, and Accept never returns it.
func TestGreetRefuses(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{})
	answer := errors.New("not you")
	l.Greet(func(g *cm.Greeting) (cm.AcceptConfig, error) {
		if g.Remote.Addr() != client.dev.Addr() {
			t.Errorf("from %v", g.Remote)
		}
		return cm.AcceptConfig{}, answer
	})
	_, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
	if r := wantRejected(t, "a refused dial", err, cm.ReasonConsumer); string(r.PrivateData[:7]) != "not you" {
		t.Errorf("%q", r.PrivateData)
	}
	answer = fmt.Errorf("full: %w", &cm.RejectedError{Reason: cm.ReasonNoResources, PrivateData: []byte("full")})
	_, err = cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
	wantRejected(t, "a dial without room", err, cm.ReasonNoResources)
	answer = &cm.RejectedError{} // 0 is no reason
	_, err = cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
	wantRejected(t, "a dial that is refused for no reason", err, cm.ReasonConsumer)
	answer = cm.ErrUndecided // the program decides about this one
	asks(t, client, server, l, addr)
	l.Greet(func(*cm.Greeting) (cm.AcceptConfig, error) {
		return cm.AcceptConfig{PrivateData: make([]byte, cm.MaxAcceptPrivate+1)}, nil
	})
	_, err = cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
	wantRejected(t, "a dial that is told too much", err, cm.ReasonConsumer)
	l.Greet(nil) // and again about all
	asks(t, client, server, l, addr)
}

// asks checks that a request is the program's to reject.
func asks(t *testing.T, client, server *host, l *cm.Listener, addr netip.AddrPort) {
	t.Helper()
	go func() {
		if r, err := l.Accept(server.context()); err == nil {
			if r.QPN() != 0 {
				t.Error("it was answered")
			}
			r.Reject([]byte("I"))
		}
	}()
	_, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
	wantRejected(t, "a dial that the program rejects", err, cm.ReasonConsumer)
}

// A connection that ends before the program has made its queue pair, by
// whichever side, leaves nothing.
func TestGreetedAndGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t)
		l, addr := server.listen(cm.ListenConfig{})
		l.Greet(welcome)
		dial := func() *cm.Conn {
			c, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
			must(t, err)
			return c
		}
		gone := dial()
		must(t, gone.Close())
		synctest.Wait()
		r, err := l.Accept(server.context())
		must(t, err)
		_, err = server.adopt(r)
		wantErr(t, "a connection that has come and gone", err, cm.ErrGone)
		must(t, dial().Close()) // the program does not accept it
		early := dial()
		for range 2 {
			r, err = l.Accept(server.context())
			must(t, err)
		}
		must(t, early.Close())
		synctest.Wait()
		_, err = server.adopt(r)
		wantErr(t, "a connection that has ended", err, cm.ErrGone)
		declined := dial()
		r, err = l.Accept(server.context())
		must(t, err)
		must(t, r.Reject(nil))
		wantErr(t, "one that is declined", declined.Wait(client.context()), cm.ErrDisconnected)
		waiting := dial()
		synctest.Wait()
		must(t, l.Close())
		wantErr(t, "one of a listener that is closed", waiting.Wait(client.context()), cm.ErrDisconnected)
		time.Sleep(time.Minute)
		if n := cm.Held(server.dev); n != 0 {
			t.Errorf("%d numbers are held", n)
		}
		if s := cm.ReadStats(server.dev); s.Connections != 0 || s.HalfOpen != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Beside 48,000 forged REQs a second from 16 sources an honest dial is answered
// when it has asked twice at most. The program never hears of the forged
// ones, no queue pair is made for them, and nothing is left of them later. In
// virtual time.
func TestGreetInAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sources, perMilli, millis = 16, 3, 450
		addrs := []string{"192.0.2.1", "192.0.2.2"}
		for i := range sources {
			addrs = append(addrs, fmt.Sprintf("198.51.100.%d", i+1))
		}
		hosts := network(t, fabric.Config{}, addrs...)
		client, server := hosts[0], hosts[1]
		l, addr := server.listen(cm.ListenConfig{})
		l.Greet(welcome)
		end := time.Now().Add(millis * time.Millisecond)
		flooded := make(chan int, sources)
		for i, h := range hosts[2:] {
			f := newFlooder(h, addr, uint64(i))
			go func() {
				for time.Now().Before(end) {
					f.burst(perMilli)
					time.Sleep(time.Millisecond)
				}
				flooded <- f.sent
			}()
		}
		time.Sleep(300 * time.Millisecond)
		for range 10 {
			ctx, stop := context.WithTimeout(t.Context(), 251*time.Millisecond)
			c, err := cm.Dial(ctx, client.qp(verbs.RC), addr, cm.DialConfig{})
			must(t, err)
			stop()
			r, err := l.Accept(server.context())
			must(t, err)
			if r.RemoteAddr().(*cm.Addr).Addr() != client.dev.Addr() {
				t.Error("the program hears of a forged request")
			}
			s, err := server.adopt(r)
			must(t, err)
			must(t, c.Close())
			wantErr(t, "the end", s.Wait(server.context()), cm.ErrDisconnected)
			must(t, s.QP().Close())
		}
		if n := server.dev.Stats().QPs; n != 1 { // that of the connection manager
			t.Errorf("there are %d queue pairs", n)
		}
		sent := 0
		for range sources {
			sent += <-flooded
		}
		if sent < sources*perMilli*millis*9/10 || cm.Held(server.dev) < sent/2 {
			t.Errorf("the flood had only %d requests, %d numbers are held", sent, cm.Held(server.dev))
		}
		time.Sleep(30 * time.Second)
		if s := cm.ReadStats(server.dev); s.HalfOpen != 0 || cm.Held(server.dev) != 0 {
			t.Errorf("after the flood there are %d half-open requests and %d numbers", s.HalfOpen, cm.Held(server.dev))
		}
	})
}

// While a device closes it accepts nothing more: a listener that greets
// rejects requests, as others do.
func TestGreetWhileTheDeviceCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2", "192.0.2.3")
		client, server := hosts[0], hosts[1]
		plain, at := server.listen(cm.ListenConfig{})
		greets, addr := server.listen(cm.ListenConfig{})
		greets.Greet(welcome)
		newFlooder(hosts[2], at, 1).burst(1) // it never answers the REP: Close waits a moment for it
		r, err := plain.Accept(server.context())
		must(t, err)
		_, err = r.Accept(server.context(), server.qp(verbs.RC), cm.AcceptConfig{})
		must(t, err)
		closed := make(chan struct{})
		go func() {
			server.dev.Close()
			close(closed)
		}()
		time.Sleep(50 * time.Millisecond)
		select {
		case <-closed:
			t.Error("it is closed already")
		default:
		}
		_, err = cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
		if rejected := (*cm.RejectedError)(nil); !errors.As(err, &rejected) {
			t.Errorf("a dial meanwhile: %v", err)
		}
		<-closed
	})
}
