package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	controlRecvs   = 8 // receives of a control connection
	controlSends   = 4
	controlSlotLen = 512 // more than a MAD; of the handshake what comes in one message
)

// control is a control connection: one of RC that the manager has with a peer
// beside that of a program. Its messages are bytes of the handshake, and when
// it is secured MADs, of one connection at a time. An empty message ends it.
//
// The side that has dialled it ends it with its connection. The other side
// waits some seconds for the next request.
type control struct {
	m       *manager
	number  uint32    // in agent.Path.Control
	from    *entrance // that has accepted it; nil: this side has dialled
	peer    netip.Addr
	pd      *verbs.PD
	cq      *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR       // receive slots, then send slots
	bell    *task.Bell      // of the handshake: something has completed
	ctx     context.Context // of the handshake
	session *secure.Session // set before it carries MADs
	conn    *Conn           // by the messages in clear that have made it

	// Guarded by the lock of m:
	held    bool // a dial is under way that uses it
	carries bool // MADs
	leaving bool // the empty message was sent
	over    bool // it is closed, or is about to be
	wait    *task.Timer

	mu     sync.Mutex // held for a moment, by any goroutine
	in     []received
	free   []uint16 // send slots
	failed error    // nothing is sent and received any more
	rung   bool     // it is among those that the manager looks at
}

// received is a message that has come.
type received struct {
	slot  uint16
	begin int
	end   int
}

// newControl makes a control connection, with receives posted, whose queue pair
// is in INIT. number is that of the queue pair; 0 is any.
func newControl(m *manager, number verbs.QPN, from *entrance) (*control, error) {
	c := &control{m: m, from: from, bell: m.tasks.NewBell()}
	for i := range controlSends {
		c.free = append(c.free, uint16(controlRecvs+i))
	}
	if err := c.open(number); err != nil {
		c.destroy()
		return nil, fmt.Errorf("make the control connection: %w", err)
	}
	return c, nil
}

