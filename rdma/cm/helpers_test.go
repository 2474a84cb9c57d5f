package cm_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// host is a device with one of everything, and its cable.
type host struct {
	t    testing.TB
	dev  *verbs.Device
	port *fabric.Port
	pd   *verbs.PD
	cq   *verbs.CQ
	mr   *verbs.MR
}

// network makes hosts on a network inside the process.
func network(t testing.TB, cfg fabric.Config, addrs ...string) []*host {
	t.Helper()
	sw := fabric.NewSwitch(cfg)
	var hosts []*host
	for _, a := range addrs {
		port, err := sw.Attach(netip.MustParseAddr(a))
		must(t, err)
		hosts = append(hosts, newHost(t, port))
	}
	return hosts
}

func newHost(t testing.TB, port *fabric.Port) *host {
	t.Helper()
	dev, err := verbs.OpenLink(port, verbs.Config{})
	must(t, err)
	h := newHostOn(t, dev)
	h.port = port
	return h
}

// newHostOn makes a host of a device, which it closes.
func newHostOn(t testing.TB, dev *verbs.Device) *host {
	t.Helper()
	t.Cleanup(func() { dev.Close() })
	h := &host{t: t, dev: dev}
	var err error
	h.pd, err = dev.AllocPD()
	must(t, err)
	h.cq, err = dev.CreateCQ(1024)
	must(t, err)
	h.mr, err = h.pd.RegisterMemory(make([]byte, 1<<16), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	must(t, err)
	return h
}

// pair makes two hosts on a perfect network.
func pair(t testing.TB) (client, server *host) {
	t.Helper()
	hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2")
	return hosts[0], hosts[1]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr checks that an error has a cause.
func wantErr(t testing.TB, what string, err, cause error) {
	t.Helper()
	if !errors.Is(err, cause) {
		t.Errorf("%s: %v; want %v", what, err, cause)
	}
}

func wantRejected(t testing.TB, what string, err error, reason cm.Reason) *cm.RejectedError {
	t.Helper()
	var r *cm.RejectedError
	if !errors.As(err, &r) || r.Reason != reason {
		t.Errorf("%s: %v; want it rejected: %v", what, err, reason)
		return &cm.RejectedError{}
	}
	return r
}

// context returns one that ends so late that only a hang meets it.
func (h *host) context() context.Context {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Minute)
	h.t.Cleanup(cancel)
	return ctx
}

// qp makes a queue pair, with receives posted: 1 KiB each, from the middle of
// the memory on.
func (h *host) qp(typ verbs.QPType) *verbs.QP {
	h.t.Helper()
	q, err := h.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 16})
	must(h.t, err)
	must(h.t, q.Init())
	for i := range 8 {
		must(h.t, q.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{h.mr.Slice(1<<15+i<<10, 1<<10)}}))
	}
	return q
}

func (h *host) listen(cfg cm.ListenConfig) (*cm.Listener, netip.AddrPort) {
	h.t.Helper()
	l, err := cm.Listen(h.dev, netip.AddrPort{}, cfg)
	must(h.t, err)
	h.t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*cm.Addr).AddrPort
}

// send sends a message over a connection and waits until it is done.
func (h *host) send(q *verbs.QP, text string) {
	h.t.Helper()
	must(h.t, q.PostSend(verbs.SendWR{ID: 100, Opcode: verbs.OpSend, Inline: []byte(text), Signaled: true}))
}

// next takes the next completion.
func (h *host) next() verbs.WC {
	h.t.Helper()
	var wc [1]verbs.WC
	_, err := h.cq.Wait(h.context(), wc[:])
	must(h.t, err)
	return wc[0]
}

// message takes the next message, and skips the completions of sends.
func (h *host) message() string {
	h.t.Helper()
	for {
		wc := h.next()
		must(h.t, wc.Err())
		if wc.Opcode == verbs.WCRecv {
			return string(h.mr.Bytes()[1<<15+wc.ID<<10:][:wc.ByteLen])
		}
	}
}

// zeros returns text with zeros after it, n bytes in all.
func zeros(text string, n int) []byte { return append([]byte(text), make([]byte, n-len(text))...) }

func wantBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %q; want %q", what, got, want)
	}
}

// accepted is what a server has accepted.
type accepted struct {
	conn *cm.Conn
	req  *cm.Request
	err  error
}

// serve accepts one request with a new queue pair.
func (h *host) serve(l *cm.Listener, cfg cm.AcceptConfig) <-chan accepted {
	out := make(chan accepted, 1)
	ctx := h.context()
	go func() {
		var a accepted
		if a.req, a.err = l.Accept(ctx); a.err == nil {
			a.conn, a.err = a.req.Accept(ctx, h.qp(a.req.Params().Type), cfg)
		}
		out <- a
	}()
	return out
}

// connect makes a connection between two hosts.
func connect(client, server *host, d cm.DialConfig) (a, b *cm.Conn) {
	client.t.Helper()
	l, addr := server.listen(cm.ListenConfig{})
	got := server.serve(l, cm.AcceptConfig{})
	a, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, d)
	must(client.t, err)
	s := <-got
	must(client.t, s.err)
	return a, s.conn
}
