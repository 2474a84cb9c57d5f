package faces

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/bench/internal/madeup"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
	"github.com/gosoftroce/rocev2/verbs"
)

// face makes connections.
type face interface {
	listen() (addr string, err error)
	accept(ctx context.Context) (channel, error)
	dial(ctx context.Context, addr string) (channel, error)
}

// channel is a connection.
type channel interface {
	send(b []byte) error
	// recv receives a message, or as many bytes, of len(b); b may be left
	// as it is. The error is io.EOF when the peer has closed.
	recv(b []byte) error
	// gone waits until the peer has closed.
	gone()
	close() error
}

func newFace(b *base) (face, error) {
	switch b.cfg.Face {
	case CM:
		return newCMFace(b)
	case RDMA:
		return &rdmaFace{b: b}, nil
	case RDMANet:
		return &netFace{b: b, network: rdmanet.Network, dialer: &rdmanet.Dialer{Device: b.dev}}, nil
	case TCP:
		return &netFace{b: b, network: "tcp", dialer: &net.Dialer{}}, nil
	case TLS:
		// The certificate is made up: nothing is protected here.
		d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}
		return &netFace{b: b, network: "tcp", dialer: d}, nil
	}
	return nil, fmt.Errorf("there is no face %q", b.cfg.Face)
}

// rdmaFace is package rdma.
type rdmaFace struct {
	b *base
	l *rdma.Listener
}

func (f *rdmaFace) listen() (string, error) {
	lc := rdma.ListenConfig{Device: f.b.dev, MessageSize: max(f.b.cfg.Size, 64<<10)}
	var err error
	if f.l, err = lc.Listen(f.b.ctx, net.JoinHostPort(f.b.cfg.Addr, "0")); err != nil {
		return "", err
	}
	f.b.onClose(func() { f.l.Close() })
	return f.l.Addr().String(), nil
}

func (f *rdmaFace) accept(ctx context.Context) (channel, error) {
	c, err := f.l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &rdmaChannel{c: c, ctx: f.b.ctx, noCopy: f.b.cfg.NoCopy}, nil
}

func (f *rdmaFace) dial(ctx context.Context, addr string) (channel, error) {
	d := rdma.Dialer{Device: f.b.dev, MessageSize: max(f.b.cfg.Size, 64<<10)}
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &rdmaChannel{c: c, ctx: f.b.ctx, noCopy: f.b.cfg.NoCopy}, nil
}

type rdmaChannel struct {
	c      *rdma.Conn
	ctx    context.Context
	noCopy bool
}

func (c *rdmaChannel) send(b []byte) error { return c.c.Send(c.ctx, b) }
func (c *rdmaChannel) gone()               { <-c.c.Done() }
func (c *rdmaChannel) close() error        { return c.c.Close() }

func (c *rdmaChannel) recv(b []byte) error {
	if c.noCopy {
		m, err := c.c.RecvMsg(c.ctx)
		if err != nil {
			return err
		}
		n := len(m.Bytes())
		m.Release()
		return whole(n, b)
	}
	n, err := c.c.Recv(c.ctx, b)
	if err != nil {
		return err
	}
	return whole(n, b)
}

func whole(n int, b []byte) error {
	if n != len(b) {
		return fmt.Errorf("a message of %d bytes, not %d", n, len(b))
	}
	return nil
}

// netFace is package rdmanet, or package net with TCP, or TLS over that.
type netFace struct {
	b       *base
	network string
	l       net.Listener
	dialer  interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	}
}

func (f *netFace) listen() (addr string, err error) {
	where := net.JoinHostPort(f.b.cfg.Addr, "0")
	if f.network == "tcp" {
		f.l, err = f.listenTCP(where)
	} else {
		lc := rdmanet.ListenConfig{Device: f.b.dev}
		f.l, err = lc.Listen(f.b.ctx, f.network, where)
	}
	if err != nil {
		return "", err
	}
	f.b.onClose(func() { f.l.Close() })
	return f.l.Addr().String(), nil
}

func (f *netFace) listenTCP(where string) (net.Listener, error) {
	l, err := net.Listen("tcp", where)
	if err != nil || f.b.cfg.Face != TLS {
		return l, err
	}
	c, err := madeup.Server()
	if err != nil {
		l.Close()
		return nil, err
	}
	return tls.NewListener(l, c), nil
}

