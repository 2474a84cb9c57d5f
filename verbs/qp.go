package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// QPConfig says what a queue pair is made for. SendCQ and RecvCQ are required,
// and may be the same; they are open and of the same device as the domain. An
// XRCInitiator needs no RecvCQ, and an XRCTarget neither, and nothing of the
// protection domain: requests reach the memory of the domains of the SRQs that
// they name.
type QPConfig struct {
	Type       QPType // RC, UC, UD …; 0 means RC
	SendCQ     *CQ    // takes the completions of PostSend
	RecvCQ     *CQ    // takes the completions of PostRecv
	MaxSendWR  int    // entries of the send queue; 0 means 128
	XRCD       *XRCD  // of an XRCTarget: the domain of the SRQs that requests may name
	SRQ        *SRQ   // where receives come from, instead of a receive queue of the queue pair; or nil
	MaxRecvWR  int    // entries of the receive queue; 0 means 128
	MaxSendSGE int    // entries of a send's scatter/gather list; 0 means 4
	MaxRecvSGE int    // entries of a receive's scatter/gather list; 0 means 4; with an SRQ that says it
	MaxInline  int    // bytes that a request may carry in itself; 0 means 64
	SignalAll  bool   // every send completes with an entry, Signaled or not
	Congestion string // congestion control, as in Config.Congestion; "" means that of the device; UC and UD have none
	Number     QPN    // that a connection manager holds for it, as cm.Request.QPN; 0 is any
	UserData   any    // the program's own, see QP.UserData
}

// fill puts the defaults where nothing is given, as far as the device has them.
func (c *QPConfig) fill(most *ib.Limits) {
	if c.Type == 0 {
		c.Type = RC
	}
	for _, f := range []struct {
		field     *int
		def, most int
	}{
		{&c.MaxSendWR, 128, most.WR}, {&c.MaxRecvWR, 128, most.WR}, {&c.MaxSendSGE, 4, most.SGE}, {&c.MaxRecvSGE, 4, most.SGE},
		{&c.MaxInline, 64, most.Inline},
	} {
		if *f.field == 0 {
			*f.field = min(f.def, f.most)
		}
	}
	c.fillShared()
}

// check reports what is missing, or of no use for the type.
func (c *QPConfig) check() error {
	sends, receives := c.Type != XRCTarget, c.Type != XRCTarget && c.Type != XRCInitiator
	switch {
	case sends && c.SendCQ == nil || receives && c.RecvCQ == nil:
		if receives {
			return errors.New("SendCQ and RecvCQ must be set (they may be the same)")
		}
		return errors.New("SendCQ must be set")
	case !sends && c.XRCD == nil:
		return errors.New("an XRCTarget needs XRCD, the domain of the shared receive queues that requests may name")
	case sends && c.XRCD != nil:
		return fmt.Errorf("XRCD is for an XRCTarget, not for a queue pair of type %v", cmp.Or(c.Type, RC))
	case !receives && c.SRQ != nil:
		return fmt.Errorf("SRQ: a queue pair of type %v has no receives of its own; each request names an SRQ of the target's domain", c.Type)
	case c.Number != 0 && (c.Number < minNumber || c.Number >= MulticastQPN):
		return &RangeError{What: "Number", Got: int(c.Number), Min: minNumber, Max: int(MulticastQPN) - 1}
	}
	return nil
}

// minNumber is the least number of a queue pair: those below it are reserved.
const minNumber = 0x10

// fillShared puts what an SRQ says, and nothing where there is no queue.
func (c *QPConfig) fillShared() {
	switch {
	case c.SRQ != nil:
		c.MaxRecvWR, c.MaxRecvSGE = 0, c.SRQ.made.MaxSGE
	case c.Type == XRCInitiator:
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0
	case c.Type == XRCTarget:
		c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInline = 0, 0, 0, 0, 0
	}
}

// attach puts the objects that there are into config.
func (c *QPConfig) attach(config *qp.Config) {
	if c.Type == XRCTarget {
		config.PD, config.Domain = nil, c.XRCD.core
		return
	}
	config.SendCQ = c.SendCQ.core
	if c.Type != XRCInitiator {
		config.RecvCQ = c.RecvCQ.core
	}
	if c.SRQ != nil {
		config.RecvSource = c.SRQ.core
	}
}

