package abi

// MMInfo says where in the file of a device a ring can be mapped (mminfo).
type MMInfo struct {
	Offset uint64
	Size   uint32
	Pad    uint32
}

// Completion channels: files with a record for each event.
type (
	CreateCompChannelReq struct {
		Response uint64
	}
	CreateCompChannelResp struct {
		Fd uint32
	}
)

// Completion queues. The driver's part of the replies that make one is an
// MMInfo.
type (
	CreateCQReq struct {
		Response uint64
		CQInit
		Reserved uint32
	}
	// CQInit is what both requests say of a queue.
	CQInit struct {
		UserHandle  uint64
		Cqe         uint32
		CompVector  uint32
		CompChannel int32 // a file, or negative
	}
	ExCreateCQReq struct {
		CQInit
		CompMask uint32
		Flags    uint32
		Reserved uint32
	}
	CreateCQResp struct {
		CqHandle uint32
		Cqe      uint32
	}
	ExCreateCQResp struct {
		Base           CreateCQResp
		CompMask       uint32
		ResponseLength uint32
	}
	ResizeCQReq struct {
		Response uint64
		CqHandle uint32
		Cqe      uint32
	}
	ResizeCQResp struct {
		Cqe      uint32
		Reserved uint32
	}
	ReqNotifyCQReq struct {
		CqHandle      uint32
		SolicitedOnly uint32
	}
	DestroyCQReq struct {
		Response uint64
		CqHandle uint32
		Reserved uint32
	}
	DestroyCQResp struct {
		CompEventsReported  uint32
		AsyncEventsReported uint32
	}
)

// Bits of ExCreateCQReq.Flags.
const (
	CQTimestampCompletion = 1 << 0
)

// Shared receive queues. The driver's part of the replies that make one is a
// CreateSRQDriverResp, of ModifySRQReq a ModifySRQDriverReq.
type (
	CreateSRQReq struct {
		Response   uint64
		UserHandle uint64
		SRQInit
	}
	// SRQInit is what both requests say of a queue.
	SRQInit struct {
		PdHandle uint32
		MaxWr    uint32
		MaxSge   uint32
		SrqLimit uint32
	}
	CreateXSRQReq struct {
		Response   uint64
		UserHandle uint64
		SrqType    uint32
		SRQInit
		_ [3]uint32 // tags, XRC
	}
	CreateSRQResp struct {
		SrqHandle uint32
		MaxWr     uint32
		MaxSge    uint32
		Srqn      uint32
	}
	// CreateSRQDriverResp is rxe_create_srq_resp.
	CreateSRQDriverResp struct {
		Mi       MMInfo
		SrqNum   uint32
		Reserved uint32
	}
	ModifySRQReq struct {
		SrqHandle uint32
		AttrMask  uint32
		MaxWr     uint32
		SrqLimit  uint32
	}
	// ModifySRQDriverReq is rxe_modify_srq_cmd: where in the program's
	// memory the MMInfo of a ring of another size goes.
	ModifySRQDriverReq struct {
		MmapInfoAddr uint64
	}
	QuerySRQReq struct {
		Response  uint64
		SrqHandle uint32
		Reserved  uint32
	}
	QuerySRQResp struct {
		MaxWr    uint32
		MaxSge   uint32
		SrqLimit uint32
		Reserved uint32
	}
	DestroySRQReq struct {
		Response  uint64
		SrqHandle uint32
		Reserved  uint32
	}
	DestroySRQResp struct {
		EventsReported uint32
	}
)

// Bits of ModifySRQReq.AttrMask.
const (
	SRQMaxWR = 1 << 0
	SRQLimit = 1 << 1
)

// Types of shared receive queues.
const (
	SRQBasic = 0
	SRQXRC   = 1
)
