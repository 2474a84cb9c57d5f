package verbs

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// ConnectConfig holds what the two sides of a connection agree on. The zero
// value of each field means the default that it names.
type ConnectConfig struct {
	// PathMTU is the path MTU, see MTUOf; both sides need the same. By
	// default it is the largest that the links of both sides and the way to
	// the peer carry, as far as that is known here.
	PathMTU MTU

	// Access is what the peer may do. The default is RemoteWrite,
	// RemoteRead, RemoteAtomic, FlushGlobal and FlushPersistent; LocalWrite
	// alone grants nothing. The rights of a region come on top.
	Access Access

	// Timeout is the code of the local ACK timeout, 4.096 µs × 2^Timeout.
	// The default is 14, which is 67 ms.
	Timeout uint8

	// RetryCount is how many times, up to 7, a request is sent again before
	// it fails with StatusRetryExcErr. The default is 7.
	RetryCount OptUint8

	// RNRRetry is how many times a request is sent again because the peer
	// has no receive posted, before it fails with StatusRNRRetryExcErr. 7
	// means for ever, and is the default.
	RNRRetry OptUint8

	// MinRNRTimer is the code of the time that the peer waits when this
	// side has no receive posted, see Attr.MinRNRTimer. The default is 12,
	// which is 0.64 ms.
	MinRNRTimer OptUint8

	// MaxRdAtomic is how many READs and atomics this side may have
	// outstanding. More than the peer's MaxDestRdAtomic make no sense. The
	// default is Endpoint.MaxDestRdAtomic of the peer, and 16 if that says
	// nothing.
	MaxRdAtomic OptUint8

	// MaxDestRdAtomic is how many READs and atomics the peer may have
	// outstanding. The default is what this side's Endpoint says towards a
	// peer whose Endpoint says a number too, and 16 towards others. If it
	// is less, give the peer a MaxRdAtomic that is no more.
	MaxDestRdAtomic OptUint8

	// TrafficClass has the DSCP, and in the low 2 bits the ECN field: 2,
	// ECT(0), lets switches mark packets before they drop them. The default
	// is 0.
	TrafficClass uint8

	// HopLimit is the hop limit (IPv6) or TTL (IPv4). The default is 64.
	HopLimit uint8

	// SourcePort is the UDP source port, 49152 to 65535, or AutoSourcePort.
	// The default is the device's own, 4791, but for peers that have
	// Endpoint.Slots. See WithSourcePort.
	SourcePort uint16
}

// AutoSourcePort, as [ConnectConfig.SourcePort] or [AddressVector.SrcPort],
// stands for the port that Linux would choose from the two queue pair numbers.
const AutoSourcePort = hca.AutoSourcePort

// MaxSourcePorts is how many UDP source ports beside its own a device can send
// from.
const MaxSourcePorts = udp.MaxSourcePorts

// OptUint8 is a number that may be left out. Set makes one.
type OptUint8 struct {
	set   bool
	value uint8
}

// Set returns v as a number that was given.
func Set(v uint8) OptUint8 { return OptUint8{set: true, value: v} }

// Or returns the number, or def if none was given.
func (o OptUint8) Or(def uint8) uint8 { return o.or(def) }

func (o OptUint8) or(def uint8) uint8 {
	if o.set {
		return o.value
	}
	return def
}

// ConnectOption adjusts Connect.
type ConnectOption func(*ConnectConfig)

// WithConfig replaces the whole configuration; options after it adjust it.
func WithConfig(c ConnectConfig) ConnectOption { return func(dst *ConnectConfig) { *dst = c } }

// WithMTU sets the path MTU: MTU256 to MTU4096, or what MTUOf makes of a number
// of bytes. Both sides must use the same; ReadyToReceive and Connect fail where
// this side's way to the peer does not carry it.
func WithMTU(m MTU) ConnectOption { return func(c *ConnectConfig) { c.PathMTU = m } }

