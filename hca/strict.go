package hca

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Checks is what a device in strict mode has beside the others. Without it each
// of its hooks is a look at a nil pointer. Its exported methods may be called
// on nil.
type Checks struct {
	*strict.Checker
	dev *Device

	mu  sync.RWMutex
	qps map[rocev2.QPN]*checkedQP

	denied sync.Mutex
	local  map[ib.Key]memreg.Access // the last one of this side that was refused, by key
	last   memreg.Access            // of them
}

// newChecks returns the checks of a device, nil if there is nothing to check.
func newChecks(d *Device, k *strict.Checker) *Checks {
	if k == nil {
		return nil
	}
	c := &Checks{Checker: k, dev: d, qps: map[rocev2.QPN]*checkedQP{}, local: map[ib.Key]memreg.Access{}}
	d.mem.Watch(c.accessed)
	return c
}

// Strict returns the checks of a device in strict mode, nil of another one.
func (d *Device) Strict() *Checks { return d.checks }

// Findings returns what was found.
func (c *Checks) Findings() []strict.Finding {
	if c == nil {
		return nil
	}
	c.mu.RLock()
	open := slices.Collect(maps.Values(c.qps))
	c.mu.RUnlock()
	for _, q := range open {
		q.countRNR()
	}
	return c.Checker.Findings()
}

// checkedQP is what a queue pair in strict mode has.
type checkedQP struct {
	*Checks
	qp        *QP
	pd        *memreg.PD
	slots     *strict.Slots // nil: another keeps count
	sendCQ    *CQ           // or nil
	recvCQ    *CQ
	signalAll bool
	shared    bool // receives come from a shared queue

	// Guarded by the shard's lock:
	watched         bool // requests are known
	compares        bool // their memory is compared
	poisons         bool // it is poisoned
	poisonsReceives bool
	requests        strict.Queue[request]  // that have not completed
	silent          strict.Queue[request]  // that have, and the program cannot know; the last ones
	receives        strict.Queue[poisoned] // that have not completed
	depth           int                    // of the send queue

	mu     sync.Mutex
	rnr    uint64        // messages without a receive that were recorded
	denied memreg.Access // the last one of the peer that was refused
}

// check returns what a queue pair of config has in strict mode.
func (c *Checks) check(q *QP, config *qp.Config) *checkedQP {
	if c == nil {
		return nil
	}
	k := &checkedQP{Checks: c, qp: q, pd: config.PD, signalAll: config.SignalAll, shared: config.RecvSource != nil, depth: config.MaxSendWR}
	k.sendCQ, _ = config.SendCQ.(*CQ)
	k.recvCQ, _ = config.RecvCQ.(*CQ)
	if k.sendCQ != nil && c.On(strict.Unsignaled) {
		k.slots = strict.NewSlots(config.MaxSendWR, config.MaxRecvWR)
	}
	k.watch(config)
	return k
}

// enter has the completions of the queue pair be looked at.
func (k *checkedQP) enter() {
	k.Checks.mu.Lock()
	k.Checks.qps[k.qp.QPN()] = k
	k.Checks.mu.Unlock()
}

// leave ends what enter has begun.
func (k *checkedQP) leave() {
	k.countRNR()
	k.Checks.mu.Lock()
	delete(k.Checks.qps, k.qp.QPN())
	k.Checks.mu.Unlock()
}

// countRNR records the messages for which there was no receive.
func (k *checkedQP) countRNR() {
	if k.qp.typ == ib.GSI { // of a connection manager, whose peers ask again
		return
	}
	st := k.qp.Stats()
	k.mu.Lock()
	all := st.RNRSent
	if !k.qp.core.Core().Reliable() {
		all = st.Drops.RNR
	}
	n := all - k.rnr
	k.rnr = all
	k.mu.Unlock()
	if n > 0 {
		k.Found(strict.NoReceive, strict.Finding{Count: n, QPN: uint32(k.qp.QPN()), Detail: "a message came and the receive queue was empty"})
	}
}

// Errors of posts that strict mode refuses. They are made once: a caller may
// post again and again.
var (
	errNeverFree = fmt.Errorf("%w: strict rule %v: none of the requests in it is signaled, so no completion frees a slot: signal at least one in MaxSendWR",
		ib.ErrQueueFull, strict.Unsignaled)
	errNotPolled = fmt.Errorf("%w: in strict mode that is when the completion of a later signaled request was polled", ib.ErrQueueFull)
	errRecvFull  = fmt.Errorf("%w: in strict mode that is when the completion of a receive was polled", ib.ErrQueueFull)
	errReadSGE   = fmt.Errorf("%w: a READ of this profile has fewer than a SEND", ib.ErrTooManySGE)
)

