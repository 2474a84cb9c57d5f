package adapter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Connection says how two queue pairs are connected. The zero value has the
// defaults.
type Connection struct {
	// Foreign says that neither side is known to be this software: smaller
	// windows, and go-back-N. Otherwise both are native.
	Foreign bool

	MTU          rocev2.MTU // 0: 4096
	TrafficClass uint8      // DSCP and ECN; 106 is DSCP 26 with ECT(0)
	SrcPort      uint16     // the entropy of ECMP, 49152 to 65535; 0: of both queue pair numbers, as Linux has it
	Depth        int        // of the send queues, and with Config.Real the receive queues; 0: 16
	RdAtomic     int        // READs in flight, up to 128; 0: 16
	Timeout      uint8      // local ACK timeout, code of IBTA 9.7.6.1.3; 0: 14, which is 67 ms
	Retries      int        // 0: 7; negative: none

	// MinProbe is that of this connection, see engine.Config; 0: that of
	// the adapters.
	MinProbe time.Duration

	// Rate bounds how fast each side sends data, in kb/s on the wire; 0:
	// it does not. See ib.Attr.RateLimit.
	Rate uint32

	// Window bounds what each side may have in flight, in the place of
	// what Config.Window and Foreign say; zero: these do. Its InitialBytes
	// say nothing.
	Window qp.WindowConfig

	// Congestion makes the congestion control of each side; nil: a window.
	Congestion func() cc.Controller
}

func (c Connection) withDefaults() (Connection, error) {
	c.MTU = cmp.Or(c.MTU, rocev2.MTU4096)
	c.Depth = cmp.Or(c.Depth, 16)
	c.RdAtomic = cmp.Or(c.RdAtomic, 16)
	c.Timeout = cmp.Or(c.Timeout, 14)
	c.Retries = max(cmp.Or(c.Retries, 7), 0)
	switch {
	case !c.MTU.Valid():
		return c, fmt.Errorf("adapter: Connection.MTU: %w", c.MTU.Err())
	case c.MinProbe < 0:
		return c, fmt.Errorf("adapter: Connection.MinProbe is %v: it must be above 0, or 0 for that of the adapters", c.MinProbe)
	case c.SrcPort != 0 && c.SrcPort < ib.MinSrcPort:
		return c, fmt.Errorf("adapter: Connection.SrcPort is %d: it must be 0, or %d to 65535", c.SrcPort, ib.MinSrcPort)
	case c.Depth < 1 || c.Depth > ib.MaxWR:
		return c, fmt.Errorf("adapter: Connection.Depth is %d: it must be 1 to %d", c.Depth, ib.MaxWR)
	case c.RdAtomic < 1 || c.RdAtomic > ib.MaxRdAtomic:
		return c, fmt.Errorf("adapter: Connection.RdAtomic is %d: it must be 1 to %d", c.RdAtomic, ib.MaxRdAtomic)
	case c.Timeout > 31 || c.Retries > 7:
		return c, fmt.Errorf("adapter: Connection.Timeout is %d and Retries %d: they are up to 31 and up to 7", c.Timeout, c.Retries)
	}
	return c, nil
}

// QP is a queue pair of type RC, in state RTS.
type QP struct {
	// Received, if not nil, is called for each message that has taken a
	// receive: SENDs, and WRITEs with immediate data. Where there are no
	// bytes a receive is always there. It may do what Request.Done may.
	Received func(Message)

	h      *Host
	q      *engine.QP
	peer   *QP
	closed bool
}

// ErrClosed is returned for what is asked of a queue pair that is closed.
var ErrClosed = errors.New("adapter: the queue pair is closed")

// Connect makes a queue pair on each of two hosts, and connects them. The error
// says which setting or host is wrong; then nothing is left of either.
func (a *Adapters) Connect(from, to int, c Connection) (x, y *QP, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, nil, err
	}
	if from == to {
		return nil, nil, fmt.Errorf("adapter: host %d is to be connected to itself", from)
	}
	if x, err = a.newQP(from, &c); err != nil {
		return nil, nil, err
	}
	if y, err = a.newQP(to, &c); err == nil {
		err = connect(x, y, &c)
	}
	if err != nil {
		x.Close()
		if y != nil {
			y.Close()
		}
		return nil, nil, err
	}
	return x, y, nil
}

// connect brings both into RTS.
func connect(x, y *QP, c *Connection) error {
	x.peer, y.peer = y, x
	psnX, psnY := rocev2.PSN(x.h.a.random())&rocev2.PSNMask, rocev2.PSN(x.h.a.random())&rocev2.PSNMask
	return errors.Join(x.ready(c, psnX, psnY), y.ready(c, psnY, psnX))
}