// WithSourcePort sends the packets of this queue pair from UDP source port
// port, 49152 to 65535. With AutoSourcePort the port depends on the two queue
// pair numbers. Networks with several ways (ECMP) and adapters with several
// queues (RSS) spread flows by the source port; the packets of a queue pair
// share one way and keep their order. The peer need not do the same. It sends
// to port 4791 in any case.
//
// A device has at most MaxSourcePorts such ports, and keeps them until it is
// closed. Connect fails when another process has the port, and when the device
// has its maximum. AutoSourcePort then takes another port: thousands of queue
// pairs share them. Query().AV.SrcPort is the port in use.
//
// A peer that runs this software recognises it by source port 4791, and then
// keeps more in flight to this side than to other stacks. A peer that was given
// this side's Endpoint as it is knows without. It accepts packets of this queue
// pair only from the port of the first one: to change the port, connect anew.
func WithSourcePort(port uint16) ConnectOption {
	return func(c *ConnectConfig) { c.SourcePort = port }
}

// Connect takes the queue pair from RESET to RTS towards peer. It exchanges no
// packet: both sides call it, each with the other's Endpoint, and a request
// that is sent before the peer has done so is repeated. Post receives before
// the peer may send: call Init first, post, then Connect.
//
// A queue pair that is connected or in ERR goes back to RESET first, by
// Modify(&Attr{State: StateReset}, AttrState), and both sides exchange their
// Endpoints anew.
//
// UC connects in the same way, but nothing is repeated: post receives, connect,
// and send when the peer has connected, too. UD has no peer: see Activate.
//
// The error wraps that of ctx or of Modify. A state other than RESET and INIT
// is ErrTransition, and a source port that cannot be had is an *OpenError. The
// queue pair may then be in INIT or RTR.
func (q *QP) Connect(ctx context.Context, peer Endpoint, opts ...ConnectOption) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verbs: connect QP %v: %w", q.QPN(), err)
	}
	if q.datagrams() {
		return fmt.Errorf("verbs: connect QP %v: %w", q.QPN(), &ModifyError{
			From: q.State(), To: StateRTR, Type: q.Type(), Attr: AttrAV, Err: ErrAttrNotAllowed,
			Detail: "it has no peer; use Activate, and address handles",
		})
	}
	if err := q.toInit("connect", ", and exchange Endpoints anew", opts); err != nil {
		return err
	}
	if err := q.ReadyToReceive(peer, opts...); err != nil {
		return err
	}
	return q.ReadyToSend(opts...)
}

// toInit takes the queue pair to INIT, or refuses.
func (q *QP) toInit(doing, next string, opts []ConnectOption) error {
	switch s := q.State(); s {
	case StateReset:
		return q.Init(opts...)
	case StateInit:
		return nil
	default:
		return fmt.Errorf("verbs: %s QP %v: %w", doing, q.QPN(), &ModifyError{
			From: s, To: StateRTR, Type: q.Type(), Err: ErrTransition,
			Detail: "reset the queue pair first, by Modify to StateReset" + next,
		})
	}
}

// Activate takes a UD queue pair from RESET, or INIT, to RTS: from now on it
// takes datagrams that come with the Q_Key qkey. A GSI queue pair has the Q_Key
// of the standard, and qkey is ignored. To have receives posted before the
// first datagram, call Init, post, then Activate. The options are those of
// Connect; none has an effect on datagrams yet.
//
// The error wraps that of Modify. A queue pair of another type is
// ErrAttrNotAllowed, and a state other than RESET and INIT is ErrTransition.
func (q *QP) Activate(qkey uint32, opts ...ConnectOption) error {
	if !q.datagrams() {
		return fmt.Errorf("verbs: activate QP %v: %w", q.QPN(), &ModifyError{
			From: q.State(), To: StateRTR, Type: q.Type(), Attr: AttrQKey, Err: ErrAttrNotAllowed,
			Detail: "it is connected with a peer; use Connect",
		})
	}
	if err := q.toInit("activate", "; to have another Q_Key alone, Modify with AttrQKey", opts); err != nil {
		return err
	}
	if err := q.Modify(&Attr{State: StateRTR, QKey: qkey}, AttrState|AttrQKey); err != nil {
		return err
	}
	return q.ReadyToSend(opts...)
}

// Init takes the queue pair from RESET to INIT, in which receives can be
// posted.
func (q *QP) Init(opts ...ConnectOption) error {
	c := q.connectConfig(opts)
	switch q.Type() {
	case UD:
		return q.Modify(&Attr{State: StateInit, Port: 1}, AttrState|AttrPKeyIndex|AttrPort|AttrQKey)
	case GSI:
		return q.Modify(&Attr{State: StateInit}, AttrState|AttrPKeyIndex|AttrQKey)
	}
	return q.Modify(&Attr{State: StateInit, Port: 1, Access: c.Access},
		AttrState|AttrPKeyIndex|AttrPort|AttrAccess)
}

