// Package mckey speaks the protocol of mckey (rdma-core 44): datagrams to a
// multicast group, and from it. A sender sends a number of messages to the
// group, with the number of its queue pair as immediate data, and the Q_Key of
// the connection manager. A receiver joins the group and takes as many.
//
// What is lost is not sent again, and the two sides do not know of each other:
// start the receivers first. A sender waits for 3 s before it sends, as the
// original does, so that switches have learned of the members by then.
//
// The original joins IPv4 groups only on RoCE v2. This package also takes part
// in IPv6 groups, where the device has an IPv6 address.
package mckey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/verbs"
)

// Defaults of Config, those of the original.
const (
	DefaultMessages = 10
	DefaultSize     = 100
	DefaultPause    = 3 * time.Second
)

// MaxConnections is the largest number of queue pairs.
const MaxConnections = 1000

// Config says what to run.
type Config struct {
	Group    netip.Addr // of the device's IP version
	Sender   bool
	SendOnly bool // a sender does not join the group, so it gets no copy of what is sent

	Connections int // queue pairs; 0 means 1
	Messages    int // of each queue pair; 0 means DefaultMessages
	Size        int // bytes of a message, at most the path MTU; 0 means DefaultSize

	TrafficClass uint8
	HopLimit     uint8         // how many routers a datagram passes; 0 means 64
	Pause        time.Duration // of a sender, before it sends; 0 means DefaultPause, a negative number none

	// LossTimeout ends the run of a receiver for which nothing came for so
	// long after its first message: the others are lost. 0 means 5 s.
	LossTimeout time.Duration

	// OnJoined, if set, is called when all queue pairs are members.
	OnJoined func()
}

// Result is what a run has come to.
type Result struct {
	Messages int           // sent or received, all queue pairs together
	Bytes    uint64        // of them
	From     netip.Addr    // of a receiver: the address that the first message came from
	Sender   verbs.QPN     // of a receiver: the queue pair that it names
	Elapsed  time.Duration // from the first message to the last
}

// Check returns nil if the configuration can be run on dev, else an
// *interop.ConfigError.
func (c Config) Check(dev *verbs.Device) error {
	_, err := c.withDefaults(dev)
	return err
}

func (c Config) withDefaults(dev *verbs.Device) (Config, error) {
	c.Connections = cmp.Or(c.Connections, 1)
	c.Messages = cmp.Or(c.Messages, DefaultMessages)
	c.Size = cmp.Or(c.Size, DefaultSize)
	c.Pause = max(cmp.Or(c.Pause, DefaultPause), 0)
	c.LossTimeout = cmp.Or(c.LossTimeout, 5*time.Second)
	mtu, most := dev.QueryPort().ActiveMTU.Bytes(), dev.Query().MaxQPWR
	switch {
	case !c.Group.IsMulticast():
		return c, interop.BadConfig("mckey: %v is no multicast address", c.Group)
	case c.Group.Is4() != dev.Addr().Is4():
		return c, interop.BadConfig("mckey: the group %v and the device %v are of different IP versions", c.Group, dev.Addr())
	case c.Connections < 1 || c.Connections > MaxConnections:
		return c, interop.BadConfig("mckey: the number of connections is %d; it must be between 1 and %d", c.Connections, MaxConnections)
	case c.Messages < 1 || c.Messages > most:
		return c, interop.BadConfig("mckey: the number of messages is %d; it must be between 1 and %d", c.Messages, most)
	case c.Size < 1 || c.Size > mtu:
		return c, interop.BadConfig("mckey: message_size %d is larger than active mtu %d, or less than 1", c.Size, mtu)
	case c.SendOnly && !c.Sender:
		return c, interop.BadConfig("mckey: a member that only sends does not receive")
	case c.LossTimeout < 0:
		return c, interop.BadConfig("mckey: the timeout is negative")
	}
	return c, nil
}

// Run sends or receives, whichever Config.Sender says. It returns when all
// messages are through, when some are lost, or when ctx ends.
func Run(ctx context.Context, dev *verbs.Device, c Config) (Result, error) {
	c, err := c.withDefaults(dev)
	if err != nil {
		return Result{}, err
	}
	r := &run{dev: dev, cfg: c}
	defer r.close()
	if err := r.join(); err != nil {
		return Result{}, fmt.Errorf("mckey: %w", err)
	}
	res, err := r.transfer(ctx)
	if err != nil {
		return res, fmt.Errorf("mckey: %w", interop.Cause(ctx, err))
	}
	return res, nil
}

// run is one run.
type run struct {
	dev     *verbs.Device
	cfg     Config
	members []*member
}

// member is one queue pair that takes part in the group.
type member struct {
	*link.Link
	count  link.Count
	from   netip.Addr
	sender verbs.QPN
	start  time.Time
	end    time.Time
}

