package abi

import (
	"encoding/binary"

	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

const headerLen = 8

// Command is what a program wrote to the file.
type Command struct {
	Number Number
	In     []byte // after the header
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

// Decode decodes a command into a T, a struct of this package without what is
// reserved at its end. A shorter command is refused.
func Decode[T any](_ Number, b []byte) (c T, e uabi.Errno) {
	if _, err := binary.Decode(b, le, &c); err != nil {
		return c, uabi.EINVAL
	}
	return c, 0
}

// CreateIDCmd is CREATE_ID.
type CreateIDCmd struct {
	UID    uint64
	_      uint64 // where the response goes, here and below
	PS     uint16
	QPType uint8
}

// IDCmd is a command with the number of an ID and one more value: DESTROY_ID,
// LEAVE_MCAST, QUERY_ROUTE, QUERY, INIT_QP_ATTR and MIGRATE_ID after their
// response pointers, and RESOLVE_ROUTE, LISTEN, DISCONNECT and NOTIFY, which
// have none.
type IDCmd struct {
	ID    uint32
	Value uint32 // timeout, backlog, option, state, event or file; 0 if there is none
}

// ParseID decodes it.
func ParseID(n Number, b []byte) (c IDCmd, e uabi.Errno) {
	switch n {
	case DestroyID, LeaveMulticast, QueryRoute, Query, InitQPAttr, MigrateID:
		b = b[min(8, len(b)):]
	}
	switch n {
	case Disconnect, DestroyID, LeaveMulticast, QueryRoute:
		c.ID, e = Decode[uint32](n, b)
		return c, e
	}
	return Decode[IDCmd](n, b)
}

// Addresses of commands: of IPv4 or IPv6, or of any family.
type (
	in6     [in6Len]byte
	storage [storageLen]byte
)

// BindCmd is BIND_IP and BIND.
type BindCmd struct {
	ID   uint32
	Addr SockAddr
}

// ParseBind decodes it.
func ParseBind(n Number, b []byte) (BindCmd, uabi.Errno) {
	if n == BindIP {
		c, e := Decode[struct {
			_    uint64
			Addr in6
			ID   uint32
		}](n, b)
		return BindCmd{c.ID, sockAddr(c.Addr[:], -1)}, e
	}
	c, e := Decode[struct {
		ID             uint32
		Size, Reserved uint16
		Addr           storage
	}](n, b)
	return BindCmd{c.ID, sockAddr(c.Addr[:], int(c.Size))}, invalid(e, c.Reserved != 0 || c.Size == 0)
}

// invalid returns the error of a command that was decoded and may be bad.
func invalid(e uabi.Errno, bad bool) uabi.Errno {
	if bad {
		return uabi.EINVAL
	}
	return e
}

// ResolveCmd is RESOLVE_IP and RESOLVE_ADDR. Src may be missing.
type ResolveCmd struct {
	ID       uint32
	Src, Dst SockAddr
	Timeout  uint32 // in milliseconds
}

// ParseResolve decodes it.
func ParseResolve(n Number, b []byte) (ResolveCmd, uabi.Errno) {
	if n == ResolveIP {
		c, e := Decode[struct {
			Src, Dst    in6
			ID, Timeout uint32
		}](n, b)
		return ResolveCmd{c.ID, sockAddr(c.Src[:], -1), sockAddr(c.Dst[:], -1), c.Timeout}, e
	}
	c, e := Decode[struct {
		ID, Timeout      uint32
		SrcSize, DstSize uint16
		Reserved         uint32
		Src, Dst         storage
	}](n, b)
	r := ResolveCmd{ID: c.ID, Dst: sockAddr(c.Dst[:], int(c.DstSize)), Timeout: c.Timeout}
	if c.SrcSize != 0 {
		r.Src = sockAddr(c.Src[:], int(c.SrcSize))
	}
	return r, invalid(e, c.Reserved != 0 || c.DstSize == 0)
}

// Private is the private data of a command or an event.
type Private struct {
	Data [MaxPrivate]byte
	Len  uint8
}

// PrivateOf returns private data.
func PrivateOf(b []byte) (p Private) {
	p.Len = uint8(min(copy(p.Data[:], b), 255))
	return p
}

// Bytes returns the data without the unused room after it.
func (p *Private) Bytes() []byte { return p.Data[:p.Len] }

// ConnParam is rdma_ucm_conn_param.
type ConnParam struct {
	QPN, QKey          uint32
	Private            Private
	SRQ                bool
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	Valid              bool // of a command
}

// ECE is rdma_ucm_ece.
type ECE struct{ Vendor, Options uint32 }

// ConnectCmd is CONNECT and ACCEPT.
type ConnectCmd struct {
	UID   uint64 // of ACCEPT
	Param ConnParam
	ID    uint32
	_     uint32
	ECE   ECE // which older programs do not send
}

// ParseConnect decodes it.
func ParseConnect(n Number, b []byte) (ConnectCmd, uabi.Errno) {
	if n == Connect {
		b = append(make([]byte, 8), b...)
	}
	if old := binary.Size(ConnectCmd{}) - 8; len(b) >= old && len(b) < old+8 {
		b = append(b[:old:old], make([]byte, 8)...)
	}
	return Decode[ConnectCmd](n, b)
}

// RejectCmd is REJECT.
type RejectCmd struct {
	ID          uint32
	Len, Reason uint8
	_           uint16
	Private     [MaxPrivate]byte
}

// SetOptionCmd is SET_OPTION. The value lies in the memory of the program.
type SetOptionCmd struct {
	Value           uint64
	ID, Level, Name uint32
	Len             uint32
}

// JoinCmd is JOIN_IP_MCAST and JOIN_MCAST.
type JoinCmd struct {
	UID   uint64
	ID    uint32
	Flags uint16
	Addr  SockAddr
}

// ParseJoin decodes it.
func ParseJoin(n Number, b []byte) (JoinCmd, uabi.Errno) {
	if n == JoinIPMulticast {
		c, e := Decode[struct {
			_, UID uint64
			Addr   in6
			ID     uint32
		}](n, b)
		return JoinCmd{UID: c.UID, ID: c.ID, Addr: sockAddr(c.Addr[:], -1)}, e
	}
	c, e := Decode[struct {
		_, UID      uint64
		ID          uint32
		Size, Flags uint16
		Addr        storage
	}](n, b)
	return JoinCmd{c.UID, c.ID, c.Flags, sockAddr(c.Addr[:], int(c.Size))}, invalid(e, c.Size == 0)
}