// QP is a queue pair. Its methods may be called from any goroutine.
type QP struct {
	dev  *Device
	core *hca.QP
	made made

	modify sync.Mutex // held by Modify, which may wait for the link

	mu           sync.Mutex
	psn          PSN   // the first to send, until the next RESET; guarded by mu
	peerRdAtomic uint8 // Endpoint.MaxDestRdAtomic of the peer, 0: not known; guarded by mu
}

// made is the QPConfig of a queue pair, in a smaller form: there may be tens of
// thousands.
type made struct {
	sendCQ, recvCQ         *CQ
	xrcd                   *XRCD
	srq                    *SRQ
	userData               any
	maxSendWR, maxRecvWR   int32
	maxInline              int32
	maxSendSGE, maxRecvSGE int16
	typ                    QPType
	signalAll              bool
}

// madeOf returns c, whose sizes the device has accepted.
func madeOf(c *QPConfig) made {
	return made{
		sendCQ: c.SendCQ, recvCQ: c.RecvCQ, xrcd: c.XRCD, srq: c.SRQ, userData: c.UserData,
		maxSendWR: int32(c.MaxSendWR), maxRecvWR: int32(c.MaxRecvWR), maxInline: int32(c.MaxInline),
		maxSendSGE: int16(c.MaxSendSGE), maxRecvSGE: int16(c.MaxRecvSGE), typ: c.Type, signalAll: c.SignalAll,
	}
}

// errDeviceFailed is the error of what cannot work on a device without a link.
var errDeviceFailed = fmt.Errorf("the device has failed, because its link or the owner of its port has ended (EventDeviceFatal): close it, and open it anew: %w", ErrClosed)

// CreateQP makes a queue pair in state RESET. The error wraps ErrClosed or
// ErrOtherDevice, and says which object it is; or ErrNoResources; or a
// *RangeError, for a size that the device does not offer. It wraps ErrClosed
// also for a device that has failed.
func (pd *PD) CreateQP(c QPConfig) (*QP, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("verbs: create a queue pair: %w", err)
	}
	if pd.core.Closed() {
		return nil, fmt.Errorf("verbs: create a queue pair: its protection domain: %w", ErrClosed)
	}
	if pd.dev.core.Failed() {
		return nil, fmt.Errorf("verbs: create a queue pair: %w", errDeviceFailed)
	}
	most := pd.dev.core.Limits()
	c.fill(&most)
	config := qp.Config{
		Type:       c.Type,
		PD:         pd.core.Core(),
		MaxSendWR:  c.MaxSendWR,
		MaxRecvWR:  c.MaxRecvWR,
		MaxSendSGE: c.MaxSendSGE,
		MaxRecvSGE: c.MaxRecvSGE,
		MaxInline:  c.MaxInline,
		SignalAll:  c.SignalAll,
		QPN:        c.Number,
	}
	c.attach(&config)
	if c.Congestion != "" {
		if err := c.control(pd.dev, &config); err != nil {
			return nil, fmt.Errorf("verbs: create a queue pair: %w", err)
		}
	}
	core, err := pd.core.Context().CreateQP(config)
	if err != nil {
		return nil, fmt.Errorf("verbs: create a queue pair: %w", err)
	}
	q := &QP{dev: pd.dev, core: core, psn: pd.dev.core.RandomPSN(), made: madeOf(&c)}
	core.SetUserData(q)
	return q, nil
}

// QPN returns the queue pair number.
func (q *QP) QPN() QPN { return q.core.QPN() }

// datagrams reports whether the queue pair has no peer: each request says where
// it goes.
func (q *QP) datagrams() bool { return q.made.typ == UD || q.made.typ == GSI }

// Type returns the type of the queue pair.
func (q *QP) Type() QPType { return q.made.typ }

// Device returns the device of the queue pair.
func (q *QP) Device() *Device { return q.dev }

// UserData returns [QPConfig.UserData].
func (q *QP) UserData() any { return q.made.userData }

// State returns the current state.
func (q *QP) State() State { return q.core.State() }

// Query returns the current attributes.
func (q *QP) Query() Attr { return q.core.Attr() }