func (a *Adapters) newQP(host int, c *Connection) (*QP, error) {
	h, err := a.Host(host)
	if err != nil {
		return nil, err
	}
	q := &QP{h: h}
	cfg := qp.Config{PD: h.pd, SendCQ: q, RecvCQ: (*receiver)(q), MaxSendWR: c.Depth, SignalAll: true, MinProbe: c.MinProbe}
	if a.cfg.Real {
		cfg.MaxRecvWR = c.Depth
	} else {
		cfg.RecvSource = (*endless)(h.part)
	}
	switch {
	case c.Congestion != nil:
		cfg.Congestion = c.Congestion()
	case !c.Foreign && a.cfg.Window.InitialBytes > 0: // the engine begins with a foreign peer's
		cfg.Congestion = cc.NewWindow(a.cfg.Window)
	}
	if q.q, err = h.e.CreateQP(cfg, q); err != nil {
		return nil, fmt.Errorf("adapter: host %d: %w", host, err)
	}
	return q, nil
}

// ready brings q into RTS.
func (q *QP) ready(c *Connection, psn, peerPSN rocev2.PSN) error {
	port := c.SrcPort
	if port == 0 {
		port = flowPort(q.QPN(), q.peer.QPN())
	}
	steps := [...]struct {
		a    ib.Attr
		mask ib.AttrMask
	}{
		{ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic},
			ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess},
		{ib.Attr{State: ib.StateRTR, PathMTU: c.MTU, DestQPN: q.peer.QPN(), RQPSN: peerPSN, MaxDestRdAtomic: uint8(c.RdAtomic), MinRNRTimer: 12,
			AV: ib.AddressVector{DGID: addrOf(q.peer.h.number), TrafficClass: c.TrafficClass, SrcPort: port, Native: !c.Foreign}},
			ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer},
		{ib.Attr{State: ib.StateRTS, Timeout: c.Timeout, RetryCount: uint8(c.Retries), RNRRetry: 7, SQPSN: psn, MaxRdAtomic: uint8(c.RdAtomic)},
			ib.AttrState | ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrSQPSN | ib.AttrMaxRdAtomic},
	}
	for i := range steps {
		if err := q.h.e.Modify(q.q, &steps[i].a, steps[i].mask); err != nil {
			return fmt.Errorf("adapter: host %d: to state %v: %w", q.h.number, steps[i].a.State, err)
		}
	}
	if q.h.sharing != nil {
		q.h.sharing.use(q.h.a.classOf(c.TrafficClass))
	}
	if c.Window != (qp.WindowConfig{}) {
		q.q.Core().SetWindow(c.Window)
	}
	if c.Rate > 0 { // one packet at a time, and one more where others had the cable at its time
		burst := 2 * uint32(c.MTU.Bytes()+cc.WireOverhead)
		if err := q.h.e.Modify(q.q, &ib.Attr{RateLimit: c.Rate, RateBurst: burst}, ib.AttrRateLimit); err != nil {
			return fmt.Errorf("adapter: host %d: to a rate of %d kb/s: %w", q.h.number, c.Rate, err)
		}
	}
	return nil
}

// flowPort is how Linux derives a source port from the two queue pair numbers.
// Both ends have the same.
func flowPort(a, b rocev2.QPN) uint16 {
	v := uint64(a) * uint64(b)
	v ^= v>>20 ^ v>>40
	label := uint32(v) & (1<<20 - 1)
	return uint16(label&0x3fff^label>>14) | ib.MinSrcPort
}

// Host returns the adapter that the queue pair is on.
func (q *QP) Host() *Host { return q.h }

// Peer returns the other end.
func (q *QP) Peer() *QP { return q.peer }

// QPN returns the queue pair number.
func (q *QP) QPN() rocev2.QPN { return q.q.QPN() }

// Stats returns the counters.
func (q *QP) Stats() qp.Stats { return q.q.Core().Stats() }

// Core returns the protocol machine, for what it tells of itself.
func (q *QP) Core() *qp.QP { return q.q.Core() }

// Close takes the queue pair away. What is outstanding completes with the
// status WR_FLUSH_ERR. The peer is not told.
func (q *QP) Close() {
	if q.closed {
		return
	}
	q.closed = true
	q.forget()
	_ = q.h.e.Modify(q.q, &ib.Attr{State: ib.StateErr}, ib.AttrState) // from RESET it is refused: there is nothing to flush
	if q.peer != nil {
		delete(q.h.echoes, echoKey{q.peer.h.number, q.peer.QPN()})
	}
	q.h.e.Destroy(q.q)
	q.h.changed()
}
