// Package link has what the tools over the connection manager share: a queue
// pair with its memory and its completions, and a wait that ends when the peer
// leaves, is silent, or when something fails.
package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config says what a tool needs.
type Config struct {
	QP     verbs.QPConfig // without completion queues
	Memory int            // bytes of MR
	Access verbs.Access   // to MR
}

// Link is one queue pair with one of everything. Its methods are for one
// goroutine.
type Link struct {
	PD  *verbs.PD
	MR  *verbs.MR
	QP  *verbs.QP
	SRQ *verbs.SRQ // of an XRCTarget, else nil

	xrcd *verbs.XRCD
	w    *work.Waiter
	g    *work.Guard

	peer  Peer
	doing string
	taken uint64 // completions
	wc    [32]verbs.WC
	left  []verbs.WC // of wc, for the next calls of Next
}

// Peer tells when the other side has left. A *cm.Conn is one.
type Peer interface {
	Done() <-chan struct{}
	Err() error
}

// New makes a link whose queue pair is in RESET. On an error it releases what
// it has made.
func New(dev *verbs.Device, c Config) (*Link, error) {
	l := &Link{}
	if err := l.make(dev, c); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Link) make(dev *verbs.Device, c Config) (err error) {
	if l.PD, err = dev.AllocPD(); err != nil {
		return err
	}
	if l.MR, err = l.PD.AllocMemory(max(c.Memory, 1), c.Access|verbs.LocalWrite); err != nil {
		return err
	}
	c.QP.MaxSendWR, c.QP.MaxRecvWR = max(c.QP.MaxSendWR, 1), max(c.QP.MaxRecvWR, 1)
	if l.w, err = work.NewWaiter(dev, c.QP.MaxSendWR+c.QP.MaxRecvWR, work.Block); err != nil {
		return err
	}
	c.QP.SendCQ, c.QP.RecvCQ = l.w.CQ, l.w.CQ
	if c.QP.Type == verbs.XRCTarget {
		if err := l.shareReceives(&c.QP); err != nil {
			return err
		}
	}
	l.QP, err = l.PD.CreateQP(c.QP)
	return err
}

// shareReceives makes the shared receive queue that an XRC target needs, and
// the domain of both.
func (l *Link) shareReceives(c *verbs.QPConfig) (err error) {
	if l.xrcd, err = l.PD.Device().OpenXRCD(); err != nil {
		return err
	}
	l.SRQ, err = l.PD.CreateSRQ(verbs.SRQConfig{XRCD: l.xrcd, CQ: l.w.CQ, MaxWR: c.MaxRecvWR, MaxSGE: 1})
	c.XRCD = l.xrcd
	return err
}

// Close frees everything.
func (l *Link) Close() {
	l.End()
	if l.QP != nil {
		l.QP.Close()
	}
	if l.SRQ != nil {
		l.SRQ.Close()
	}
	if l.xrcd != nil {
		l.xrcd.Close()
	}
	if l.w != nil {
		l.w.Close()
	}
	if l.MR != nil {
		l.MR.Close()
	}
	if l.PD != nil {
		l.PD.Close()
	}
}

// Begin starts a part of a run: from here on Next waits, under ctx, as long as
// something completes at least every idle; 0 means without end. peer, if not
// nil, ends the wait when it is done. doing is the part's name, for errors.
func (l *Link) Begin(ctx context.Context, doing string, peer Peer, idle time.Duration) {
	l.End()
	l.doing, l.peer = doing, peer
	l.g = work.NewGuard(ctx, verbs.HCA(l.PD.Device()).Tasks(), idle, nil, nil)
	if peer == nil {
		return
	}
	go func(g *work.Guard) {
		select {
		case <-peer.Done():
			g.Cancel(Left(peer))
		case <-g.Ctx.Done():
		}
	}(l.g)
}

// End ends the part. What has completed and was not taken yet is for the next
// one.
func (l *Link) End() {
	if l.g != nil {
		l.g.Stop()
		l.g = nil
	}
}

// Left says why the peer is done. The error is interop.ErrDisconnected where
// the peer has ended the connection in order.
func Left(peer Peer) error {
	if err := peer.Err(); err != nil && !errors.Is(err, cm.ErrDisconnected) {
		return fmt.Errorf("the connection is lost: %w", err)
	}
	return interop.ErrDisconnected
}

// Next returns the next completion, of a request that succeeded. The error is
// an *interop.CompletionError for one that failed, or wraps
// interop.ErrDisconnected where the peer has left, interop.ErrNoProgress where
// it is silent, or the cause of the context's end.
func (l *Link) Next() (verbs.WC, error) {
	for len(l.left) == 0 {
		n, err := l.w.Next(l.g, l.wc[:])
		if err != nil {
			// What came before the end counts.
			if n = l.w.CQ.Poll(l.wc[:]); n == 0 {
				return verbs.WC{}, err
			}
		}
		l.left = l.wc[:n]
	}
	wc := l.left[0]
	l.left = l.left[1:]
	switch wc.Status {
	case verbs.StatusSuccess:
		l.taken++
		l.g.Add(1)
		return wc, nil
	case verbs.StatusWRFlushErr:
		return wc, l.flushed(wc)
	}
	return wc, l.failed(wc)
}

func (l *Link) failed(wc verbs.WC) error {
	return &interop.CompletionError{Doing: l.doing, Done: l.taken, WC: wc}
}

// flushLimit bounds the wait for the word of the connection manager about a
// queue pair that it has ended.
const flushLimit = time.Second

// flushed says why requests are flushed: mostly because the peer has left.
func (l *Link) flushed(wc verbs.WC) error {
	if l.peer == nil {
		return l.failed(wc)
	}
	t := time.NewTimer(flushLimit)
	defer t.Stop()
	select {
	case <-l.peer.Done():
		return Left(l.peer)
	case <-l.g.Ctx.Done():
		return context.Cause(l.g.Ctx)
	case <-t.C:
		return l.failed(wc)
	}
}
