package perftest

import (
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// resources are what one side has for a test: memory, a completion queue and
// queue pairs. They know nothing of the peer.
type resources struct {
	dev   *verbs.Device
	cfg   *Config
	pd    *verbs.PD
	mr    *verbs.MR
	w     *work.Waiter
	lanes *lanes.Set

	grh    int   // bytes that precede a message in a receive
	slot   int   // bytes of one buffer; the first QPs slots are for sending, the others for the peer
	posted []int // receives posted and not used yet, by lane, or all in the first
}

// newResources makes them. Small messages go round in cycle bytes.
func newResources(dev *verbs.Device, role interop.Role, c *Config, cycle int) (*resources, error) {
	grh := lanes.GRH(c.Service)
	r := &resources{dev: dev, cfg: c, grh: grh, slot: slotSize(grh+c.Size, cycle), posted: make([]int, c.QPs)}
	if err := r.open(role); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// slotSize is the distance of two buffers: a message, or the cycle in which
// small messages go round, in whole pages.
func slotSize(size, cycle int) int {
	return (max(size, cycle) + pageSize - 1) &^ (pageSize - 1)
}

func (r *resources) open(role interop.Role) (err error) {
	c := r.cfg
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	access := verbs.LocalWrite | verbs.RemoteWrite
	switch c.Test.Verb {
	case Read:
		access |= verbs.RemoteRead
	case Atomic:
		access |= verbs.RemoteAtomic
	}
	if r.mr, err = r.pd.AllocMemory((c.QPs+c.records())*r.slot, access); err != nil {
		return err
	}
	rx := 1
	if c.Test.Verb == Send {
		rx = c.RxDepth
	}
	mode := work.Block
	switch {
	case c.Events:
		mode = work.Events
	case c.Test.Kind == Latency:
		mode = work.Spin
	}
	if r.w, err = work.NewWaiter(r.dev, c.QPs*(c.sendDepth()+rx), mode); err != nil {
		return err
	}
	client := role == interop.Client
	r.lanes, err = lanes.New(lanes.Config{
		Dev: r.dev, PD: r.pd, Service: c.Service, Shared: c.SharedReceives, Count: c.QPs, CQ: r.w.CQ,
		MaxSendWR: c.sendDepth(), MaxRecvWR: rx, MaxInline: c.Inline,
		Sends: client || c.duplex(), Receives: !client || c.duplex(),
	})
	return err
}

func (r *resources) close() {
	if r.lanes != nil {
		r.lanes.Close()
	}
	if r.w != nil {
		r.w.Close()
	}
	if r.mr != nil {
		r.mr.Close()
	}
	if r.pd != nil {
		r.pd.Close()
	}
}

// addresses returns what the peer must know of the queue pairs.
func (r *resources) addresses() (list []Address) {
	out := 1
	if r.cfg.Test.hasReadDepth() {
		out = r.cfg.OutstandingReads
	}
	for i := range r.cfg.records() {
		end := r.recordQP(i).Endpoint()
		list = append(list, Address{
			OutReads: uint16(out), QPN: end.QPN, PSN: end.PSN, RKey: r.mr.RKey(),
			VAddr: r.mr.Addr() + uint64(r.recordOffset(i)), GID: interop.GIDOf(end.Addr), SRQN: r.lanes.SRQN(),
		})
	}
	return list
}

// recordQP returns the queue pair that address i is of.
func (r *resources) recordQP(i int) *verbs.QP {
	l := &r.lanes.Lanes[i%r.cfg.QPs]
	if i >= r.cfg.QPs || l.Send == nil {
		return l.Recv
	}
	return l.Send
}

// sourceOffset and targetOffset say where in the region the two buffers of a
// lane are, recordOffset where the one is that an address tells of.
func (r *resources) sourceOffset(i int) int { return i * r.slot }
func (r *resources) targetOffset(i int) int { return r.recordOffset(r.cfg.receivers() + i) }
func (r *resources) recordOffset(i int) int { return (r.cfg.QPs + i) * r.slot }

// limitRate bounds what lane i sends, if the user wants that.
func (r *resources) limitRate(i int) error {
	if sender := r.lanes.Lanes[i].Send; r.cfg.RateLimit > 0 && sender != nil {
		return sender.SetRateLimit(r.cfg.RateLimit, 0)
	}
	return nil
}
