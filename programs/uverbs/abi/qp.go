package abi

// QPAttr is ib_uverbs_qp_attr: what the connection manager wants of a queue
// pair.
type QPAttr struct {
	QpAttrMask    uint32
	QpState       uint32
	CurQpState    uint32
	PathMtu       uint32
	PathMigState  uint32
	Qkey          uint32
	RqPsn         uint32
	SqPsn         uint32
	DestQpNum     uint32
	QpAccessFlags uint32

	AhAttr    AHAttr
	AltAhAttr AHAttr

	MaxSendWr     uint32
	MaxRecvWr     uint32
	MaxSendSge    uint32
	MaxRecvSge    uint32
	MaxInlineData uint32

	PkeyIndex        uint16
	AltPkeyIndex     uint16
	EnSqdAsyncNotify uint8
	SqDraining       uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRnrTimer      uint8
	PortNum          uint8
	Timeout          uint8
	RetryCnt         uint8
	RnrRetry         uint8
	AltPortNum       uint8
	AltTimeout       uint8
	Reserved         [5]uint8
}

// Queue pairs. The driver's part of the replies that make one is a
// CreateQPDriverResp.
type (
	CreateQPReq struct {
		Response uint64
		QPInit
	}
	ExCreateQPReq struct {
		QPInit
		CompMask        uint32
		CreateFlags     uint32
		RwqIndTblHandle uint32
		SourceQpn       uint32
	}
	// QPInit is what both say of a queue pair.
	QPInit struct {
		UserHandle    uint64
		PdHandle      uint32
		SendCqHandle  uint32
		RecvCqHandle  uint32
		SrqHandle     uint32
		MaxSendWr     uint32
		MaxRecvWr     uint32
		MaxSendSge    uint32
		MaxRecvSge    uint32
		MaxInlineData uint32
		SqSigAll      uint8
		QpType        uint8
		IsSrq         uint8
		Reserved      uint8
	}
	CreateQPResp struct {
		QpHandle      uint32
		Qpn           uint32
		MaxSendWr     uint32
		MaxRecvWr     uint32
		MaxSendSge    uint32
		MaxRecvSge    uint32
		MaxInlineData uint32
		Reserved      uint32
	}
	ExCreateQPResp struct {
		Base           CreateQPResp
		CompMask       uint32
		ResponseLength uint32
	}
	// CreateQPDriverResp is rxe_create_qp_resp.
	CreateQPDriverResp struct {
		RqMi MMInfo
		SqMi MMInfo
	}
	DestroyQPReq struct {
		Response uint64
		QpHandle uint32
		Reserved uint32
	}
	DestroyQPResp struct {
		EventsReported uint32
	}
)

// QPDest is ib_uverbs_qp_dest.
type QPDest struct {
	Dgid         [16]uint8
	FlowLabel    uint32
	Dlid         uint16
	Reserved     uint16
	SgidIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	Sl           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	PortNum      uint8
}

// QueryQPReq asks for the attributes of a queue pair.
type QueryQPReq struct {
	Response uint64
	QpHandle uint32
	AttrMask uint32
}

// QueryQPResp are the attributes of a queue pair.
type QueryQPResp struct {
	Dest          QPDest
	AltDest       QPDest
	MaxSendWr     uint32
	MaxRecvWr     uint32
	MaxSendSge    uint32
	MaxRecvSge    uint32
	MaxInlineData uint32
	QPValues
	SqSigAll uint8
	_        [5]uint8
}

// ModifyQPReq changes a queue pair.
type ModifyQPReq struct {
	Dest     QPDest
	AltDest  QPDest
	QpHandle uint32
	AttrMask uint32
	QPValues
	_ [2]uint8
}

// QPValues are the attributes that both have.
type QPValues struct {
	Qkey            uint32
	RqPsn           uint32
	SqPsn           uint32
	DestQpNum       uint32
	QpAccessFlags   uint32
	PkeyIndex       uint16
	AltPkeyIndex    uint16
	QpState         uint8
	CurQpState      uint8
	PathMtu         uint8
	PathMigState    uint8
	Sqd             uint8 // sq_draining; en_sqd_async_notify of a change
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRnrTimer     uint8
	PortNum         uint8
	Timeout         uint8
	RetryCnt        uint8
	RnrRetry        uint8
	AltPortNum      uint8
	AltTimeout      uint8
}

// ExModifyQPReq changes a queue pair.
type ExModifyQPReq struct {
	Base      ModifyQPReq
	RateLimit uint32 // kb/s
	Reserved  uint32
}

// ExModifyQPResp is the reply to ExModifyQPReq.
type ExModifyQPResp struct {
	CompMask       uint32
	ResponseLength uint32
}

// PostSendReq is the head of a PostSend. Programs of Soft-RoCE send nothing
// after it: it says that there is something in the ring.
type PostSendReq struct {
	Response uint64
	QpHandle uint32
	WrCount  uint32
	SgeCount uint32
	WqeSize  uint32
}

// PostSendResp is the reply to a PostSend.
type PostSendResp struct {
	BadWr uint32
}

// McastReq attaches a queue pair to a multicast group, or detaches it.
type McastReq struct {
	Gid      [16]uint8
	QpHandle uint32
	Mlid     uint16
	Reserved uint16
}