func (f *netFace) accept(context.Context) (channel, error) {
	c, err := f.l.Accept()
	return netChannel{c}, err
}

func (f *netFace) dial(ctx context.Context, addr string) (channel, error) {
	c, err := f.dialer.DialContext(ctx, f.network, addr)
	if t, ok := c.(*net.TCPConn); ok && (f.b.cfg.Test == Connect || f.b.cfg.Test == First) {
		err = t.SetLinger(0) // a reset, or the ports of TIME_WAIT are used up in a second
	}
	return netChannel{c}, err
}

type netChannel struct{ net.Conn }

func (c netChannel) close() error { return c.Close() }

func (c netChannel) send(b []byte) error {
	_, err := c.Write(b)
	return err
}

func (c netChannel) recv(b []byte) error {
	_, err := io.ReadFull(c, b)
	return err
}

func (c netChannel) gone() {
	var b [1]byte
	_, _ = c.Read(b[:]) // io.EOF
}

// cmFace are queue pairs of the program, all with one completion queue.
type cmFace struct {
	b  *base
	l  *cm.Listener
	pd *verbs.PD
	cq *verbs.CQ
	mr *verbs.MR
}

func newCMFace(b *base) (*cmFace, error) {
	f := &cmFace{b: b}
	var err error
	if f.pd, err = b.dev.AllocPD(); err != nil {
		return nil, err
	}
	if f.cq, err = b.dev.CreateCQ(1 << 15); err != nil {
		return nil, err
	}
	f.mr, err = f.pd.RegisterMemory(make([]byte, 4096), verbs.LocalWrite)
	return f, err
}

func (f *cmFace) listen() (string, error) {
	addr, err := netip.ParseAddr(f.b.cfg.Addr)
	if err != nil {
		return "", err
	}
	if f.l, err = cm.Listen(f.b.dev, netip.AddrPortFrom(addr, 0), cm.ListenConfig{}); err != nil {
		return "", err
	}
	return f.l.Addr().String(), nil
}

// create makes a queue pair with a receive.
func (f *cmFace) create() (*verbs.QP, error) {
	q, err := f.pd.CreateQP(verbs.QPConfig{SendCQ: f.cq, RecvCQ: f.cq, MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err == nil {
		err = errors.Join(q.Init(), q.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{f.mr.Slice(0, 64)}}))
	}
	return q, err
}

func (f *cmFace) accept(ctx context.Context) (channel, error) {
	for {
		r, err := f.l.Accept(ctx)
		if err != nil {
			return nil, err
		}
		q, err := f.create()
		if err != nil {
			return nil, err
		}
		c, err := r.Accept(ctx, q, cm.AcceptConfig{})
		if err == nil {
			return &cmChannel{f: f, c: c, q: q}, nil
		}
		q.Close() // the peer has given up
	}
}

func (f *cmFace) dial(ctx context.Context, addr string) (channel, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	q, err := f.create()
	if err != nil {
		return nil, err
	}
	c, err := cm.Dial(ctx, q, to, cm.DialConfig{})
	if err != nil {
		q.Close()
		return nil, err
	}
	return &cmChannel{f: f, c: c, q: q}, nil
}

// cmChannel carries one message each way: enough for what it is measured for.
type cmChannel struct {
	f *cmFace
	c *cm.Conn
	q *verbs.QP
}

func (c *cmChannel) send(b []byte) error {
	return c.q.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: b})
}

func (c *cmChannel) recv(b []byte) error {
	for {
		var wc [1]verbs.WC
		if _, err := c.f.cq.Wait(c.f.b.ctx, wc[:]); err != nil {
			return err
		}
		switch {
		case wc[0].QPN != c.q.QPN(): // of a connection that is closed
		case wc[0].Status != verbs.StatusSuccess:
			return wc[0].Err()
		case wc[0].Opcode == verbs.WCRecv:
			return whole(int(wc[0].ByteLen), b)
		}
	}
}

func (c *cmChannel) gone() { <-c.c.Done() }

func (c *cmChannel) close() error { return errors.Join(c.c.Close(), c.q.Close()) }
