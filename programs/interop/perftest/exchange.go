package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// exchange is what the two sides say to each other after the greeting:
// addresses, handshakes, which are addresses that are not new, reports, and
// the end. It knows nothing of queue pairs.
type exchange struct {
	ctl      *control.Conn
	tasks    task.Runner
	cfg      *Config
	received func() uint64 // packets: while they come, the peer is at work
	greeting

	local, remote []Address
}

func newExchange(ctl *control.Conn, tasks task.Runner, c *Config, g greeting) *exchange {
	return &exchange{ctl: ctl, tasks: tasks, cfg: c, greeting: g, received: func() uint64 { return 0 }}
}

// readItem is a method of control.Conn that reads an item.
type readItem func(ctx context.Context, step string, b []byte) error

// swap sends an address message and returns that of the peer.
func (x *exchange) swap(ctx context.Context, step string, mine []byte, read readItem) (Address, error) {
	if x.ctl.Role() == interop.Client {
		if err := x.ctl.Write(ctx, step, mine); err != nil {
			return Address{}, err
		}
	}
	theirs := x.first
	if x.first = nil; theirs == nil {
		var err error
		if theirs, err = x.cfg.readAddress(ctx, read, step); err != nil {
			return Address{}, err
		}
	}
	if x.ctl.Role() == interop.Server {
		if err := x.ctl.Write(ctx, step, mine); err != nil {
			return Address{}, err
		}
	}
	return x.cfg.parseAddress(step, theirs)
}

// swapAddress exchanges the addresses of one queue pair. The peer answers at
// once.
func (x *exchange) swapAddress(ctx context.Context, step string, i int) (Address, error) {
	return x.swap(ctx, step, x.cfg.appendAddress(nil, x.local[i]), x.ctl.Read)
}

// address exchanges the addresses of one queue pair for the first time. dev may
// have connections with the peer at that address.
func (x *exchange) address(ctx context.Context, i int, dev *verbs.Device) error {
	a, err := x.swapAddress(ctx, fmt.Sprintf("address of queue pair %d of %d", i+1, len(x.local)), i)
	if err != nil {
		return err
	}
	if err := checkAddress(a, x.ctl, dev, x.cfg); err != nil {
		return err
	}
	if i > 0 && a.QPN == x.remote[i-1].QPN {
		return fmt.Errorf("the peer has %d queue pairs and this side %d: give both the same number (-q)", i, len(x.local))
	}
	x.remote[i] = a
	return nil
}

// addressAgain exchanges the addresses of one queue pair for the second time.
func (x *exchange) addressAgain(ctx context.Context, i int) error {
	_, err := x.swapAddress(ctx, fmt.Sprintf("second address of queue pair %d of %d", i+1, len(x.local)), i)
	return err
}

// noAddress exchanges messages without an address, before the connection
// manager connects the queue pairs, and after.
func (x *exchange) noAddress(ctx context.Context, step string) error {
	a, err := x.swap(ctx, step, make([]byte, binaryLen), x.ctl.Read)
	if err == nil && a != (Address{}) {
		err = errors.New("the two sides run different tests: only this side connects its queue pairs by the connection manager (-R)")
	}
	return err
}

// handshake has both sides wait for each other. The peer answers at once.
func (x *exchange) handshake(ctx context.Context, step string) error {
	_, err := x.swapAddress(ctx, step, 0)
	return err
}

// join is a handshake for which the peer may take long, as long as its packets
// keep coming.
func (x *exchange) join(ctx context.Context, step string) error {
	return x.await(ctx, func(ctx context.Context) error {
		_, err := x.swap(ctx, step, x.cfg.appendAddress(nil, x.local[0]), x.ctl.Await)
		if err != nil && !x.cfg.Service.Reliable() {
			return fmt.Errorf("%w (the peer may wait for messages that were lost: %v does not repeat them)", err, x.cfg.Service)
		}
		return err
	})
}

// await bounds the silence of the peer while f waits for it on the control
// connection.
func (x *exchange) await(ctx context.Context, f func(context.Context) error) error {
	g := work.NewGuard(ctx, x.tasks, x.cfg.IdleTimeout, x.received, nil)
	defer g.Stop()
	err := f(g.Ctx)
	if g.Ctx.Err() != nil && err != nil {
		return fmt.Errorf("wait for the peer: %w", context.Cause(g.Ctx))
	}
	return err
}

// ready is the handshake before a run: receives are posted.
func (x *exchange) ready(ctx context.Context) error { return x.join(ctx, "handshake before the run") }

// over is the handshake after a run.
func (x *exchange) over(ctx context.Context) error { return x.join(ctx, "handshake after the run") }

// reports exchanges results.
func (x *exchange) reports(ctx context.Context, mine report) (theirs report, err error) {
	err = x.await(ctx, func(ctx context.Context) (err error) {
		theirs, err = swapReports(ctx, x.ctl, mine)
		return err
	})
	return theirs, err
}

// swapReports exchanges results, item by item.
func swapReports(ctx context.Context, ctl *control.Conn, mine report) (report, error) {
	var theirs [5]uint64
	for i, v := range mine.items() {
		var b [reportLen]byte
		step := fmt.Sprintf("report, item %d of 5", i+1)
		if err := ctl.Join(ctx, step, binary.BigEndian.AppendUint64(nil, v), b[:]); err != nil {
			return reportOf(theirs), err
		}
		theirs[i] = binary.BigEndian.Uint64(b[:])
	}
	return reportOf(theirs), nil
}

// finishLimit bounds the wait for the peer to end the connection too.
const finishLimit = 2 * time.Second

// bye closes the connection: a handshake, then both sides say that they are
// done and read no more.
func (x *exchange) bye(ctx context.Context) error {
	if err := x.over(ctx); err != nil {
		return err
	}
	if x.cfg.CM == NoCM {
		x.ctl.Write(ctx, "end", []byte(done)) // the peer may be gone by now, and may
	}
	x.ctl.Finish(finishLimit)
	return nil
}

// remoteOf returns the address of what receives the requests of lane i.
func (x *exchange) remoteOf(i int) Address { return x.remote[x.cfg.receivers()+i] }

// peerOf returns the other end of lane i.
func (x *exchange) peerOf(i int) lanes.Peer {
	from, to := x.remote[i], x.remoteOf(i)
	return lanes.Peer{
		Addr: to.GID.Addr(), SendQPN: from.QPN, SendPSN: from.PSN, RecvQPN: to.QPN, RecvPSN: to.PSN, SRQN: to.SRQN, Native: x.own,
	}
}
