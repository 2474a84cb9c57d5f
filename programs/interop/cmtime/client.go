package cmtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Run makes connections with a server, over dev, and ends them.
func Run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, c Config) (Result, error) {
	c, err := c.withDefaults(dev)
	if err != nil {
		return Result{}, err
	}
	r := &run{dev: dev, cfg: c, server: server, conns: make([]conn, c.Connections)}
	defer r.close()
	if err := r.all(ctx); err != nil {
		return Result{}, fmt.Errorf("cmtime: %w", interop.Cause(ctx, err))
	}
	return r.result(), nil
}

// run is a client at work.
type run struct {
	dev    *verbs.Device
	cfg    Config
	server netip.AddrPort

	pd    *verbs.PD
	cq    *verbs.CQ
	ch    *cm.EventChannel
	conns []conn
	total [steps]time.Duration
}

// conn is one connection.
type conn struct {
	id      *cm.ID
	qp      *verbs.QP
	retries int
	start   time.Time
	took    [steps]time.Duration
}

func (r *run) close() {
	if r.ch != nil {
		r.ch.Close()
	}
	for i := range r.conns {
		if q := r.conns[i].qp; q != nil {
			q.Close()
		}
	}
	if r.cq != nil {
		r.cq.Close()
	}
	if r.pd != nil {
		r.pd.Close()
	}
}

// all goes through the steps.
func (r *run) all(ctx context.Context) (err error) {
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	if r.cq, err = r.dev.CreateCQ(1); err != nil {
		return err
	}
	r.ch = cm.NewEventChannel(cm.WithDevices(r.dev))
	for _, s := range Steps {
		if s == BindAddr && !r.cfg.Bind {
			continue
		}
		if err := r.step(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// step has all connections take a step, and waits until they have.
func (r *run) step(ctx context.Context, s Step) error {
	if r.cfg.OnStep != nil {
		r.cfg.OnStep(s)
	}
	begin := time.Now()
	waiting := 0
	for i := range r.conns {
		c := &r.conns[i]
		c.start, c.retries = time.Now(), r.cfg.Retries
		if err := r.begin(c, s); err != nil {
			return r.explain(s, err)
		}
		if _, ok := endOf[s]; ok {
			waiting++
		} else {
			c.took[s] = time.Since(c.start)
		}
	}
	for waiting > 0 {
		over, err := r.event(ctx, s)
		if err != nil {
			return r.explain(s, err)
		}
		if over {
			waiting--
		}
	}
	r.total[s] = time.Since(begin)
	return nil
}

// endOf says by which event a step is over. The others are over at once.
var endOf = map[Step]cm.EventType{
	ResolveAddr: cm.EventAddrResolved, ResolveRoute: cm.EventRouteResolved, Connect: cm.EventEstablished, Disconnect: cm.EventDisconnected,
}

// begin has one connection begin a step.
func (r *run) begin(c *conn, s Step) (err error) {
	switch s {
	case CreateID:
		c.id, err = r.ch.CreateID(cm.TCP, c)
		if err == nil && r.cfg.TrafficClass != 0 {
			err = c.id.SetOption(cm.WithTOS(r.cfg.TrafficClass))
		}
	case BindAddr:
		err = c.id.BindAddr(netip.AddrPortFrom(r.dev.Addr(), 0))
	case ResolveAddr:
		err = c.id.ResolveAddr(netip.AddrPort{}, r.server, r.cfg.Timeout)
	case ResolveRoute:
		err = c.id.ResolveRoute(r.cfg.Timeout)
	case CreateQP:
		c.qp, err = c.id.CreateQP(r.pd, verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1})
	case Connect:
		err = c.id.Connect(&cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: uint8(r.cfg.Retries)})
	case Disconnect:
		err = c.id.Disconnect()
	case Destroy:
		err = c.id.Close()
	}
	return err
}

// event takes the next event, and reports whether a connection is done with the
// step.
func (r *run) event(ctx context.Context, s Step) (over bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.IdleTimeout, fmt.Errorf("%w for %v", interop.ErrNoProgress, r.cfg.IdleTimeout))
	defer cancel()
	e, err := r.ch.Get(ctx)
	if err != nil {
		return false, interop.Cause(ctx, err)
	}
	c, ok := e.ID.UserData().(*conn)
	if !ok {
		return false, nil
	}
	switch {
	case e.Type == endOf[s]:
		c.took[s] = time.Since(c.start)
		return true, nil
	case e.Type == cm.EventTimewaitExit:
		return false, nil
	case e.Type == cm.EventDisconnected: // too early
		return false, interop.ErrDisconnected
	case (e.Type == cm.EventAddrError || e.Type == cm.EventRouteError) && c.retries > 0:
		c.retries--
		return false, r.begin(c, s)
	}
	return false, unexpected(e)
}

// unexpected returns the error of an event that no step waits for.
func unexpected(e *cm.Event) error {
	if err := e.Err(); err != nil {
		return err
	}
	return errors.New(e.String())
}

func (r *run) explain(s Step, err error) error {
	if s == Connect {
		return link.Explain(context.Background(), r.server, err)
	}
	return fmt.Errorf("%v: %w", s, err)
}

func (r *run) result() Result {
	res := Result{Connections: len(r.conns)}
	for s := range res.Steps {
		t := Timing{Total: r.total[s]}
		for i := range r.conns {
			took := r.conns[i].took[s]
			t.Max = max(t.Max, took)
			if i == 0 || took < t.Min {
				t.Min = took
			}
		}
		res.Steps[s] = t
	}
	return res
}