// postSend is QP.PostSend by post, with the shard locked; whole says that post
// takes all or none. It returns what post does.
func (k *checkedQP) postSend(post func(*engine.QP, []ib.SendWR) (int, error), wrs []ib.SendWR, whole bool) (int, error) {
	n, refused := k.admit(wrs)
	if refused != nil && whole {
		k.unsend(wrs[:n])
		return n, refused
	}
	if k.watched {
		k.watchSends(wrs[:n])
	}
	done, err := post(k.qp.core, wrs[:n])
	if k.watched && err != nil {
		back := n - done
		if whole {
			back = n
		}
		k.forgetSends(back)
	}
	if err == nil {
		err = refused
	}
	k.qp.transmit()
	return done, err
}

// reset says that the queue pair is in RESET.
func (k *checkedQP) reset() {
	if k == nil {
		return
	}
	k.forgetAll()
	if k.slots != nil {
		k.slots.Reset()
	}
}

// unsend gives back the slots of requests.
func (k *checkedQP) unsend(wrs []ib.SendWR) {
	for i := range wrs {
		if k.slots != nil {
			k.slots.Unsend(k.signaled(&wrs[i]))
		}
	}
}

func (k *checkedQP) signaled(wr *ib.SendWR) bool { return wr.Signaled || k.signalAll }

// admit takes slots for requests. It returns how many have one, and what keeps
// the next one from it.
func (k *checkedQP) admit(wrs []ib.SendWR) (n int, err error) {
	for i := range wrs {
		wr := &wrs[i]
		if wr.Opcode.Known() && wr.Opcode.Is(ib.OpReads) && len(wr.SGList) > k.dev.limits.ReadSGE {
			return i, errReadSGE
		}
		if k.sendCQ != nil {
			k.Posting(k.qp.QPN(), wr)
		}
		if k.slots == nil {
			continue
		}
		full, never := k.slots.Send(k.signaled(wr))
		switch {
		case never:
			k.Found(strict.Unsignaled, strict.Finding{QPN: uint32(k.qp.QPN()), WRID: wr.ID,
				Detail: "the send queue is full of requests that are not signaled: nothing frees it"})
			return i, errNeverFree
		case full:
			return i, errNotPolled
		}
	}
	return len(wrs), nil
}

// Posting looks at a request that is about to be posted. A face that has
// completion queues of its own, and IDs of its own in requests, calls it.
func (c *Checks) Posting(qpn rocev2.QPN, wr *ib.SendWR) {
	if wr.Opcode.Known() && (wr.Opcode.Is(ib.OpAtomic) || wr.Opcode == ib.OpAtomicWrite) && wr.Remote.Addr%8 != 0 {
		c.Found(strict.AtomicAlign, strict.Finding{QPN: uint32(qpn), WRID: wr.ID, Key: uint32(wr.Remote.RKey), Addr: wr.Remote.Addr,
			Detail: "an atomic was posted for an address that is not a multiple of 8"})
	}
}

// On reports whether a rule is on.
func (c *Checks) On(r strict.Rule) bool { return c != nil && c.Checker.On(r) }

// postRecv is QP.PostRecv with the shard locked.
func (k *checkedQP) postRecv(e *engine.Engine, wrs []ib.RecvWR) (int, error) {
	counted := k.slots != nil && !k.shared
	n := 0
	for n < len(wrs) && (!counted || k.slots.Receive()) {
		n++
	}
	k.watchReceives(wrs[:n])
	done, err := e.PostRecv(k.qp.core, wrs[:n])
	if counted {
		k.slots.Unreceive(n - done)
	}
	k.forgetReceives(n - done)
	if err == nil && n < len(wrs) {
		err = errRecvFull
	}
	return done, err
}

// polled looks at completions that a program has taken.
func (c *Checks) polled(wc []ib.WC) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range wc {
		w := &wc[i]
		k := c.qps[w.QPN]
		switch {
		case k == nil || k.slots == nil:
		case w.Opcode >= ib.WCRecv:
			k.slots.ReceivePolled()
		default:
			k.slots.SentPolled()
		}
	}
}