func (c *control) open(number verbs.QPN) (err error) {
	dev := c.m.dev
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if c.mr, err = c.pd.RegisterMemory(make([]byte, (controlRecvs+controlSends)*controlSlotLen), verbs.LocalWrite); err != nil {
		return err
	}
	if c.cq, err = dev.CreateCQ(controlRecvs+controlSends, verbs.WithHandler(c.onCompletions)); err != nil {
		return err
	}
	c.qp, err = c.pd.CreateQP(verbs.QPConfig{SendCQ: c.cq, RecvCQ: c.cq, Number: number,
		MaxSendWR: controlSends, MaxRecvWR: controlRecvs, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		return err
	}
	if err = c.qp.Init(); err != nil {
		return err
	}
	for i := range uint16(controlRecvs) {
		if err = c.receive(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *control) slot(i uint16) []byte {
	return c.mr.Bytes()[int(i)*controlSlotLen:][:controlSlotLen]
}

func (c *control) receive(slot uint16) error {
	return c.qp.PostRecv(verbs.RecvWR{ID: uint64(slot), SGList: []verbs.SGE{c.mr.Slice(int(slot)*controlSlotLen, controlSlotLen)}})
}

func (c *control) post(slot uint16, n int) error {
	return c.qp.PostSend(verbs.SendWR{ID: uint64(slot), Opcode: verbs.OpSend, Signaled: true,
		SGList: []verbs.SGE{c.mr.Slice(int(slot)*controlSlotLen, n)}})
}

// onCompletions is the handler of the completion queue.
func (c *control) onCompletions(open bool) {
	var wcs [controlRecvs + controlSends]verbs.WC
	for n := c.cq.Poll(wcs[:]); n > 0; n = c.cq.Poll(wcs[:]) {
		c.mu.Lock()
		for i := range wcs[:n] {
			c.completed(&wcs[i])
		}
		c.mu.Unlock()
	}
	if !open {
		c.fail(ErrClosed)
	}
	c.bell.Ring()
	c.ring()
	if c.m.mu.TryLock() {
		c.m.receive()
		c.m.unlock()
	}
}

// completed takes a completion. c.mu is held.
func (c *control) completed(wc *verbs.WC) {
	slot := uint16(wc.ID)
	switch {
	case wc.Status != verbs.StatusSuccess:
		if c.failed == nil {
			c.failed = wc.Err()
		}
	case slot < controlRecvs:
		c.in = append(c.in, received{slot: slot, end: int(wc.ByteLen)})
	default:
		c.free = append(c.free, slot)
	}
}

func (c *control) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

// broken returns why the connection has failed: what its end was by says more
// than what the queue pair makes of it.
func (c *control) broken(err error) error {
	if c.conn != nil {
		if over := c.conn.Err(); over != nil {
			return over
		}
	}
	return err
}

// Read reads bytes of the handshake.
func (c *control) Read(p []byte) (int, error) {
	for {
		c.mu.Lock()
		switch {
		case len(c.in) > 0:
			a := &c.in[0]
			n := copy(p, c.slot(a.slot)[a.begin:a.end])
			a.begin += n
			slot, done := a.slot, a.begin == a.end
			if done {
				c.in = c.in[1:]
			}
			c.mu.Unlock()
			if done {
				if err := c.receive(slot); err != nil {
					return n, err
				}
			}
			if n == 0 && len(p) > 0 {
				return 0, net.ErrClosed // the empty message
			}
			return n, nil
		case c.failed != nil:
			err := c.failed
			c.mu.Unlock()
			return 0, c.broken(err)
		}
		c.mu.Unlock()
		if err := c.bell.Wait(c.ctx); err != nil {
			return 0, err
		}
	}
}

// Write sends bytes of the handshake.
func (c *control) Write(p []byte) (n int, err error) {
	for n < len(p) {
		slot, err := c.room()
		if err != nil {
			return n, err
		}
		k := copy(c.slot(slot), p[n:])
		if err := c.post(slot, k); err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// room waits for a send slot.
func (c *control) room() (uint16, error) {
	for {
		slot, err := c.take()
		if err != nil {
			return 0, c.broken(err)
		}
		if slot != 0 {
			return slot, nil
		}
		if err := c.bell.Wait(c.ctx); err != nil {
			return 0, err
		}
	}
}

// take takes a send slot, 0 if there is none.
func (c *control) take() (slot uint16, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.free); n > 0 && c.failed == nil {
		slot = c.free[n-1]
		c.free = c.free[:n-1]
	}
	return slot, c.failed
}

func (c *control) hasFailed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed != nil
}

// sent reports whether the peer has all that was posted, or never gets it.
func (c *control) sent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.free) == controlSends || c.failed != nil
}

// Close ends a handshake whose context is done; Read and Write have the same.
func (c *control) Close() error { return nil }

// LocalAddr, and what follows, are of net.Conn.
func (c *control) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (c *control) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// SetDeadline does nothing: the context says when it is over.
func (c *control) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *control) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *control) SetWriteDeadline(time.Time) error { return nil }

// toSecure is the connection for package secure. Before the peer is told that
// all is done, no message in clear can end it any more.
func (c *control) toSecure(ctx context.Context) secure.Conn {
	c.ctx = ctx
	return secure.Conn{Conn: c, QP: c.qp, Open: func(*secure.Session) error { return c.detach() }}
}

func (c *control) detach() error {
	c.m.lock()
	defer c.m.unlock()
	if c.m.closed {
		return c.m.errOver()
	}
	return gone(c.m.agent.Detach(c.conn.id))
}

// path is that of the MADs that go over c.
func (c *control) path() agent.Path {
	return agent.Path{Local: c.m.dev.Addr().WithZone(""), Remote: c.peer.WithZone(""), Control: c.number}
}

// destroy frees what c has. It may wait for the link.
func (c *control) destroy() {
	if c.qp != nil {
		c.qp.Close()
	}
	if c.cq != nil {
		c.cq.Close()
	}
	if c.pd != nil {
		c.pd.Close()
	}
}

// errNoMAD says that a peer breaks the rules.
var errNoMAD = errors.New("cm: what comes over the control connection is no message of connection management")

// isConnection reports whether b is a MAD about a connection. There are no
// datagrams to be resolved over a control connection.
func isConnection(b []byte) bool {
	var h mad.Header
	if len(b) != mad.Len || h.Parse(b) != nil {
		return false
	}
	switch h.Attribute {
	case mad.AttrREQ, mad.AttrMRA, mad.AttrREJ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP:
		return true
	}
	return false
}
