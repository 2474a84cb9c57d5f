package abi

// Protection domains.
type (
	AllocPDReq struct {
		Response uint64
	}
	AllocPDResp struct {
		PdHandle uint32
	}
	DeallocPDReq struct {
		PdHandle uint32
	}
)

// Memory regions.
type (
	RegMRReq struct {
		Response    uint64
		Start       uint64
		Length      uint64
		HcaVa       uint64
		PdHandle    uint32
		AccessFlags uint32
	}
	RegMRResp struct {
		MrHandle uint32
		Lkey     uint32
		Rkey     uint32
	}
	ReregMRReq struct {
		Response    uint64
		MrHandle    uint32
		Flags       uint32
		Start       uint64
		Length      uint64
		HcaVa       uint64
		PdHandle    uint32
		AccessFlags uint32
	}
	ReregMRResp struct {
		Lkey uint32
		Rkey uint32
	}
	DeregMRReq struct {
		MrHandle uint32
	}
)

// Bits of ReregMRReq.Flags.
const (
	ReregTranslation = 1 << 0
	ReregPD          = 1 << 1
	ReregAccess      = 1 << 2
)

// Memory windows.
type (
	AllocMWReq struct {
		Response uint64
		PdHandle uint32
		MwType   uint8
		Reserved [3]uint8
	}
	AllocMWResp struct {
		MwHandle uint32
		Rkey     uint32
	}
	DeallocMWReq struct {
		MwHandle uint32
	}
)

// GlobalRoute is ib_uverbs_global_route.
type GlobalRoute struct {
	Dgid         [16]uint8
	FlowLabel    uint32
	SgidIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	Reserved     uint8
}

// AHAttr is ib_uverbs_ah_attr.
type AHAttr struct {
	Grh         GlobalRoute
	Dlid        uint16
	Sl          uint8
	SrcPathBits uint8
	StaticRate  uint8
	IsGlobal    uint8
	PortNum     uint8
	Reserved    uint8
}

// Address handles.
type (
	CreateAHReq struct {
		Response   uint64
		UserHandle uint64
		PdHandle   uint32
		Reserved   uint32
		Attr       AHAttr
	}
	CreateAHResp struct {
		AhHandle uint32
	}
	// CreateAHDriverResp is rxe_create_ah_resp.
	CreateAHDriverResp struct {
		AhNum    uint32 // of send requests; not 0
		Reserved uint32
	}
	DestroyAHReq struct {
		AhHandle uint32
	}
)
