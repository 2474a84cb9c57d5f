package ib

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// AttrMask selects attributes of a Modify call, with the bits of
// ibv_qp_attr_mask.
type AttrMask uint32

// The attributes. Each stands for the field of Attr with that name, if there is
// one.
const (
	AttrState           AttrMask = 0x1
	AttrCurState        AttrMask = 0x2
	AttrEnableSQDNotify AttrMask = 0x4
	AttrAccess          AttrMask = 0x8
	AttrPKeyIndex       AttrMask = 0x10
	AttrPort            AttrMask = 0x20
	AttrQKey            AttrMask = 0x40
	AttrAV              AttrMask = 0x80
	AttrPathMTU         AttrMask = 0x100
	AttrTimeout         AttrMask = 0x200
	AttrRetryCount      AttrMask = 0x400
	AttrRNRRetry        AttrMask = 0x800
	AttrRQPSN           AttrMask = 0x1000
	AttrMaxQPRdAtomic   AttrMask = 0x2000
	AttrAltPath         AttrMask = 0x4000 // in the state table, but refused: there is no path migration on RoCE
	AttrMinRNRTimer     AttrMask = 0x8000
	AttrSQPSN           AttrMask = 0x10000
	AttrMaxDestRdAtomic AttrMask = 0x20000
	AttrPathMigState    AttrMask = 0x40000 // only MigMigrated: there is one path
	AttrCap             AttrMask = 0x80000 // never allowed: queues are not resized
	AttrDestQPN         AttrMask = 0x100000
	AttrRateLimit       AttrMask = 0x2000000 // and RateBurst
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

// AddressVector is where the packets of a connection go. All but DGID is for
// the driver, which writes the IP header.
type AddressVector struct {
	DGID         netip.Addr // the peer's address; the only one that packets are accepted from. A zone says nothing
	TrafficClass uint8      // DSCP, and in the low 2 bits ECN: 2, ECT(0), lets switches mark packets instead of dropping them
	HopLimit     uint8
	Slots        uint16 // sockets of a native peer's port, of which the QPN chooses one; 0 = 1
	FlowLabel    uint32
	SGIDIndex    uint8
	SL           uint8  // service level, 0 to 15; kept, without effect on RoCE
	StaticRate   uint8  // code of ibv_rate; kept, without effect
	SrcPort      uint16 // UDP source port, 49152 to 65535; 0 is the device's own
	Native       bool   // the peer is known to be this software: it takes more in flight than others, and sends from one port only
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

// Attr holds the attributes of a queue pair. Modify reads only those that its
// mask selects.
type Attr struct {
	State           State
	CurState        State  // what the caller takes the current state to be
	EnableSQDNotify bool   // ask for EventSQDrained on the way to SQD
	Access          Access // remote rights that the peer has on this connection
	PKeyIndex       uint16 // 0, the table has one entry
	Port            uint8  // 1, the device has one port
	QKey            uint32 // UD
	AV              AddressVector
	PathMTU         rocev2.MTU
	Timeout         uint8      // local ACK timeout: 4.096 µs · 2^Timeout, at most 31; 0 is none (see qp.GuardTimeout)
	RetryCount      uint8      // retries after a timeout or a sequence NAK without progress, 0 to 7
	RNRRetry        uint8      // retries after a receiver-not-ready NAK, 0 to 6; 7 is without end
	RQPSN           rocev2.PSN // the first PSN expected from the peer
	SQPSN           rocev2.PSN // the first PSN to send; the next new one in what QP.Attr returns
	MaxRdAtomic     uint8      // READs and atomics that may be outstanding at the peer, at most 128
	MaxDestRdAtomic uint8      // the same for the peer's here; replay state is kept for that many, more are put off
	MinRNRTimer     uint8      // the timer code that our receiver-not-ready NAKs carry, 0 to 31
	DestQPN         rocev2.QPN
	PathMigState    MigState // of the primary path, which is the only one
	RateLimit       uint32   // kb/s of data on the wire; 0 is no limit
	RateBurst       uint32   // bytes that may go at once after a pause; 0 is what RateLimit gives in 4 ms
}

// MigState is the state of path migration (IBTA 17.2.8), with the numbers of
// ibv_mig_state.
type MigState uint8

// The states of path migration.
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
