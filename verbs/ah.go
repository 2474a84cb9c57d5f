package verbs

import (
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/rocev2"
)

const (
	// GRHLen is how many bytes of header come first in the buffer of a
	// receive of UD; see ParseGRH.
	GRHLen = rocev2.GRHLen

	// HighQKey is the bit of [SendWR.RemoteQKey] that has the Q_Key of the
	// sending queue pair sent instead (IBTA 10.2.5).
	HighQKey uint32 = 1 << 31

	// MulticastQPN is the RemoteQPN of datagrams to a group.
	MulticastQPN QPN = rocev2.MulticastQPN
)

// CreateAH makes an address handle for av, of which DGID is required. Native
// and the zone of DGID mean nothing.
//
// The error says what is wrong with av, or wraps ErrClosed, ErrNoResources, or
// an *OpenError for a source port.
func (pd *PD) CreateAH(av AddressVector) (*AddressHandle, error) {
	h := new(hca.AH)
	if err := pd.core.MakeAH(h, av); err != nil {
		return nil, fmt.Errorf("verbs: create an address handle: %w", err)
	}
	return h.Core(), nil
}

// AHFromWC makes an address handle for answers to a datagram that was received:
// wc is its completion, and buffer what it was received into, which begins with
// the header. The traffic class is that which it came with; where the network
// has marked it (ECN), the answer is ECN-capable. The hop limit is the system's
// default: that of the header is what was left of it on the way. The queue pair
// that the answer is for is wc.SrcQPN. Its Q_Key is not in the datagram: the
// program knows it, as all datagrams of one service mostly have the same.
//
// The error says why there is no address in wc and buffer, or is as that of
// CreateAH.
func (pd *PD) AHFromWC(wc WC, buffer []byte) (*AddressHandle, error) {
	if wc.Status != StatusSuccess || !wc.WithGRH {
		return nil, fmt.Errorf("verbs: address handle from a completion: %v has no header (WithGRH): only receives of UD that succeeded have one", wc)
	}
	h, err := ParseGRH(buffer)
	if err != nil {
		return nil, err
	}
	class := h.TrafficClass
	if class&ecnMask == ecnMarked {
		class = class&^ecnMask | ecnCapable
	}
	return pd.CreateAH(AddressVector{DGID: h.Src, TrafficClass: class})
}

// The ECN field (RFC 3168).
const (
	ecnMask    = 3
	ecnMarked  = 3
	ecnCapable = 2
)

// GRH is what a receive of UD tells of how the datagram came.
type GRH struct {
	Src          netip.Addr // the sender's address
	Dst          netip.Addr // this side's, or the group's
	TrafficClass uint8      // DSCP and ECN
	HopLimit     uint8      // as it arrived; TTL of IPv4
	FlowLabel    uint32     // of IPv6, 20 bits
}

// ParseGRH reads the header at the start of the buffer of a receive of UD:
// GRHLen bytes, of which IPv4 has its header in the last 20 (IBTA A17.4.5.1).
// The error says that there is none.
func ParseGRH(buffer []byte) (GRH, error) {
	var h rocev2.GRH
	if err := h.Parse(buffer); err != nil {
		return GRH{}, fmt.Errorf("verbs: the first %d bytes of a buffer of %d: %w", GRHLen, len(buffer), err)
	}
	return GRH{Src: h.Src, Dst: h.Dst, TrafficClass: h.TrafficClass, HopLimit: h.HopLimit, FlowLabel: h.FlowLabel}, nil
}
