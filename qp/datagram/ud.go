package datagram

import (
	"cmp"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// UDReceiver is the receiving half of UD (IBTA 9.8.3). It takes datagrams from
// any sender that knows the Q_Key.
type UDReceiver struct {
	receiver
	epsn rocev2.PSN
	grh  [rocev2.GRHLen]byte // scratch
}

// Init makes a receiver of c, which is in RESET.
func (r *UDReceiver) Init(c *conn.Conn, config ReceiverConfig) {
	*r = UDReceiver{}
	r.init(c, &config)
}

// Reset drops everything but the memory of the ring.
func (r *UDReceiver) Reset() {
	r.receives.Reset()
	r.fetch, r.epsn = conn.Fetches{}, 0
}

// ReadyToReceive takes the attribute that means nothing here.
func (r *UDReceiver) ReadyToReceive(first rocev2.PSN) { r.epsn = first }

// ExpectedPSN returns the PSN after that of the last datagram: every PSN is
// taken.
func (r *UDReceiver) ExpectedPSN() rocev2.PSN { return r.epsn }

const (
	udpLen       = 8
	protocolUDP  = 17
	defaultLimit = 64 // hop limit where the link does not know it
)

// HandleRequest takes a datagram. The first 40 bytes of its receive are for the
// header that it came with (IBTA 11.4.1.2, A17.4.5.1).
func (r *UDReceiver) HandleRequest(a *conn.Arrival, info *rocev2.OpcodeInfo) conn.Drop {
	p := a.Packet
	if p.DETH.QKey != r.c.Attr.QKey {
		return conn.DropQKey
	}
	if !r.receives.Take() {
		return conn.DropRNR
	}
	n := len(p.Payload)
	if uint64(rocev2.GRHLen+n) > r.receives.Space {
		return conn.DropTooLong
	}
	h := rocev2.GRH{
		Src: a.Src, Dst: a.Dst, TrafficClass: a.TrafficClass, HopLimit: cmp.Or(a.HopLimit, defaultLimit),
		NextHeader: protocolUDP, FlowLabel: a.FlowLabel, ID: a.IPID,
		Length: uint16(udpLen + info.HeaderLen + n + int(p.BTH.PadCount) + rocev2.ICRCLen),
	}
	h.AppendTo(r.grh[:0])
	if d := r.place(0, r.grh[:]); d != conn.DropNone {
		return d
	}
	if d := r.place(rocev2.GRHLen, p.Payload); d != conn.DropNone {
		return d
	}
	r.epsn = p.BTH.PSN.Next()
	wc := r.receives.WC(r.receives.Recv.ID, ib.WCRecv)
	wc.ByteLen, wc.WithGRH, wc.SrcQPN = uint32(rocev2.GRHLen+n), true, p.DETH.SrcQPN
	wc.Solicited, wc.WithImm = p.BTH.Solicited, info.WithImm
	if info.WithImm {
		wc.Imm = p.Imm
	}
	return r.deliver(wc)
}