// ReadyToReceive takes the queue pair from INIT to RTR: it answers the peer.
func (q *QP) ReadyToReceive(peer Endpoint, opts ...ConnectOption) error {
	c := q.connectConfig(opts)
	if c.PathMTU == 0 {
		var err error
		if c.PathMTU, err = q.defaultMTU(peer); err != nil {
			return err
		}
	}
	q.setPeerRdAtomic(peer.MaxDestRdAtomic)
	if peer.QPN == 0 && peer.Addr.IsValid() { // Modify refuses the address
		return q.badPeer(AttrDestQPN, "its QPN is 0, so it was not filled in")
	}
	mask := AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	if q.Type() == RC || q.Type() == XRCTarget {
		mask |= AttrMaxDestRdAtomic | AttrMinRNRTimer
	}
	return q.Modify(&Attr{
		State: StateRTR,
		AV: AddressVector{DGID: peer.Addr, TrafficClass: c.TrafficClass, HopLimit: c.HopLimit,
			SrcPort: c.SourcePort, Native: peer.Native, Slots: peer.Slots},
		PathMTU:         c.PathMTU,
		DestQPN:         peer.QPN,
		RQPSN:           peer.PSN,
		MaxDestRdAtomic: c.MaxDestRdAtomic.or(q.maxDestRdAtomic(peer)),
		MinRNRTimer:     c.MinRNRTimer.or(defaultMinRNRTimer),
	}, mask)
}

// defaultMTU returns the path MTU of a connection where the program chooses
// none: the two sides, each with the other's Endpoint, arrive at the same.
func (q *QP) defaultMTU(peer Endpoint) (MTU, error) {
	most := q.dev.core.PathMTU(peer.Addr)
	switch {
	case peer.PathMTU == 0:
		return most, nil
	case !peer.PathMTU.Valid():
		return 0, q.badPeer(AttrPathMTU, peer.PathMTU.Err().Error())
	}
	return min(most, peer.PathMTU), nil
}

// badPeer says what is wrong with the Endpoint of the peer.
func (q *QP) badPeer(attr AttrMask, why string) error {
	return fmt.Errorf("verbs: connect QP %v: %w", q.QPN(), &ModifyError{
		From: q.State(), To: StateRTR, Type: q.Type(), Attr: attr, Detail: "the peer's Endpoint: " + why, Err: ErrAttrValue,
	})
}

// ownRdAtomic returns how many READs and atomics the device has, either way.
func (q *QP) ownRdAtomic() uint8 { return uint8(q.dev.core.Limits().RdAtomic) }

// maxDestRdAtomic returns how many READs and atomics this side takes at once
// from a peer. One whose Endpoint says nothing of them does not know of the
// number in this side's.
func (q *QP) maxDestRdAtomic(peer Endpoint) uint8 {
	if peer.MaxDestRdAtomic == 0 {
		return min(defaultRdAtomic, q.ownRdAtomic())
	}
	return q.ownRdAtomic()
}

// ReadyToSend takes the queue pair from RTR to RTS.
func (q *QP) ReadyToSend(opts ...ConnectOption) error {
	c := q.connectConfig(opts)
	mask := AttrState | AttrSQPSN
	switch q.Type() {
	case RC, XRCInitiator:
		mask |= AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrMaxRdAtomic
	case XRCTarget:
		mask |= AttrTimeout
	}
	return q.Modify(&Attr{
		State:       StateRTS,
		SQPSN:       q.startPSN(),
		Timeout:     c.Timeout,
		RetryCount:  c.RetryCount.or(defaultRetryCount),
		RNRRetry:    c.RNRRetry.or(defaultRNRRetry),
		MaxRdAtomic: c.MaxRdAtomic.or(q.maxRdAtomic()),
	}, mask)
}

const (
	defaultTimeout     = 14
	defaultRetryCount  = 7
	defaultRNRRetry    = 7
	defaultMinRNRTimer = 12
	defaultRdAtomic    = 16
	defaultHopLimit    = 64
)

func (q *QP) connectConfig(opts []ConnectOption) ConnectConfig {
	var c ConnectConfig
	for _, f := range opts {
		f(&c)
	}
	if c.Access == 0 {
		c.Access = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.HopLimit == 0 {
		c.HopLimit = defaultHopLimit
	}
	return c
}
