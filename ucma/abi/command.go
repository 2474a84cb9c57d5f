package abi

import (
	"encoding/binary"

	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
)

const headerLen = 8

// Command is what a program wrote to the file.
type Command struct {
	Number Number
	In     []byte // behind the header
	Out    int    // room for the response
}

// Parse takes the header off a command. The errors are those of the kernel.
func Parse(b []byte) (Command, uabi.Errno) {
	if len(b) < headerLen {
		return Command{}, uabi.EINVAL
	}
	c := Command{Number: Number(le.Uint32(b)), Out: int(le.Uint16(b[6:]))}
	n := int(le.Uint16(b[4:]))
	switch {
	case c.Number >= Numbers || n > len(b)-headerLen:
		return Command{}, uabi.EINVAL
	case c.Number == GetOption:
		return Command{}, uabi.ENOSYS
	}
	c.In = b[headerLen:][:n]
	return c, 0
}

var le = binary.LittleEndian

// reader reads the fields of a command. What lies behind its end is 0, and bad
// is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad, r.b = true, nil
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return le.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return le.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return le.Uint64(r.take(8)) }

func (r *reader) errno() uabi.Errno {
	if r.bad {
		return uabi.EINVAL
	}
	return 0
}

// CreateIDCmd is CREATE_ID.
type CreateIDCmd struct {
	UID    uint64
	PS     uint16
	QPType uint8
}

// ParseCreateID decodes it.
func ParseCreateID(_ Number, b []byte) (c CreateIDCmd, e uabi.Errno) {
	r := reader{b: b}
	c.UID = r.u64()
	r.u64()
	c.PS, c.QPType = r.u16(), r.u8()
	return c, r.errno()
}

// IDCmd is a command with the number of an ID and one more value: DESTROY_ID,
// LEAVE_MCAST, QUERY_ROUTE, QUERY, INIT_QP_ATTR, MIGRATE_ID behind their
// response pointers, and RESOLVE_ROUTE, LISTEN, DISCONNECT and NOTIFY, which
// have none.
type IDCmd struct {
	ID    uint32
	Value uint32 // timeout, backlog, option, state, event or file; 0 if there is none
}

// ParseID decodes it.
func ParseID(n Number, b []byte) (c IDCmd, e uabi.Errno) {
	r := reader{b: b}
	switch n {
	case DestroyID, LeaveMulticast, QueryRoute, Query, InitQPAttr, MigrateID:
		r.u64()
	}
	c.ID = r.u32()
	switch n {
	case Disconnect, DestroyID, LeaveMulticast, QueryRoute:
	default:
		c.Value = r.u32()
	}
	return c, r.errno()
}

// BindCmd is BIND_IP and BIND.
type BindCmd struct {
	ID   uint32
	Addr SockAddr
}

// ParseBind decodes it.
func ParseBind(n Number, b []byte) (c BindCmd, e uabi.Errno) {
	r := reader{b: b}
	if n == BindIP {
		r.u64()
		c.Addr = sockAddr(r.take(in6Len), -1)
		c.ID = r.u32()
		return c, r.errno()
	}
	c.ID = r.u32()
	size, reserved := r.u16(), r.u16()
	c.Addr = sockAddr(r.take(storageLen), int(size))
	if reserved != 0 || size == 0 {
		r.bad = true
	}
	return c, r.errno()
}

// ResolveCmd is RESOLVE_IP and RESOLVE_ADDR. Src may be missing.
type ResolveCmd struct {
	ID       uint32
	Src, Dst SockAddr
	Timeout  uint32 // in milliseconds
}