// Config returns what the queue pair was made for, with the defaults filled in.
func (q *QP) Config() QPConfig {
	m := &q.made
	return QPConfig{
		Type: m.typ, SendCQ: m.sendCQ, RecvCQ: m.recvCQ, XRCD: m.xrcd, SRQ: m.srq, UserData: m.userData,
		MaxSendWR: int(m.maxSendWR), MaxRecvWR: int(m.maxRecvWR), MaxInline: int(m.maxInline),
		MaxSendSGE: int(m.maxSendSGE), MaxRecvSGE: int(m.maxRecvSGE), SignalAll: m.signalAll,
	}
}

// Modify changes the state and attributes, by the rules of the state table
// (IBTA 11.2.5.2). Connect does the usual sequence. A queue pair that goes back
// to RESET gets a new starting PSN, so that no packet of the old connection
// fits into the next: give the peer the Endpoint anew.
//
// The error wraps a *ModifyError, a *RangeError, an *OpenError for a source
// port, or ErrClosed. Nothing was changed then.
func (q *QP) Modify(a *Attr, mask AttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	used := q.core.State() != StateReset
	if err := q.core.Modify(a, mask); err != nil {
		return fmt.Errorf("verbs: modify QP %v: %w", q.QPN(), err)
	}
	if mask&AttrState != 0 && a.State == StateInit {
		q.dev.seals.begin(q.QPN())
	}
	if used && mask&AttrState != 0 && a.State == StateReset {
		q.dev.seals.end(q, false)
		q.mu.Lock()
		q.psn = q.newPSN()
		q.mu.Unlock()
	}
	return nil
}

// SetRateLimit bounds how fast data is sent, in bits per second on the wire:
// Ethernet, IPv4, UDP, BTH, payload and ICRC. Requests and the answers to the
// peer's READs take turns. A READ counts with the responses that it asks for;
// what is sent again counts too. Acknowledgements are not paced. burst is how
// many bytes may go at once after a pause; 0 means what the rate gives in 4 ms,
// which is a good value: timers may be late by as much. The rate is rounded up
// to whole kb/s; 0 takes the bound away, and so does RESET.
//
// The queue pair is in RTS or SQD. The error wraps a *ModifyError, a
// *RangeError, or ErrClosed.
func (q *QP) SetRateLimit(bitsPerSecond uint64, burst int) error {
	kilobits := (bitsPerSecond + 999) / 1000
	switch {
	case kilobits > math.MaxUint32 || bitsPerSecond > math.MaxUint64-999:
		return fmt.Errorf("verbs: rate limit of QP %v: %d bits per second are more than the %d kb/s that can be set; 0 is no limit",
			q.QPN(), bitsPerSecond, uint32(math.MaxUint32))
	case burst < 0 || burst > math.MaxInt32:
		return fmt.Errorf("verbs: rate limit of QP %v: %w", q.QPN(), &RangeError{What: "burst", Got: burst, Max: math.MaxInt32})
	}
	return q.Modify(&Attr{RateLimit: uint32(kilobits), RateBurst: uint32(burst)}, AttrRateLimit)
}

// newPSN returns a random PSN that is not the one that q has. The caller holds
// mu.
func (q *QP) newPSN() PSN {
	psn := q.dev.core.RandomPSN()
	for psn == q.psn {
		psn = q.dev.core.RandomPSN()
	}
	return psn
}

func (q *QP) startPSN() PSN {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.psn
}

// setPeerRdAtomic records the Endpoint.MaxDestRdAtomic of the peer.
func (q *QP) setPeerRdAtomic(n uint8) {
	q.mu.Lock()
	q.peerRdAtomic = n
	q.mu.Unlock()
}

// maxRdAtomic returns how many READs and atomics the peer takes at once, as far
// as its Endpoint says.
func (q *QP) maxRdAtomic() uint8 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peerRdAtomic == 0 {
		return min(defaultRdAtomic, q.ownRdAtomic())
	}
	return min(q.peerRdAtomic, q.ownRdAtomic())
}

// PostSend posts requests to the send queue in order and starts sending them.
// The requests are copied, so that their slices may be reused at once, inline
// data too. The memory that SGList names belongs to the device until the
// completion.
//
// States RTS and SQD take requests; in ERR and SQE they complete at once with
// StatusWRFlushErr. The error is a *PostError, or wraps ErrClosed where no
// request is at fault. Wrong keys and addresses show in the completion.
func (q *QP) PostSend(wrs ...SendWR) error {
	n, err := q.core.PostSend(wrs)
	if err != nil && n < len(wrs) {
		return &PostError{Index: n, ID: wrs[n].ID, Err: err}
	}
	return err
}

