package abi

import (
	"encoding/binary"
	"net/netip"
)

// Sizes of responses.
const (
	U32Len      = 4 // of CREATE_ID, JOIN_MCAST, DESTROY_ID, LEAVE_MCAST and MIGRATE_ID
	RouteLen    = 208
	routeOldLen = 200 // without the index of the device
	AddrLen     = 280
	addrOldLen  = 272
	PathLen     = 8 // without a path
	pathDataLen = 72
	EventLen    = 336
	EventOldLen = 324 // without ECE
	eventUnion  = 20
)

var be = binary.BigEndian

// U32 encodes a response of one number.
func U32(v uint32) []byte { return le.AppendUint32(nil, v) }

// Route is the path of an ID. The zero value has none.
type Route struct {
	NodeGUID    uint64
	Index       uint32 // of the device
	Port        uint8
	Local, Peer SockAddr
	Path        *Path // once it is resolved
}

// Path is a resolved path.
type Path struct {
	SGID, DGID   netip.Addr
	MTU          uint8 // code
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32
	Rate         uint8
	LifeTime     uint8
}

func putGID(b []byte, a netip.Addr) {
	if a.IsValid() {
		g := a.As16()
		copy(b, g[:])
	}
}

const defaultPKey = 0xffff

// put writes ib_user_path_rec.
func (p *Path) put(b []byte) {
	putGID(b, p.DGID)
	putGID(b[16:], p.SGID)
	be.PutUint32(b[40:], p.FlowLabel)
	le.PutUint32(b[44:], 1) // reversible
	le.PutUint32(b[48:], uint32(p.MTU))
	be.PutUint16(b[52:], defaultPKey)
	b[54], b[55] = p.HopLimit, p.TrafficClass
	b[56] = 1                                 // one path
	b[58], b[59], b[61] = exact, exact, exact // what follows are values, not bounds
	b[60], b[62] = p.Rate, p.LifeTime
}

const exact = 2

// RouteReply encodes the response of QUERY_ROUTE, cut to the room that the
// program has; it is nil if there is too little.
func RouteReply(r *Route, room int) []byte {
	if room < routeOldLen {
		return nil
	}
	b := make([]byte, RouteLen)
	r.Local.put(b[136:])
	r.Peer.put(b[164:])
	if r.Port == 0 {
		return b[:min(room, len(b))]
	}
	be.PutUint64(b, r.NodeGUID)
	if r.Path != nil {
		r.Path.put(b[8:])
		le.PutUint32(b[192:], 1)
	} else {
		putGID(b[8:], gidOf(r.Peer))
		putGID(b[24:], gidOf(r.Local))
		be.PutUint16(b[60:], defaultPKey)
	}
	b[196] = r.Port
	le.PutUint32(b[200:], r.Index)
	return b[:min(room, len(b))]
}

// gidOf returns the GID of an address: IPv4 is mapped.
func gidOf(s SockAddr) netip.Addr { return s.Addr.Addr() }

// AddrReply encodes the response of QUERY for addresses.
func AddrReply(r *Route, room int) []byte {
	b, src, dst := addrReply(r, room)
	if b == nil {
		return nil
	}
	le.PutUint16(b[12:], uint16(r.Local.Len()))
	le.PutUint16(b[14:], uint16(r.Peer.Len()))
	r.Local.put(src)
	r.Peer.put(dst)
	return b[:min(room, len(b))]
}

// GIDReply encodes the response of QUERY for GIDs: addresses of the family IB,
// with the service IDs of both sides.
func GIDReply(r *Route, local, peer uint64, room int) []byte {
	b, src, dst := addrReply(r, room)
	if b == nil {
		return nil
	}
	le.PutUint16(b[12:], ibLen)
	le.PutUint16(b[14:], ibLen)
	r.putIB(src, r.Local, local)
	r.putIB(dst, r.Peer, peer)
	return b[:min(room, len(b))]
}

func addrReply(r *Route, room int) (b, src, dst []byte) {
	if room < addrOldLen {
		return nil, nil, nil
	}
	b = make([]byte, AddrLen)
	if r.Port != 0 {
		be.PutUint64(b, r.NodeGUID)
		b[8] = r.Port
		be.PutUint16(b[10:], defaultPKey)
		le.PutUint32(b[272:], r.Index)
	}
	return b, b[16:144], b[144:272]
}

func (r *Route) putIB(b []byte, s SockAddr, service uint64) {
	le.PutUint16(b, AFIB)
	if r.Port != 0 {
		be.PutUint16(b[2:], defaultPKey)
		putGID(b[8:], gidOf(s))
	}
	be.PutUint64(b[24:], service)
}

// PathReply encodes the response of QUERY for paths.
func PathReply(r *Route, room int) []byte {
	if room < PathLen {
		return nil
	}
	b := make([]byte, PathLen, PathLen+pathDataLen)
	if r.Path == nil {
		return b
	}
	le.PutUint32(b, 1)
	if room < cap(b) {
		return b
	}
	b = b[:cap(b)]
	le.PutUint32(b[8:], PathFlags)
	r.Path.pack(b[16:])
	return b
}

// PathFlags are those of a path that is the only one: for management datagrams,
// primary, both ways.
const PathFlags = 1 | 1<<1 | 1<<3 | 1<<5

// PathDataLen is the size of a path in the option IB_PATH.
const PathDataLen = pathDataLen

// pack writes the path record as subnet administration has it (IBTA 15.2.5.16).
func (p *Path) pack(b []byte) {
	putGID(b[8:], p.DGID)
	putGID(b[24:], p.SGID)
	be.PutUint32(b[44:], p.FlowLabel<<8|uint32(p.HopLimit))
	b[48] = p.TrafficClass
	b[49] = 1<<7 | 1 // reversible, one path
	be.PutUint16(b[50:], defaultPKey)
	b[54] = exact<<6 | p.MTU&0x3f
	b[55] = exact<<6 | p.Rate&0x3f
	b[56] = exact<<6 | p.LifeTime&0x3f
}