// ParseResolve decodes it.
func ParseResolve(n Number, b []byte) (c ResolveCmd, e uabi.Errno) {
	r := reader{b: b}
	if n == ResolveIP {
		c.Src, c.Dst = sockAddr(r.take(in6Len), -1), sockAddr(r.take(in6Len), -1)
		c.ID, c.Timeout = r.u32(), r.u32()
		return c, r.errno()
	}
	c.ID, c.Timeout = r.u32(), r.u32()
	src, dst, reserved := r.u16(), r.u16(), r.u32()
	from := r.take(storageLen)
	if src != 0 {
		c.Src = sockAddr(from, int(src))
	}
	c.Dst = sockAddr(r.take(storageLen), int(dst))
	if reserved != 0 || dst == 0 {
		r.bad = true
	}
	return c, r.errno()
}

// ConnParam is rdma_ucm_conn_param.
type ConnParam struct {
	QPN, QKey          uint32
	Private            []byte
	SRQ                bool
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	Valid              bool
}

func (r *reader) connParam() (p ConnParam) {
	p.QPN, p.QKey = r.u32(), r.u32()
	private := r.take(MaxPrivate)
	p.Private = append([]byte(nil), private[:r.u8()]...)
	p.SRQ = r.u8() != 0
	p.ResponderResources, p.InitiatorDepth = r.u8(), r.u8()
	p.FlowControl = r.u8() != 0
	p.RetryCount, p.RNRRetryCount = r.u8(), r.u8()
	p.Valid = r.u8() != 0
	return p
}

// ECE is rdma_ucm_ece.
type ECE struct{ Vendor, Options uint32 }

// ece reads what older programs do not send.
func (r *reader) ece() (e ECE) {
	if len(r.b) >= 8 && !r.bad {
		e = ECE{r.u32(), r.u32()}
	}
	return e
}

// ConnectCmd is CONNECT and ACCEPT.
type ConnectCmd struct {
	UID   uint64 // of ACCEPT
	Param ConnParam
	ID    uint32
	ECE   ECE
}

// ParseConnect decodes it.
func ParseConnect(n Number, b []byte) (c ConnectCmd, e uabi.Errno) {
	r := reader{b: b}
	if n == Accept {
		c.UID = r.u64()
	}
	c.Param = r.connParam()
	c.ID = r.u32()
	r.u32()
	c.ECE = r.ece()
	return c, r.errno()
}

// RejectCmd is REJECT.
type RejectCmd struct {
	ID      uint32
	Reason  uint8
	Private []byte
}

// ParseReject decodes it.
func ParseReject(_ Number, b []byte) (c RejectCmd, e uabi.Errno) {
	r := reader{b: b}
	c.ID = r.u32()
	n := r.u8()
	c.Reason = r.u8()
	r.u16()
	c.Private = append([]byte(nil), r.take(MaxPrivate)[:n]...)
	return c, r.errno()
}

// SetOptionCmd is SET_OPTION. The value lies in the memory of the program.
type SetOptionCmd struct {
	Value           uint64
	ID, Level, Name uint32
	Len             uint32
}

// ParseSetOption decodes it.
func ParseSetOption(_ Number, b []byte) (c SetOptionCmd, e uabi.Errno) {
	r := reader{b: b}
	c = SetOptionCmd{Value: r.u64(), ID: r.u32(), Level: r.u32(), Name: r.u32(), Len: r.u32()}
	return c, r.errno()
}

// JoinCmd is JOIN_IP_MCAST and JOIN_MCAST.
type JoinCmd struct {
	UID   uint64
	ID    uint32
	Flags uint16
	Addr  SockAddr
}

// ParseJoin decodes it.
func ParseJoin(n Number, b []byte) (c JoinCmd, e uabi.Errno) {
	r := reader{b: b}
	r.u64()
	c.UID = r.u64()
	if n == JoinIPMulticast {
		c.Addr = sockAddr(r.take(in6Len), -1)
		c.ID = r.u32()
		return c, r.errno()
	}
	c.ID = r.u32()
	size := r.u16()
	c.Flags = r.u16()
	c.Addr = sockAddr(r.take(storageLen), int(size))
	if size == 0 {
		r.bad = true
	}
	return c, r.errno()
}
