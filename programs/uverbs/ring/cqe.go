package ring

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
)

// A completion, struct ib_uverbs_wc, in an element of 64 bytes.
//
//	 0: ID (8)   8: status   12: opcode   16: vendor's error   20: length
//	24: immediate data, or key   28: QPN   32: QPN of the peer   36: flags
//	40: P_Key index (2)   44: SL (1)   46: port (1)

// CQElem is the size of a completion, in bytes.
const CQElem = 64

const (
	wcVendorErr = 16
	wcQPN       = 28
)

// Forgotten is the vendor's error of a completion that a program is not to see
// any more. The preloaded library knows it.
const Forgotten = 0x676f6e65

// Flags of a completion, enum ibv_wc_flags.
const (
	wcGRH     = 1 << 0
	wcWithImm = 1 << 1
	wcWithInv = 1 << 3
)

// port is the number of a device's only port.
const port = 1

// EncodeWC writes a completion to b, of the request that the program knows by
// id. The service level is what hardware reports
// for a datagram: which kind of packet it came in.
func EncodeWC(b *[CQElem]byte, c *ib.WC, id uint64, sl uint8) {
	*b = [CQElem]byte{}
	u32 := func(at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }
	binary.NativeEndian.PutUint64(b[:], id)
	u32(8, uint32(c.Status))
	u32(12, uint32(c.Opcode))
	u32(wcVendorErr, c.VendorErr)
	u32(20, c.ByteLen)
	u32(wcQPN, uint32(c.QPN))
	u32(32, uint32(c.SrcQPN))
	var flags uint32
	switch {
	case c.WithImm:
		flags = wcWithImm
		binary.BigEndian.PutUint32(b[24:], c.Imm)
	case c.WithInv:
		flags = wcWithInv
		u32(24, uint32(c.InvalidatedKey))
	}
	if c.WithGRH {
		flags |= wcGRH
	}
	u32(36, flags)
	b[44], b[46] = sl, port
}
