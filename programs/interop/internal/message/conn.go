// Package message carries a control connection over a queue pair of the
// connection manager: each Write is one SEND, as perftest has it with -z and
// -R.
package message

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	slotLen = 1024 // bytes of the largest message
	slots   = 4    // receives that are posted, and sends that may be outstanding

	// flushLimit bounds the wait for the acknowledgement of what was sent,
	// when the connection is closed.
	flushLimit = time.Second
)

// Conn is one end of a control connection. It implements net.Conn: one
// goroutine may read while another one writes.
type Conn struct {
	role interop.Role
	cm   *cm.Conn

	pd             *verbs.PD
	mr             *verbs.MR
	memory         []byte // of mr: to receive into, then to send from
	sendCQ, recvCQ *verbs.CQ
	qp             *verbs.QP

	unread      []byte // of the last message
	sent        int    // messages
	outstanding int
	rd, wr      deadline
}

var _ net.Conn = (*Conn)(nil)

// newConn makes an end whose queue pair is in INIT, with its receives posted.
func newConn(dev *verbs.Device, number verbs.QPN, role interop.Role) (*Conn, error) {
	c := &Conn{role: role}
	if err := c.make(dev, number); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (c *Conn) make(dev *verbs.Device, number verbs.QPN) (err error) {
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	// Go memory: a client may still be refused when the server is done, and
	// has closed its device.
	c.memory = make([]byte, 2*slots*slotLen)
	if c.mr, err = c.pd.RegisterMemory(c.memory, verbs.LocalWrite); err != nil {
		return err
	}
	if c.sendCQ, err = dev.CreateCQ(slots); err != nil {
		return err
	}
	if c.recvCQ, err = dev.CreateCQ(slots); err != nil {
		return err
	}
	c.qp, err = c.pd.CreateQP(verbs.QPConfig{SendCQ: c.sendCQ, RecvCQ: c.recvCQ, MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1, Number: number})
	if err != nil {
		return err
	}
	if err := c.qp.Init(); err != nil {
		return err
	}
	for i := range slots {
		if err := c.post(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) post(i int) error {
	return c.qp.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{c.mr.Slice(i*slotLen, slotLen)}})
}

func (c *Conn) free() {
	if c.qp != nil {
		c.qp.Close()
	}
	for _, cq := range []*verbs.CQ{c.sendCQ, c.recvCQ} {
		if cq != nil {
			cq.Close()
		}
	}
	if c.mr != nil {
		c.mr.Close()
	}
	if c.pd != nil {
		c.pd.Close()
	}
}

// Dial connects with a server.
func Dial(ctx context.Context, dev *verbs.Device, to netip.AddrPort) (*Conn, error) {
	c, err := newConn(dev, 0, interop.Client)
	if err != nil {
		return nil, err
	}
	c.cm, err = cm.Dial(ctx, c.qp, to, cm.DialConfig{ResponderResources: verbs.Set(0), InitiatorDepth: verbs.Set(0)})
	if err != nil {
		c.free()
		return nil, link.Explain(ctx, to, err)
	}
	return c, nil
}

// accept makes a connection of a request.
func accept(ctx context.Context, r *cm.Request) (*Conn, error) {
	c, err := newConn(r.Device(), r.QPN(), interop.Server)
	if err != nil {
		return nil, link.Reject(r, err)
	}
	if c.cm, err = r.Accept(ctx, c.qp, cm.AcceptConfig{}); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// LocalAddr returns the address of this side: a *cm.Addr.
func (c *Conn) LocalAddr() net.Addr { return c.cm.LocalAddr() }

// RemoteAddr returns the peer's address: a *cm.Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.cm.RemoteAddr() }

// Read reads from the messages of the peer, one after the other.
func (c *Conn) Read(p []byte) (int, error) {
	for len(c.unread) == 0 {
		var wc [1]verbs.WC
		ctx := c.rd.context()
		if _, err := c.recvCQ.Wait(ctx, wc[:]); err != nil {
			return 0, c.failure(ctx, err)
		}
		if wc[0].Status != verbs.StatusSuccess {
			return 0, c.failed(wc[0])
		}
		i := int(wc[0].ID)
		c.unread = append([]byte(nil), c.memory[i*slotLen:][:wc[0].ByteLen]...)
		if err := c.post(i); err != nil && len(c.unread) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// Write sends p as one message.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) > slotLen {
		return 0, fmt.Errorf("a message of %d bytes is longer than %d", len(p), slotLen)
	}
	if err := c.await(c.wr.context(), slots-1); err != nil {
		return 0, err
	}
	at := (slots + c.sent%slots) * slotLen
	copy(c.memory[at:], p)
	err := c.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{c.mr.Slice(at, len(p))}})
	if err != nil {
		return 0, err
	}
	c.sent++
	c.outstanding++
	return len(p), nil
}

// await waits until at most n sends are outstanding.
func (c *Conn) await(ctx context.Context, n int) error {
	var wc [1]verbs.WC
	for c.outstanding > n {
		if _, err := c.sendCQ.Wait(ctx, wc[:]); err != nil {
			return c.failure(ctx, err)
		}
		c.outstanding--
		if wc[0].Status != verbs.StatusSuccess {
			return c.failed(wc[0])
		}
	}
	return nil
}

// failure is the error of a wait.
func (c *Conn) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// failed is the error of a request that failed: io.EOF where the peer has
// disconnected.
func (c *Conn) failed(wc verbs.WC) error {
	if wc.Status != verbs.StatusWRFlushErr {
		return wc.Err()
	}
	var sends [slots]verbs.WC
	for _, s := range sends[:c.sendCQ.Poll(sends[:])] {
		if s.Status != verbs.StatusSuccess && s.Status != verbs.StatusWRFlushErr {
			return s.Err() // the cause
		}
	}
	t := time.NewTimer(flushLimit)
	defer t.Stop()
	select {
	case <-c.cm.Done():
		if err := link.Left(c.cm); !errors.Is(err, interop.ErrDisconnected) && !errors.Is(err, cm.ErrClosed) {
			return err
		}
		return io.EOF
	case <-t.C:
		return wc.Err()
	}
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.rd.set(t)
	c.wr.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { c.rd.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.wr.set(t); return nil }

// CloseWrite waits until the peer has what was sent. There is no half of a
// connection to close, so it is the client that disconnects, and the server
// reads on until it does.
func (c *Conn) CloseWrite() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	err := c.await(ctx, 0)
	if c.role == interop.Client {
		c.linger()
		c.cm.Disconnect(ctx)
	}
	return err
}

// lingerTime is how long a client still acknowledges what the server sends
// again, in case the acknowledgement of its last message was lost. An original
// would wait for that for ever.
const lingerTime = 200 * time.Millisecond

func (c *Conn) linger() {
	if c.cm.Native() {
		return // it does not wait for long
	}
	t := time.NewTimer(lingerTime)
	defer t.Stop()
	select {
	case <-c.cm.Done():
	case <-t.C:
	}
}

// Close ends the connection. The peer gets what was sent, if it takes it soon.
func (c *Conn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	c.await(ctx, 0)
	c.cm.Disconnect(ctx)
	c.free()
	return nil
}
