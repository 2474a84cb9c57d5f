package worldtest_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// station is a host with IDs of the connection manager, and what a queue pair
// needs.
type station struct {
	t   *testing.T
	dev *verbs.Device
	ch  *cm.EventChannel
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

func newStation(t *testing.T, w *worldtest.World, host int) *station {
	t.Helper()
	s := &station{t: t, dev: w.Device(host)}
	s.ch = cm.NewEventChannel(cm.WithDevices(s.dev))
	t.Cleanup(func() { s.ch.Close() })
	var err error
	s.pd, err = s.dev.AllocPD()
	must(t, err)
	s.cq, err = s.dev.CreateCQ(16)
	must(t, err)
	s.mr, err = s.pd.RegisterMemory(make([]byte, 4096), verbs.LocalWrite)
	must(t, err)
	return s
}

// want takes the next event, which must be of a type.
func (s *station) want(typ cm.EventType) *cm.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	e, err := s.ch.Get(ctx)
	must(s.t, err)
	if e.Type != typ {
		s.t.Fatalf("event %v; want %v", e, typ)
	}
	return e
}

func (s *station) createQP(id *cm.ID) *verbs.QP {
	s.t.Helper()
	q, err := id.CreateQP(s.pd, verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 4, MaxRecvWR: 4})
	must(s.t, err)
	must(s.t, q.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{s.mr.Slice(0, 1024)}}))
	return q
}

// resolved makes an ID with a queue pair that can connect.
func (s *station) resolved(to netip.AddrPort) *cm.ID {
	s.t.Helper()
	id, err := s.ch.CreateID(cm.TCP, nil)
	must(s.t, err)
	must(s.t, id.ResolveAddr(netip.AddrPort{}, to, 0))
	s.want(cm.EventAddrResolved)
	must(s.t, id.ResolveRoute(0))
	s.want(cm.EventRouteResolved)
	s.createQP(id)
	return id
}

// TestIDs has the life of a connection in the calls and events of librdmacm,
// waits by CQ.Chan, and a peer that falls silent.
func TestIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		client, server := newStation(t, w, 0), newStation(t, w, 3)
		listener, err := server.ch.CreateID(cm.TCP, nil)
		must(t, err)
		must(t, listener.BindAddr(netip.AddrPortFrom(server.dev.Addr(), 7471)))
		must(t, listener.Listen(0))

		id := client.resolved(listener.LocalAddr())
		must(t, id.Connect(&cm.ConnParam{PrivateData: []byte("hello"), RetryCount: 7, RNRRetryCount: 7}))
		request := server.want(cm.EventConnectRequest)
		if string(request.Conn.PrivateData[:5]) != "hello" {
			t.Errorf("the request has the private data %q", request.Conn.PrivateData)
		}
		server.createQP(request.ID)
		must(t, request.ID.Accept(nil))
		client.want(cm.EventEstablished)
		server.want(cm.EventEstablished)

		must(t, id.QP().PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, Inline: []byte("a message")}))
		if wc := <-server.cq.Chan(t.Context()); wc.Err() != nil || wc.ByteLen != 9 || string(server.mr.Bytes()[:9]) != "a message" {
			t.Errorf("the message: %+v, %q", wc, server.mr.Bytes()[:9])
		}

		must(t, id.Disconnect())
		server.want(cm.EventDisconnected)
		must(t, request.ID.Disconnect())
		client.want(cm.EventDisconnected)
		client.want(cm.EventTimewaitExit)
		server.want(cm.EventTimewaitExit)

		// The peer falls silent: the times are those of the protocol.
		id = client.resolved(listener.LocalAddr())
		w.SetCable(3, false)
		begin := w.Now()
		must(t, id.Connect(nil))
		client.want(cm.EventUnreachable)
		if took := w.Now() - begin; took < 5*time.Second || took > 5*time.Minute {
			t.Errorf("the peer is unreachable after %v", took)
		}
		for _, i := range []*cm.ID{id, listener, request.ID} {
			must(t, i.Close())
		}
	})
}

// TestConns is the same by Dial and Accept, with Done in a select.
func TestConns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		client, server := newStation(t, w, 0), newStation(t, w, 3)
		at := netip.AddrPortFrom(server.dev.Addr(), 7471)
		l, err := cm.Listen(server.dev, at, cm.ListenConfig{})
		must(t, err)
		qps := [2]*verbs.QP{}
		for i, s := range []*station{client, server} {
			qps[i], err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 4, MaxRecvWR: 4})
			must(t, err)
		}
		accepted := make(chan *cm.Conn, 1)
		go func() {
			defer close(accepted)
			r, err := l.Accept(t.Context())
			if err == nil {
				time.Sleep(3 * time.Second) // the client asks again meanwhile
				var c *cm.Conn
				if c, err = r.Accept(t.Context(), qps[1], cm.AcceptConfig{}); err == nil {
					accepted <- c
				}
			}
			must1(t, err)
		}()
		begin := w.Now()
		c, err := cm.Dial(t.Context(), qps[0], at, cm.DialConfig{})
		must(t, err)
		if took := w.Now() - begin; took < 3*time.Second || took > 10*time.Second {
			t.Errorf("the dial takes %v", took)
		}
		s, ok := <-accepted
		if !ok {
			return
		}
		go c.Close()
		select {
		case <-s.Done():
		case <-time.After(time.Minute):
			t.Error("the peer has not been told of the end")
		}
		must1(t, s.Close())
		must1(t, l.Close())
	})
}
