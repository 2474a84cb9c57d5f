package qptest

import (
	"math/rand/v2"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// xrcWorld makes a world one of XRC: each connection is an initiator and a
// target, the even ones from a to b and the odd ones back. Everything else is
// as in a world of RC, and the same must hold. It draws from numbers of its
// own.
type xrcWorld struct{ rng *rand.Rand }

// xrcSide is what a side of XRC has beyond one of RC.
type xrcSide struct {
	queues  []*worldSRQ // of a target
	window  *memreg.Window
	flushed bool // a receive was: the one in hand
}

// worldSRQ is a shared receive queue of a target.
type worldSRQ struct {
	qp.SRQ
	number uint32
}

// Next implements qp.RecvSource.
func (q *worldSRQ) Next(r *qp.Recv) bool {
	ok, _ := q.SRQ.Next(r)
	return ok
}

// worldDomain is the XRC domain of one target.
type worldDomain struct{ s *side }

// SRQ implements qp.XRCDomain.
func (d *worldDomain) SRQ(n uint32) (qp.RecvSource, *memreg.PD) {
	for _, q := range d.s.xrc.queues {
		if q.number == n {
			return q, d.s.ep.on.pd
		}
	}
	return nil, nil
}

// chooseXRC has a world of XRC have connections in both directions.
func (w *world) chooseXRC() {
	if w.xrc != nil {
		w.p.pairs++
		w.pairs = append(w.pairs, [2]*side{})
	}
}

// halve makes queue pair j of connection i an initiator or a target.
func (w *world) halve(i, j int, c *qp.Config) {
	switch {
	case w.xrc == nil:
	case i&1 == j:
		c.Type = ib.XRCInitiator
	default:
		c.Type, c.Domain = ib.XRCTarget, &worldDomain{}
	}
}

// connectXRC gives a target its shared receive queues.
func (s *side) connectXRC() {
	w := s.w
	if w.xrc == nil {
		return
	}
	s.xrc = &xrcSide{}
	if !s.isTarget() {
		return
	}
	s.config.Domain.(*worldDomain).s = s
	s.budget = 0
	for i := range 1 + w.xrc.rng.IntN(3) {
		q := &worldSRQ{number: uint32(i+1)<<20 | w.xrc.rng.Uint32()>>12}
		q.Init(w.recvRoom(), s.config.MaxRecvSGE, s.ep.on.pd, s.ep.recvCQ)
		s.xrc.queues = append(s.xrc.queues, q)
	}
}

func (s *side) isTarget() bool { return s.config.Type == ib.XRCTarget }

// recvRoom is for how many receives a side has memory.
func (w *world) recvRoom() int {
	if w.xrc == nil {
		return w.p.recvDepth
	}
	return 2*w.p.recvDepth + 8
}

// bindable is the right to bind windows to a region.
func (w *world) bindable() ib.Access {
	if w.xrc == nil {
		return 0
	}
	return accessBind
}

// wantsRecv reports whether the application posts another receive.
func (s *side) wantsRecv() bool {
	switch {
	case s.xrc == nil:
		return len(s.recvs)-s.recvPos < s.w.p.recvDepth
	case !s.isTarget() || s.ep.State() == ib.StateErr:
		return false
	}
	return len(s.recvs)-s.recvPos < s.w.p.recvDepth || s.starving() >= 0
}

// starving returns the queue that the next message asks for, if that is empty.
func (s *side) starving() int {
	if o, _ := s.nextMessage(); o != nil && s.waiting(o.queue) == 0 {
		return o.queue
	}
	return -1
}

// postRecv posts a receive, and says in which queue.
func (s *side) postRecv(wr *ib.RecvWR) (queue int, err error) {
	if s.xrc == nil {
		return 0, s.ep.PostRecv(wr)
	}
	if queue = s.starving(); queue < 0 {
		queue = s.w.xrc.rng.IntN(len(s.xrc.queues))
	}
	return queue, s.xrc.queues[queue].Post(wr)
}

// nextRecv returns the oldest receive that has not completed, of the queue that
// receive id is in.
func (s *side) nextRecv(id int) int {
	if s.xrc == nil || id >= len(s.recvs) {
		return s.recvPos
	}
	return s.oldest(s.recvs[id].queue)
}

// waiting counts the receives of a queue that have not completed.
func (s *side) waiting(queue int) (n int) {
	for _, r := range s.recvs {
		if !r.done && r.queue == queue {
			n++
		}
	}
	return n
}

func (s *side) oldest(queue int) int {
	for i, r := range s.recvs {
		if !r.done && r.queue == queue {
			return i
		}
	}
	return len(s.recvs)
}

// inHand returns the receive that the next message has, if that has begun.
func (s *side) inHand() int {
	switch o, _ := s.nextMessage(); {
	case s.xrc == nil:
		return s.recvPos
	case o == nil:
		return len(s.recvs)
	default:
		return s.oldest(o.queue)
	}
}

// aimXRC chooses the queue of a request, has a SEND with invalidate end a
// window of the target, and some WRITEs go through that window.
func (s *side) aimXRC(o *op, wr *ib.SendWR) {
	if s.xrc == nil {
		return
	}
	p, r := s.peer, s.w.xrc.rng
	o.queue = r.IntN(len(p.xrc.queues))
	wr.RemoteSRQN = p.xrc.queues[o.queue].number
	if s.xrc.window == nil && (o.kind == kindSendInv || r.IntN(3) == 0) {
		s.bindWindow()
	}
	switch {
	case o.kind == kindSendInv:
		o.inv = s.xrc.window.RKey()
		wr.InvalidateKey, s.xrc.window = o.inv, nil
	case o.kind.writes() && s.xrc.window != nil && s.w.p.fault != faultDeregister && r.IntN(3) == 0:
		wr.Remote.RKey = s.xrc.window.RKey()
	}
}

// bindWindow binds a window of the peer, for its queue pair alone. A region
// that has windows cannot be deregistered.
func (s *side) bindWindow() {
	n, reg, access := s.peer.ep.on, s.peer.targetReg, accessWrite
	if s.w.p.fault == faultDeregister {
		reg, access = s.peer.readonlyReg, accessRead
	}
	w, err := n.table.AllocWindow(n.pd, ib.MWType2)
	if err != nil {
		s.w.fail("AllocWindow: %v", err)
	}
	f := n.table.Bind(n.pd, s.peer.ep.qpn, &ib.BindMW{Window: w.RKey(), NewKey: w.RKey(), Region: reg.LKey(), Addr: reg.Addr(), Length: reg.Len(), Access: access})
	if f != ib.FaultNone {
		s.w.fail("Bind: %v", f)
	}
	s.xrc.window = w
}

// receivedXRC checks that a message took a receive of the queue that it names,
// and that the window has ended which it was to end.
func (s *side) receivedXRC(id int, r *recvOp, o *op) {
	if s.xrc == nil {
		return
	}
	if r.queue != o.queue {
		s.w.fail("%s: receive %d is of queue %d, and the message names queue %d", s.name, id, r.queue, o.queue)
	}
	if o.kind != kindSendInv {
		return
	}
	s.ended++
	n := s.ep.on
	for reg, access := range map[*memreg.Region]ib.Access{s.targetReg: accessWrite, s.readonlyReg: accessRead} {
		if v, f := n.table.Resolve(n.pd, s.ep.qpn, o.inv, reg.Addr(), 1, access); f == ib.FaultNone {
			v.Release()
			s.w.fail("%s: a SEND with invalidate has completed receive %d, and the window is there", s.name, id)
		}
	}
}

// flushedXRC checks that only the receive in hand is flushed, once.
func (s *side) flushedXRC(id int) {
	o, _ := s.nextMessage()
	if s.xrc.flushed || !s.w.p.forge && (o == nil || s.recvs[id].queue != o.queue) {
		s.w.fail("%s: receive %d is flushed, and was not in hand", s.name, id)
	}
	s.xrc.flushed = true
}

// faultHereXRC reports whether the world's fault belongs to this side: the one
// that can have it.
func (s *side) faultHereXRC() bool {
	from := int(s.w.seed % 2)
	switch f := s.w.p.fault; {
	case f.breaksResponder() || f == faultUnknownLKey || f == faultLocalBounds:
		from = 0
	case f == faultRecvTooSmall || f == faultDeregister:
		from = 1
	}
	return s == s.w.pairs[0][from]
}

// posted counts the requests between the two sides.
func (s *side) posted() int {
	if s.isTarget() {
		return len(s.peer.ops)
	}
	return len(s.ops)
}

// checkHalf checks that a packet is of the service, and of the half that its
// sender has.
func (f *sniffer) checkHalf(p *rocev2.Packet, info *rocev2.OpcodeInfo) {
	service, wrong := rocev2.ServiceRC, false
	if f.s.xrc != nil {
		service, wrong = rocev2.ServiceXRC, (info.Role == rocev2.RoleResponse) != f.s.isTarget()
	}
	if info.Operation == rocev2.OpSelectiveAck {
		service = info.Service
	}
	if info.Role != rocev2.RoleNotify && (info.Service != service || wrong) {
		f.w.fail("%s sends %v", f.s.name, p.BTH.Opcode)
	}
}

// checkNamed checks the extended header of a new packet: every request of XRC
// names the queue that the program has chosen (IBTA A14).
func (f *sniffer) checkNamed(p *rocev2.Packet) {
	if f.s.xrc == nil {
		return
	}
	if want := f.s.peer.xrc.queues[f.s.ops[f.op].queue].number; p.XRCETH != (rocev2.XRCETH{SRQN: want}) {
		f.w.fail("%s sends %v for queue %+v, not %#x", f.s.name, p.BTH.Opcode, p.XRCETH, want)
	}
}
