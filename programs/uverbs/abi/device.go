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
	_                     uint64
	NodeGuid              [8]byte // in network order
	SysImageGuid          [8]byte // in network order
	MaxMrSize             uint64
	PageSizeCap           uint64
	VendorId              uint32
	_                     [2]uint32
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
	_                     uint32 // of EE contexts, which are not there
	MaxResRdAtom          uint32
	MaxQpInitRdAtom       uint32
	_                     uint32
	AtomicCap             uint32
	_                     [2]uint32
	MaxMw                 uint32
	_                     [2]uint32 // raw queue pairs
	MaxMcastGrp           uint32
	MaxMcastQpAttach      uint32
	MaxTotalMcastQpAttach uint32
	MaxAh                 uint32
	_                     [2]uint32 // FMR
	MaxSrq                uint32
	MaxSrqWr              uint32
	MaxSrqSge             uint32
	MaxPkeys              uint16
	LocalCaAckDelay       uint8
	PhysPortCnt           uint8
	_                     [4]uint8
}

// ExQueryDeviceReq asks for more attributes of a device.
type ExQueryDeviceReq struct {
	CompMask uint32
	Reserved uint32
}

// ExQueryDeviceResp are more attributes of a device. What is not named is of
// abilities that are not there.
type ExQueryDeviceResp struct {
	Base             QueryDeviceResp
	CompMask         uint32
	ResponseLength   uint32
	OdpCaps          OdpCaps
	TimestampMask    uint64
	HcaCoreClock     uint64 // kHz
	DeviceCapFlagsEx uint64
	_                [72]uint8
}

// OdpCaps is a part of ExQueryDeviceResp.
type OdpCaps struct {
	GeneralCaps      uint64
	PerTransportCaps [3]uint32 // RC, UC, UD
	Reserved         uint32
}

// Bits of QueryDeviceResp.DeviceCapFlags.
const (
	CapUDAVPortEnforce   = 1 << 6
	CapCurQPStateMod     = 1 << 7
	CapPortActiveEvent   = 1 << 10
	CapSysImageGUID      = 1 << 11
	CapRCRNRNAKGen       = 1 << 12
	CapSRQResize         = 1 << 13
	CapMemWindow         = 1 << 17
	CapMemMgtExtensions  = 1 << 21
	CapMemWindow2B       = 1 << 24
	CapFlushGlobal       = 1 << 38 // of the extended flags
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
	PortCapFlags uint32
	MaxMsgSz     uint32
	_            [2]uint32 // counters
	GidTblLen    uint32
	PkeyTblLen   uint16
	_            [2]uint16 // LIDs
	State        uint8
	MaxMtu       uint8
	ActiveMtu    uint8
	_            uint8
	MaxVlNum     uint8
	_            [3]uint8
	ActiveWidth  uint8
	ActiveSpeed  uint8
	PhysState    uint8
	LinkLayer    uint8
	Flags        uint8
	_            uint8
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