// Completed looks at a completion. A face that has completion queues of its own
// calls it.
func (c *Checks) Completed(w *ib.WC) {
	if c != nil {
		c.completed(w)
	}
}

func (c *Checks) completed(w *ib.WC) {
	switch w.Status {
	case ib.StatusRNRRetryExcErr:
		c.Found(strict.RNRRetry, strict.Finding{QPN: uint32(w.QPN), WRID: w.ID, Detail: "the peer had no receive, and the retries are used up"})
	case ib.StatusLocProtErr:
		if w.Opcode >= ib.WCRecv { // others: watchedSends
			c.deniedLocal(w, nil)
		}
	}
}

// deniedLocal records a request of this side that has failed for its own
// memory, which its list names. Without a list it is the last one that did.
func (c *Checks) deniedLocal(w *ib.WC, list []ib.SGE) {
	c.denied.Lock()
	a := c.last
	for i := range list {
		if of, ok := c.local[list[i].LKey]; ok && of.Fault == w.Fault() {
			a = of
			break
		}
	}
	c.denied.Unlock()
	if a.Fault != ib.FaultNone && a.Fault == w.Fault() {
		c.refused(a, strict.Finding{QPN: uint32(w.QPN), WRID: w.ID, Detail: "a request"})
	}
}

// mostDenied is how many keys are known of accesses that were refused.
const mostDenied = 4096

// happened looks at an event of the queue pair. The shard is locked.
func (k *checkedQP) happened(e ib.Event) {
	if e != ib.EventQPAccessError && e != ib.EventQPRequestError {
		return
	}
	k.mu.Lock()
	a := k.denied
	k.denied = memreg.Access{}
	k.mu.Unlock()
	if a.Key != 0 {
		k.refused(a, strict.Finding{QPN: uint32(a.QPN), Detail: "a request of the peer"})
	}
}

// accessed remembers an access to memory that is refused. Whether it counts
// what comes of it shows: a request that was sent again may meet memory that is
// gone, and is answered with nothing.
func (c *Checks) accessed(a memreg.Access) {
	misaligned := a.Fault == ib.FaultNone && a.Need&ib.RemoteAtomic != 0 && a.Addr%8 != 0
	if misaligned {
		a.Fault = ib.FaultMisaligned
	}
	switch {
	case a.Fault == ib.FaultNone:
	case a.QPN == 0:
		c.denied.Lock()
		if len(c.local) >= mostDenied {
			clear(c.local)
		}
		c.local[a.Key], c.last = a, a
		c.denied.Unlock()
	default:
		c.mu.RLock()
		k := c.qps[a.QPN]
		c.mu.RUnlock()
		switch {
		case k == nil:
		case k.qp.core.Core().Reliable():
			k.mu.Lock()
			k.denied = a
			k.mu.Unlock()
		default: // nothing is sent again, and the peer is not told
			k.refused(a, strict.Finding{QPN: uint32(a.QPN), Detail: "a request of the peer"})
		}
	}
}

// refused records an access that was refused; f says whose it was.
func (c *Checks) refused(a memreg.Access, f strict.Finding) {
	f.Key, f.Addr, f.Length = uint32(a.Key), a.Addr, a.Length
	switch {
	case a.Fault == ib.FaultMisaligned:
		f.Detail += ": an atomic at an address that is not a multiple of 8"
		c.Found(strict.AtomicAlign, f)
	case a.Ended:
		f.Detail += " names a key that has ended: its memory was deregistered, or it was invalidated"
		c.Found(strict.StaleKey, f)
	default:
		f.Detail += ": " + a.Fault.Error()
		c.Found(strict.BadAccess, f)
	}
}

// overrun has all queue pairs that complete into a queue end, which a
// completion has found full. The caller holds the queue's lock, and a shard's.
func (c *Checks) overrun(cq *CQ, w *ib.WC) {
	c.Found(strict.CQOverrun, strict.Finding{QPN: uint32(w.QPN), WRID: w.ID,
		Detail: fmt.Sprintf("a completion found its queue of %d entries full", cq.size)})
	c.dev.Later(func() {
		c.mu.RLock()
		open := slices.Collect(maps.Values(c.qps))
		c.mu.RUnlock()
		for _, k := range open {
			if k.sendCQ == cq || k.recvCQ == cq {
				_ = k.qp.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState) // or it is in RESET, or closed
			}
		}
	})
}
