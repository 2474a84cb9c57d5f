package ib

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// AttrMask says which fields of an Attr Modify reads. The constants are
// combined with |. The numbers are those of ibv_qp_attr_mask; its other bits
// are refused, or have no effect.
type AttrMask uint32

// Attributes of a queue pair: each stands for the field of Attr of that name,
// if there is one.
const (
	AttrState           AttrMask = 0x1
	AttrCurState        AttrMask = 0x2
	AttrEnableSQDNotify AttrMask = 0x4
	AttrAccess          AttrMask = 0x8
	AttrPKeyIndex       AttrMask = 0x10
	AttrPort            AttrMask = 0x20
	AttrQKey            AttrMask = 0x40 // of UD
	AttrAV              AttrMask = 0x80
	AttrPathMTU         AttrMask = 0x100
	AttrTimeout         AttrMask = 0x200
	AttrRetryCount      AttrMask = 0x400
	AttrRNRRetry        AttrMask = 0x800
	AttrRQPSN           AttrMask = 0x1000
	AttrMaxRdAtomic     AttrMask = 0x2000
	AttrAltPath         AttrMask = 0x4000 // refused: there is no path migration on RoCE
	AttrMinRNRTimer     AttrMask = 0x8000
	AttrSQPSN           AttrMask = 0x10000
	AttrMaxDestRdAtomic AttrMask = 0x20000
	AttrPathMigState    AttrMask = 0x40000 // only MigMigrated: there is one path
	AttrCap             AttrMask = 0x80000 // never allowed: queues are not resized
	AttrDestQPN         AttrMask = 0x100000
	AttrRateLimit       AttrMask = 0x2000000 // RateLimit and RateBurst
)

var attrNames = [...]string{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU",
	"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
	"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN", 25: "RATE_LIMIT",
}

// String lists the attributes as IBV_QP_* names without the prefix, separated
// by commas.
func (m AttrMask) String() string {
	var names []string
	for i := range 32 {
		switch {
		case m>>i&1 == 0:
		case i < len(attrNames) && attrNames[i] != "":
			names = append(names, attrNames[i])
		default:
			names = append(names, "bit "+strconv.Itoa(i))
		}
	}
	return strings.Join(names, ", ")
}

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

// SlotOf returns which of a number of sockets, a power of two or 0 for one, is
// that of a queue pair number.
func SlotOf(n rocev2.QPN, slots uint16) uint16 {
	if slots&(slots-1) != 0 || slots == 0 {
		return 0
	}
	return uint16(n) & (slots - 1)
}

// MinSrcPort is the smallest UDP source port that an address vector may name:
// the dynamic range (RFC 6335), of which RoCEv2 takes the entropy of a flow.
const MinSrcPort = 0xc000

// Attr holds the attributes of a queue pair, in the units of the standard (IBTA
// 11.2.5.2). QP.Modify reads the fields that its mask names; QP.Query fills
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
	PathMTU rocev2.MTU

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
	RQPSN rocev2.PSN

	// SQPSN is the first PSN to send. Query returns the next one.
	SQPSN rocev2.PSN

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
	DestQPN rocev2.QPN

	// PathMigState is MigMigrated: there is one path.
	PathMigState MigState

	// RateLimit is how fast data is sent at most, in kb/s on the wire; 0
	// means no limit. See QP.SetRateLimit.
	RateLimit uint32

	// RateBurst is how many bytes may go at once after a pause. 0 means
	// what RateLimit gives in 4 ms.
	RateBurst uint32
}

// MigState is the state of path migration (IBTA 17.2.8), with the numbers of
// ibv_mig_state. A queue pair has one path, and is always in the first.
type MigState uint8

// States of path migration.
const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

// String returns the name without its prefix.
func (s MigState) String() string {
	switch s {
	case MigMigrated:
		return "MIGRATED"
	case MigRearm:
		return "REARM"
	case MigArmed:
		return "ARMED"
	}
	return "migration state " + strconv.Itoa(int(s))
}
