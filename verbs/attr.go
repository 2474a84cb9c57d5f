package verbs

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// QPN is a queue pair number, 24 bits. String prints it in hexadecimal.
type QPN = rocev2.QPN

// PSN is a packet sequence number, 24 bits. It counts packets and wraps around.
type PSN = rocev2.PSN

// QPType is the type of a queue pair, with the numbers of ibv_qp_type. The
// constants below are the types.
type QPType = ib.QPType

// Types of queue pairs.
const (
	// RC is the reliable connection (IBTA 9.7).
	RC QPType = ib.RC
	// UC is the unreliable connection (IBTA 9.8.2): SEND and WRITE without
	// acknowledgement. What is lost stays lost, a message at a time.
	UC QPType = ib.UC
	// UD is the unreliable datagram (IBTA 9.8.3): SENDs of one packet, to
	// the destination that each request names, and from every sender that
	// knows the Q_Key.
	UD QPType = ib.UD
	// GSI is queue pair 1, of which a device has one: management datagrams
	// over UD (IBTA 13.5.1). Its number, and its Q_Key 0x80010000, are the
	// standard's.
	GSI QPType = ib.GSI
	// XRCInitiator is the sending side of the extended reliable connection
	// (IBTA A14): as RC, but each request names a shared receive queue of
	// the other side. It has no receives. See XRCD.
	XRCInitiator QPType = ib.XRCInitiator
	// XRCTarget is the receiving side of the extended reliable connection.
	// It sends no requests.
	XRCTarget QPType = ib.XRCTarget
)

// MTU is a path MTU: how many bytes of payload a packet has at most. It is a
// code from 1 to 5, not a number of bytes; the constants below are the codes.
// Bytes returns the number of bytes, MTUOf makes an MTU of one.
type MTU = rocev2.MTU

// Path MTUs (IBTA 5.2.1): codes, whose names say the bytes.
const (
	MTU256  MTU = rocev2.MTU256
	MTU512  MTU = rocev2.MTU512
	MTU1024 MTU = rocev2.MTU1024
	MTU2048 MTU = rocev2.MTU2048
	MTU4096 MTU = rocev2.MTU4096
)

// MTUOf returns the path MTU of exactly n bytes of payload: 256, 512, 1024,
// 2048 or 4096. Other numbers are an error, which says so.
func MTUOf(n int) (MTU, error) { return rocev2.MTUOf(n) }

// State is the state of a queue pair (IBTA 10.3.1), with the numbers of
// ibv_qp_state. The constants below are the states. String returns the name,
// such as "RTS".
type State = ib.State

// States of a queue pair.
const (
	// StateReset: just made, or taken back. Nothing can be posted.
	StateReset State = ib.StateReset
	// StateInit: receives can be posted. Packets are dropped.
	StateInit State = ib.StateInit
	// StateRTR: ready to receive. Requests of the peer are answered.
	StateRTR State = ib.StateRTR
	// StateRTS: ready to send, the working state.
	StateRTS State = ib.StateRTS
	// StateSQD: the send queue drains. What has started ends, nothing
	// starts.
	StateSQD State = ib.StateSQD
	// StateSQE: send queue error, of UC and UD only.
	StateSQE State = ib.StateSQE
	// StateErr: everything posted completes with StatusWRFlushErr.
	StateErr State = ib.StateErr
)

// AttrMask says which fields of an Attr Modify reads. The constants below, one
// for each field, are combined with |. The numbers are those of
// ibv_qp_attr_mask; its other bits are refused, or have no effect.
type AttrMask = ib.AttrMask

// Attributes of a queue pair: each stands for the field of Attr of that name.
const (
	AttrState           AttrMask = ib.AttrState
	AttrCurState        AttrMask = ib.AttrCurState
	AttrEnableSQDNotify AttrMask = ib.AttrEnableSQDNotify
	AttrAccess          AttrMask = ib.AttrAccess
	AttrPKeyIndex       AttrMask = ib.AttrPKeyIndex
	AttrPort            AttrMask = ib.AttrPort
	AttrQKey            AttrMask = ib.AttrQKey // of UD
	AttrAV              AttrMask = ib.AttrAV
	AttrPathMTU         AttrMask = ib.AttrPathMTU
	AttrTimeout         AttrMask = ib.AttrTimeout
	AttrRetryCount      AttrMask = ib.AttrRetryCount
	AttrRNRRetry        AttrMask = ib.AttrRNRRetry
	AttrRQPSN           AttrMask = ib.AttrRQPSN
	AttrSQPSN           AttrMask = ib.AttrSQPSN
	AttrMaxRdAtomic     AttrMask = ib.AttrMaxQPRdAtomic
	AttrMaxDestRdAtomic AttrMask = ib.AttrMaxDestRdAtomic
	AttrMinRNRTimer     AttrMask = ib.AttrMinRNRTimer
	AttrDestQPN         AttrMask = ib.AttrDestQPN
	AttrAltPath         AttrMask = ib.AttrAltPath // refused: there is no path migration on RoCE
	AttrPathMigState    AttrMask = ib.AttrPathMigState
	AttrRateLimit       AttrMask = ib.AttrRateLimit // RateLimit and RateBurst
)

