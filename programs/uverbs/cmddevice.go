//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// GIDTable is how many entries a port's table of GIDs has. One has a GID. Linux
// has more entries than GIDs, too, and programs look for those that are empty.
const GIDTable = 16

// queries says what the device of a client is like.
type queries struct {
	dev  *Device
	most maxima
}

// deviceCaps are the abilities that Soft-RoCE names and that are here, too.
const deviceCaps = abi.CapUDAVPortEnforce | abi.CapCurQPStateMod | abi.CapPortActiveEvent | abi.CapSysImageGUID |
	abi.CapRCRNRNAKGen | abi.CapSRQResize | abi.CapMemWindow | abi.CapMemMgtExtensions | abi.CapMemWindow2B

// onDemand says which operations may meet memory that was registered on demand:
// all, for nothing that a program registers is locked. There are no regions of
// the whole address space.
var onDemand = abi.OdpCaps{GeneralCaps: abi.OdpSupport, PerTransportCaps: [3]uint32{
	abi.OdpSend | abi.OdpRecv | abi.OdpWrite | abi.OdpRead | abi.OdpAtomic | abi.OdpSRQRecv,
	abi.OdpSend | abi.OdpRecv | abi.OdpWrite,
	abi.OdpSend | abi.OdpRecv,
}}

// attributes returns what the device can do.
func (q *queries) attributes() abi.QueryDeviceResp {
	m, l := &q.most, q.dev.limits()
	a := abi.QueryDeviceResp{
		MaxMrSize:             l.MRSize,
		PageSizeCap:           0xfffff000,
		VendorId:              0xffffff,
		DeviceCapFlags:        deviceCaps,
		MaxQp:                 uint32(m.qps),
		MaxQpWr:               uint32(m.wr),
		MaxSge:                uint32(l.SGE),
		MaxSgeRd:              uint32(l.ReadSGE),
		MaxCq:                 uint32(m.cqs),
		MaxCqe:                uint32(m.cqe),
		MaxMr:                 uint32(m.mrs),
		MaxPd:                 uint32(m.pds),
		MaxQpRdAtom:           uint32(l.RdAtomic),
		MaxResRdAtom:          uint32(l.RdAtomic) * uint32(m.qps),
		MaxQpInitRdAtom:       uint32(l.RdAtomic),
		AtomicCap:             abi.AtomicHCA,
		MaxMw:                 uint32(m.mws),
		MaxMcastGrp:           uint32(m.groups),
		MaxMcastQpAttach:      uint32(m.attachments / m.groups),
		MaxTotalMcastQpAttach: uint32(m.attachments),
		MaxAh:                 uint32(m.ahs),
		MaxSrq:                uint32(m.srqs),
		MaxSrqWr:              uint32(m.srqWR),
		MaxSrqSge:             uint32(l.SRQSGE),
		MaxPkeys:              1,
		LocalCaAckDelay:       15,
		PhysPortCnt:           1,
	}
	binary.BigEndian.PutUint64(a.NodeGuid[:], q.dev.GUID)
	a.SysImageGuid = a.NodeGuid
	return a
}

// queryDevice says what the device can do (IBTA 11.2.1.2).
func (q *queries) queryDevice(r *abi.Request, _ *abi.QueryDeviceReq) abi.Reply {
	return r.Answer(q.attributes(), nil)
}

// exQueryDevice says more of it.
func (q *queries) exQueryDevice(r *abi.Request, req *abi.ExQueryDeviceReq) abi.Reply {
	if req.CompMask != 0 || req.Reserved != 0 {
		return abi.Fail(abi.EINVAL)
	}
	out := abi.ExQueryDeviceResp{Base: q.attributes(), OdpCaps: onDemand,
		DeviceCapFlagsEx: deviceCaps | abi.CapAtomicWrite | abi.CapFlushGlobal}
	out.ResponseLength = uint32(min(binary.Size(out), r.CoreRoom()))
	return r.Answer(out, nil)
}

// queryPort says how the port is (IBTA 11.2.1.3).
func (q *queries) queryPort(r *abi.Request, req *abi.QueryPortReq) abi.Reply {
	if req.PortNum != portNumber {
		return abi.Fail(abi.EINVAL)
	}
	status := q.dev.Dev.PortStatus()
	out := abi.QueryPortResp{
		PortCapFlags: abi.PortCapCM | abi.PortCapIPBasedGIDs,
		MaxMsgSz:     ib.MaxMessage,
		GidTblLen:    GIDTable,
		PkeyTblLen:   1,
		MaxMtu:       uint8(rocev2.MTU4096),
		ActiveMtu:    uint8(q.dev.Dev.Capabilities().MTU),
		MaxVlNum:     1,
		LinkLayer:    abi.LinkLayerEthernet,
		Flags:        abi.QueryPortFlagGRHNeed,
	}
	out.State, out.PhysState = portState(status.State)
	out.ActiveWidth, out.ActiveSpeed = linkRate(Rate(status.Interface, status.Speed))
	return r.Answer(out, nil)
}

// portState returns a state with the numbers of ibv_port_state, and a physical
// one with those of ibv_devinfo.
func portState(s transport.PortState) (state, phys uint8) {
	const down, active = 1, 4
	switch s {
	case transport.PortNoCarrier:
		return down, 2
	case transport.PortDisabled, transport.PortNoAddress:
		return down, 3
	}
	return active, 5
}

// Rate returns the rate that programs are told of an interface with a speed, in
// Mb/s; 0: not known. The loopback interface has no speed. Programs would take
// 2.5 Gb/s for its bandwidth, and copy messages where they would otherwise have
// the peer READ them: so it is said to have more than two processes reach.
func Rate(ifname string, mbps int) int {
	const loopback = 100000
	if ifname == "lo" {
		return loopback
	}
	return mbps
}

// linkRate returns width and speed of the largest link that is not faster than
// mbps Mb/s, in the codes of libibverbs. Soft-RoCE always says 2.5 Gb/s, and so
// does this where the rate is not known.
func linkRate(mbps int) (width, speed uint8) {
	for _, l := range []struct {
		mbps         int
		width, speed uint8
	}{{400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {50000, 1, 64}, {40000, 2, 4}, {25000, 1, 32}, {10000, 2, 1}} {
		if mbps >= l.mbps {
			return l.width, l.speed
		}
	}
	return 1, 1
}