// slot is the memory of a receive: the header of a datagram comes first.
func (r *run) slot() int { return verbs.GRHLen + r.cfg.Size }

func (r *run) close() {
	for _, m := range r.members {
		m.Close()
	}
}

// join makes the members, with all their receives posted.
func (r *run) join() error {
	for range r.cfg.Connections {
		l, err := link.New(r.dev, link.Config{
			QP:     verbs.QPConfig{Type: verbs.UD, MaxSendWR: r.cfg.Messages, MaxRecvWR: r.cfg.Messages},
			Memory: 2 * r.slot(),
		})
		if err != nil {
			return err
		}
		r.members = append(r.members, &member{Link: l})
		if err := l.QP.Init(); err != nil {
			return err
		}
		if !r.cfg.Sender {
			if err := r.postRecvs(l); err != nil {
				return err
			}
		}
		if err := l.QP.Activate(interop.CMQKey); err != nil {
			return err
		}
		if r.cfg.SendOnly {
			continue
		}
		if err := l.QP.Attach(r.cfg.Group); err != nil {
			return fmt.Errorf("join %v: %w", r.cfg.Group, err)
		}
	}
	if r.cfg.OnJoined != nil {
		r.cfg.OnJoined()
	}
	return nil
}

// postRecvs posts the receives of a member. The first has memory of its own,
// since its header names the sender.
func (r *run) postRecvs(l *link.Link) error {
	first := verbs.RecvWR{ID: link.RecvID, SGList: []verbs.SGE{l.MR.Slice(r.slot(), r.slot())}}
	if err := l.QP.PostRecv(first); err != nil {
		return err
	}
	return l.PostRecvs(r.cfg.Messages-1, r.slot())
}

func (r *run) transfer(ctx context.Context) (Result, error) {
	one := r.receive
	if r.cfg.Sender {
		one = r.send
		if err := pause(ctx, r.cfg.Pause); err != nil {
			return Result{}, err
		}
	}
	err := link.All(ctx, len(r.members), func(ctx context.Context, i int) error { return one(ctx, r.members[i]) })
	return r.result(), err
}

func (r *run) result() Result {
	var res Result
	var start, end time.Time
	for _, m := range r.members {
		res.Messages += m.count.Sent + m.count.Received
		res.From, res.Sender = cmp.Or(res.From, m.from), cmp.Or(res.Sender, m.sender)
		if start.IsZero() || m.start.Before(start) {
			start = m.start
		}
		if m.end.After(end) {
			end = m.end
		}
	}
	res.Bytes = uint64(res.Messages) * uint64(r.cfg.Size)
	if end.After(start) {
		res.Elapsed = end.Sub(start)
	}
	return res
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send sends the messages of one member.
func (r *run) send(ctx context.Context, m *member) error {
	ah, err := m.PD.CreateAH(verbs.AddressVector{DGID: r.cfg.Group, TrafficClass: r.cfg.TrafficClass, HopLimit: r.cfg.HopLimit})
	if err != nil {
		return err
	}
	defer ah.Close()
	m.start = time.Now()
	err = m.PostSends(r.cfg.Messages, verbs.SendWR{
		Opcode: verbs.OpSendImm, Imm: uint32(m.QP.QPN()), SGList: []verbs.SGE{m.MR.Slice(0, r.cfg.Size)},
		AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: interop.CMQKey,
	})
	if err != nil {
		return err
	}
	m.Begin(ctx, "multicast", nil, time.Minute)
	defer m.End()
	err = m.Until(&m.count, link.Count{Sent: r.cfg.Messages}, nil)
	m.end = time.Now()
	return err
}

// receive takes the messages of one member. It waits for the first one as long
// as it takes.
func (r *run) receive(ctx context.Context, m *member) error {
	m.Begin(ctx, "multicast", nil, 0)
	defer m.End()
	err := m.Until(&m.count, link.Count{Received: 1}, func(wc verbs.WC) error {
		m.start, m.sender = time.Now(), verbs.QPN(wc.Imm)
		if grh, err := verbs.ParseGRH(m.MR.Bytes()[r.slot():]); err == nil {
			m.from = grh.Src
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.Begin(ctx, "multicast", nil, r.cfg.LossTimeout)
	err = m.Until(&m.count, link.Count{Received: r.cfg.Messages}, nil)
	m.end = time.Now()
	if errors.Is(err, interop.ErrNoProgress) {
		return fmt.Errorf("%w: %d of %d messages came, then nothing for %v, and nobody repeats what is lost",
			ErrLost, m.count.Received, r.cfg.Messages, r.cfg.LossTimeout)
	}
	return err
}

// ErrLost is wrapped by the error of a receiver that did not get all messages.
var ErrLost = errors.New("messages were lost")
