package abi

// A reply to GetContext has the device's number of completion vectors, and a
// file with the asynchronous events.
type (
	GetContextReq struct {
		Response uint64
	}
	GetContextResp struct {
		AsyncFd        uint32
		NumCompVectors uint32
	}
)

// QueryDeviceReq asks for the attributes of a device.
type QueryDeviceReq struct {
	Response uint64
}

// QueryDeviceResp are the attributes of a device.
type QueryDeviceResp struct {
	FwVer                 uint64
	NodeGuid              [8]byte // in network order
	SysImageGuid          [8]byte // in network order
	MaxMrSize             uint64
	PageSizeCap           uint64
	VendorId              uint32
	VendorPartId          uint32
	HwVer                 uint32
	MaxQp                 uint32
	MaxQpWr               uint32
	DeviceCapFlags        uint32
	MaxSge                uint32
	MaxSgeRd              uint32
	MaxCq                 uint32
	MaxCqe                uint32
	MaxMr                 uint32
	MaxPd                 uint32
	MaxQpRdAtom           uint32
	MaxEeRdAtom           uint32
	MaxResRdAtom          uint32
	MaxQpInitRdAtom       uint32
	MaxEeInitRdAtom       uint32
	AtomicCap             uint32
	MaxEe                 uint32
	MaxRdd                uint32
	MaxMw                 uint32
	MaxRawIpv6Qp          uint32
	MaxRawEthyQp          uint32
	MaxMcastGrp           uint32
	MaxMcastQpAttach      uint32
	MaxTotalMcastQpAttach uint32
	MaxAh                 uint32
	MaxFmr                uint32
	MaxMapPerFmr          uint32
	MaxSrq                uint32
	MaxSrqWr              uint32
	MaxSrqSge             uint32
	MaxPkeys              uint16
	LocalCaAckDelay       uint8
	PhysPortCnt           uint8
	Reserved              [4]uint8
}

// ExQueryDeviceReq asks for more attributes of a device.
type ExQueryDeviceReq struct {
	CompMask uint32
	Reserved uint32
}

// ExQueryDeviceResp are more attributes of a device.
type ExQueryDeviceResp struct {
	Base             QueryDeviceResp
	CompMask         uint32
	ResponseLength   uint32
	OdpCaps          OdpCaps
	TimestampMask    uint64
	HcaCoreClock     uint64 // kHz
	DeviceCapFlagsEx uint64
	RssCaps          RssCaps
	MaxWqTypeRq      uint32
	RawPacketCaps    uint32
	TmCaps           TmCaps
	CqModerationCaps CqModerationCaps
	MaxDmSize        uint64
	XrcOdpCaps       uint32
	Reserved         uint32
}

// Parts of ExQueryDeviceResp.
type (
	OdpCaps struct {
		GeneralCaps      uint64
		PerTransportCaps [3]uint32 // RC, UC, UD
		Reserved         uint32
	}
	RssCaps struct {
		SupportedQpts            uint32
		MaxRwqIndirectionTables  uint32
		MaxRwqIndirectionTableSz uint32
		Reserved                 uint32
	}
	TmCaps struct {
		MaxRndvHdrSize uint32
		MaxNumTags     uint32
		Flags          uint32
		MaxOps         uint32
		MaxSge         uint32
		Reserved       uint32
	}
	CqModerationCaps struct {
		MaxCqModerationCount  uint16
		MaxCqModerationPeriod uint16
		Reserved              uint32
	}
)

// Bits of QueryDeviceResp.DeviceCapFlags.
const (
	CapBadPKeyCounter    = 1 << 1
	CapBadQKeyCounter    = 1 << 2
	CapAutoPathMig       = 1 << 4
	CapChangePhyPort     = 1 << 5
	CapUDAVPortEnforce   = 1 << 6
	CapCurQPStateMod     = 1 << 7
	CapShutdownPort      = 1 << 8
	CapPortActiveEvent   = 1 << 10
	CapSysImageGUID      = 1 << 11
	CapRCRNRNAKGen       = 1 << 12
	CapSRQResize         = 1 << 13
	CapNotifyCQ          = 1 << 14
	CapMemWindow         = 1 << 17
	CapXRC               = 1 << 20
	CapMemMgtExtensions  = 1 << 21
	CapMemWindow2A       = 1 << 23
	CapMemWindow2B       = 1 << 24
	CapFlushGlobal       = 1 << 38 // of the extended flags
	CapFlushPersistent   = 1 << 39
	CapAtomicWrite       = 1 << 40
	AtomicHCA            = 1 // of AtomicCap: among the queue pairs of the device
	PortCapCM            = 1 << 16
	PortCapIPBasedGIDs   = 1 << 26
	LinkLayerEthernet    = 2
	QueryPortFlagGRHNeed = 1
)

// Bits of OdpCaps: of GeneralCaps, then of PerTransportCaps.
const (
	OdpSupport = 1 << 0

	OdpSend    = 1 << 0
	OdpRecv    = 1 << 1
	OdpWrite   = 1 << 2
	OdpRead    = 1 << 3
	OdpAtomic  = 1 << 4
	OdpSRQRecv = 1 << 5
)

// QueryPortReq asks for the attributes of a port.
type QueryPortReq struct {
	Response uint64
	PortNum  uint8
	Reserved [7]uint8
}

// QueryPortResp are the attributes of a port.
type QueryPortResp struct {
	PortCapFlags  uint32
	MaxMsgSz      uint32
	BadPkeyCntr   uint32
	QkeyViolCntr  uint32
	GidTblLen     uint32
	PkeyTblLen    uint16
	Lid           uint16
	SmLid         uint16
	State         uint8
	MaxMtu        uint8
	ActiveMtu     uint8
	Lmc           uint8
	MaxVlNum      uint8
	SmSl          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     uint8
	Flags         uint8
	Reserved      uint8
}

// AsyncEvent is a record of the file with asynchronous events
// (ib_uverbs_async_event_desc).
type AsyncEvent struct {
	Element   uint64 // the program's handle of the object, or the number of the port
	EventType uint32
	Reserved  uint32
}

// Lengths of records that programs read.
const (
	AsyncEventLen = 16
	CompEventLen  = 8 // the program's handle of the completion queue
)
