//go:build !portable

package leases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// messageLen is the length of a message: some packets.
const messageLen = 20000

// honest are three leaseholders of this process: one listens and echoes, one
// talks with it all the time, and one dials it again and again.
type honest struct {
	listens, talks, dials *verbs.Device
	listener              *rdma.Listener
	conn                  *rdma.Conn
	next                  int // message
}

func startHonest(ctx context.Context, addr netip.Addr) (h *honest, err error) {
	h = &honest{}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	for _, d := range []**verbs.Device{&h.listens, &h.talks, &h.dials} {
		if *d, err = verbs.OpenAddr(addr, verbs.Config{}); err != nil {
			return nil, err
		}
	}
	lc := rdma.ListenConfig{Device: h.listens}
	if h.listener, err = lc.Listen(ctx, netip.AddrPortFrom(addr, 0).String()); err != nil {
		return nil, err
	}
	go serve(ctx, h.listener)
	d := rdma.Dialer{Device: h.talks}
	h.conn, err = d.Dial(ctx, h.listener.Addr().String())
	return h, err
}

func (h *honest) close() {
	if h.conn != nil {
		h.conn.Close()
	}
	if h.listener != nil {
		h.listener.Close()
	}
	for _, d := range []*verbs.Device{h.dials, h.talks, h.listens} {
		if d != nil {
			d.Close()
		}
	}
}

// drops is how many packets the devices have dropped for a reason.
func (h *honest) drops(reason string) (n uint64) {
	for _, d := range []*verbs.Device{h.listens, h.talks, h.dials} {
		n += d.Stats().Drops[reason]
	}
	return n
}

// serve sends back what comes, on every connection.
func serve(ctx context.Context, l *rdma.Listener) {
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, messageLen)
			for {
				n, err := c.Recv(ctx, b)
				if err != nil || c.Send(ctx, b[:n]) != nil {
					return
				}
			}
		}()
	}
}

// round sends a message, and checks each byte of its echo.
func round(ctx context.Context, c *rdma.Conn, i int) error {
	out, in := make([]byte, messageLen), make([]byte, messageLen)
	for k := range out {
		out[k] = byte(k*7 + k>>8 + i*31)
	}
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	if err := c.Send(ctx, out); err != nil {
		return fmt.Errorf("message %d: %w", i, err)
	}
	n, err := c.Recv(ctx, in)
	if err != nil {
		return fmt.Errorf("echo of message %d: %w", i, err)
	}
	if !bytes.Equal(in[:n], out) {
		return fmt.Errorf("the echo of message %d has other bytes", i)
	}
	return nil
}

// talk exchanges n messages, and returns how many packets were sent for each.
func (h *honest) talk(ctx context.Context, n int) (packets float64, err error) {
	before := h.talks.Stats().Link.TxPackets
	for range n {
		if err := round(ctx, h.conn, h.next); err != nil {
			return 0, err
		}
		h.next++
	}
	return float64(h.talks.Stats().Link.TxPackets-before) / float64(n), nil
}

// dial connects, exchanges a message and disconnects.
func (h *honest) dial(ctx context.Context) error {
	d := rdma.Dialer{Device: h.dials}
	return visit(ctx, &d, h.listener.Addr().String())
}

func visit(ctx context.Context, d *rdma.Dialer, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return round(ctx, c, 1)
}

// traffic is what the honest do beside an attack.
type traffic struct {
	rounds, dials atomic.Int64
	failed        atomic.Bool
	packets       float64 // for a round
	errs          [2]error
	stop          context.CancelFunc
	wg            sync.WaitGroup
}

func (h *honest) begin(ctx context.Context) *traffic {
	r := &traffic{}
	more, stop := context.WithCancel(ctx)
	r.stop = stop
	r.wg.Go(func() {
		before := h.talks.Stats().Link.TxPackets
		for more.Err() == nil && r.errs[0] == nil {
			_, r.errs[0] = h.talk(ctx, 1)
			r.count(&r.rounds, r.errs[0])
		}
		r.packets = float64(h.talks.Stats().Link.TxPackets-before) / float64(max(r.rounds.Load(), 1))
	})
	r.wg.Go(func() {
		for more.Err() == nil && r.errs[1] == nil {
			r.errs[1] = h.dial(ctx)
			r.count(&r.dials, r.errs[1])
		}
	})
	return r
}

func (r *traffic) count(n *atomic.Int64, err error) {
	if err != nil {
		r.failed.Store(true)
		return
	}
	n.Add(1)
}

// end returns what went wrong.
func (r *traffic) end() error {
	r.stop()
	r.wg.Wait()
	return errors.Join(r.errs[:]...)
}