// Attr holds the attributes of a queue pair, in the units of the standard (IBTA
// 11.2.5.2). [QP.Modify] reads the fields that its mask names; [QP.Query] fills
// all.
type Attr struct {
	State    State // the state to go to; of Query, the current one
	CurState State // what the caller takes the current state to be; only with a change to RTS

	// EnableSQDNotify asks for EventSQDrained on the way to SQD.
	EnableSQDNotify bool

	// Access is what the peer may do on this connection: RemoteWrite,
	// RemoteRead, RemoteAtomic. The region must grant it, too.
	Access Access

	PKeyIndex uint16 // 0: the table has one entry
	Port      uint8  // 1: the device has one port
	QKey      uint32 // of UD: what datagrams must come with; of GSI it is 0x80010000

	// AV says how packets reach the peer.
	AV AddressVector

	// PathMTU must be the same on both sides.
	PathMTU MTU

	// Timeout is the code of the local ACK timeout, 0 to 31: the time is
	// 4.096 µs × 2^Timeout. 0 is "none" in the standard; here it means
	// 8.6 s, because the loss of the last packet would stop the connection
	// for ever.
	Timeout uint8

	// RetryCount is how many times, 0 to 7, a request is sent again after a
	// timeout or a sequence NAK without progress, before it fails with
	// StatusRetryExcErr.
	RetryCount uint8

	// RNRRetry is how many times, 0 to 6, a request is sent again because
	// the peer has no receive posted, before it fails with
	// StatusRNRRetryExcErr. 7 means for ever.
	RNRRetry uint8

	// RQPSN is the first PSN expected from the peer: its SQPSN.
	RQPSN PSN

	// SQPSN is the first PSN to send. Query returns the next one.
	SQPSN PSN

	// MaxRdAtomic is how many READs and atomics may be outstanding at the
	// peer, 0 to 128.
	MaxRdAtomic uint8

	// MaxDestRdAtomic is how many READs and atomics the peer may have
	// outstanding here, 0 to 128.
	MaxDestRdAtomic uint8

	// MinRNRTimer is the code, 0 to 31, of the time that the peer waits
	// when this side has no receive posted (IBTA 9.7.5.2.8, table 45).
	MinRNRTimer uint8

	// DestQPN is the peer's queue pair.
	DestQPN QPN

	// PathMigState is MigMigrated: there is one path.
	PathMigState MigState

	// RateLimit is how fast data is sent at most, in kb/s on the wire; 0
	// means no limit. See QP.SetRateLimit.
	RateLimit uint32

	// RateBurst is how many bytes may go at once after a pause. 0 means
	// what RateLimit gives in 4 ms.
	RateBurst uint32
}

// MigState is the state of path migration, with the numbers of ibv_mig_state.
type MigState = ib.MigState

// States of path migration. A queue pair has one path, and is always in the
// first.
const (
	MigMigrated MigState = ib.MigMigrated
	MigRearm    MigState = ib.MigRearm
	MigArmed    MigState = ib.MigArmed
)

// AddressVector says how packets reach a peer.
type AddressVector struct {
	// DGID is the peer's address, and the only one that packets are
	// accepted from. A zone is ignored.
	DGID netip.Addr

	// TrafficClass has the DSCP, and in the low 2 bits the ECN field: 2,
	// ECT(0), lets switches mark packets instead of dropping them.
	TrafficClass uint8

	HopLimit  uint8  // 0 means the system's default
	Slots     uint16 // sockets of a native peer's port: see Endpoint.Slots
	FlowLabel uint32 // of IPv6, 20 bits; 0 means the system's choice
	SGIDIndex uint8  // 0: the table has one entry

	SL         uint8 // service level, 0 to 15; kept, without effect on RoCE
	StaticRate uint8 // code of ibv_rate; kept, without effect

	// SrcPort is the UDP source port, 49152 to 65535, or AutoSourcePort. 0
	// means the device's own. See WithSourcePort.
	SrcPort uint16

	// Native says that the peer is this software: see Endpoint.Native.
	Native bool
}