// PostRecv posts buffers to the receive queue in order, from state INIT on;
// each takes one SEND, or tells of one WRITE with immediate data. Over UD a
// buffer begins with GRHLen bytes of header, before the data: it must be so
// much longer. A queue pair with an SRQ takes none (ErrShared), and neither
// does an XRCTarget: post to the SRQ. Otherwise it is as PostSend.
func (q *QP) PostRecv(wrs ...RecvWR) error {
	n, err := q.core.PostRecv(wrs)
	if err != nil && n < len(wrs) {
		return &PostError{Index: n, ID: wrs[n].ID, Err: err}
	}
	return err
}

// Close destroys the queue pair. Outstanding work no longer completes, and
// unread events are dropped. Completions that were delivered stay in their
// queues. A goroutine that waits for outstanding work in [CQ.Wait] waits on: to
// have the work complete with StatusWRFlushErr, go to StateErr by [QP.Modify]
// before Close.
func (q *QP) Close() error {
	err := q.core.Close()
	q.dev.seals.end(q, true)
	return err
}

// Endpoint is what a peer must know to connect. It is a plain value to be sent
// to the peer.
type Endpoint struct {
	// Addr is the address of the device, without zone. A zone that is there
	// is ignored, because zones are names of one host.
	Addr netip.Addr `json:"addr"`

	// QPN is the number of the queue pair.
	QPN QPN `json:"qpn"`

	// PSN is the first that this side sends.
	PSN PSN `json:"psn"`

	// PathMTU is the largest path MTU that this side's link carries.
	// Connect takes the smaller one of both sides unless it is told a path
	// MTU; without this one (0) it takes its own.
	PathMTU MTU `json:"path_mtu,omitempty"`

	// QKey is the Q_Key of a UD queue pair, for SendWR.RemoteQKey.
	QKey uint32 `json:"qkey,omitempty"`

	// Native says that this side is this software. Its buffers take more in
	// flight than is safe to send to others, it keeps packets that come
	// after a lost one, and it sends from one UDP port, so that packets
	// from other ports are dropped. QP.Endpoint sets it. Where a program
	// makes an Endpoint itself, for a peer that it learned of in another
	// way, Native stays false unless the peer is known to be this software:
	// towards others (Linux, adapters) it would lead to loss.
	Native bool `json:"native,omitempty"`

	// Slots is how many sockets the port of this side consists of, a power
	// of two, if they are more than one: the QPN modulo Slots chooses one.
	// Packets of one flow that the network has coalesced arrive together,
	// in the socket of the first of them. So a native peer on another host
	// sends from a UDP source port of its own to each socket that it has
	// queue pairs at. QP.Endpoint sets it.
	Slots uint16 `json:"slots,omitempty"`

	// MaxDestRdAtomic is how many READs and atomics this side takes at
	// once, if Connect is not told another number. 0 says nothing, as
	// versions before this field do.
	MaxDestRdAtomic uint8 `json:"max_dest_rd_atomic,omitempty"`
}

// String prints address, QPN and PSN.
func (e Endpoint) String() string {
	return fmt.Sprintf("%v QPN %v PSN 0x%06x", e.Addr, e.QPN, uint32(e.PSN))
}

// Endpoint returns this side's. The starting PSN was chosen at random when the
// queue pair was made, and is chosen anew when it goes back to RESET. Of a UD
// queue pair a peer needs the address, the number and the Q_Key that Activate
// has set.
func (q *QP) Endpoint() Endpoint {
	e := Endpoint{Addr: q.dev.Addr().WithZone(""), QPN: q.QPN(), PSN: q.startPSN(), PathMTU: q.dev.core.PathMTU(netip.Addr{}), Native: true,
		Slots: hca.PortSlots(q.dev.core)}
	if q.datagrams() {
		e.QKey = q.Query().QKey
	}
	if q.Type() != UC && !q.datagrams() {
		e.MaxDestRdAtomic = q.ownRdAtomic()
	}
	return e
}
