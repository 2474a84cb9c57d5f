package uverbstest

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

var native = binary.NativeEndian

// Memory returns zeroed memory for a ring, aligned as a mapping is.
func Memory(n uint64) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

// Ring is a queue as a program sees it: memory that is described by its header.
type Ring struct {
	Mem []byte
}

func (r Ring) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&r.Mem[at])) }

// Mask returns the number of elements - 1, which is how many it holds.
func (r Ring) Mask() uint32 { return native.Uint32(r.Mem[4:]) }

// Producer returns the producer's index.
func (r Ring) Producer() uint32 { return atomic.LoadUint32(r.word(128)) }

// SetProducer sets the producer's index.
func (r Ring) SetProducer(i uint32) { atomic.StoreUint32(r.word(128), i) }

// Consumer returns the consumer's index.
func (r Ring) Consumer() uint32 { return atomic.LoadUint32(r.word(256)) }

// SetConsumer sets the consumer's index.
func (r Ring) SetConsumer(i uint32) { atomic.StoreUint32(r.word(256), i) }

// Elem returns an element.
func (r Ring) Elem(i uint32) []byte {
	size := 1 << native.Uint32(r.Mem)
	return r.Mem[384+int(i&r.Mask())*size:][:size]
}

// Full reports whether nothing can be posted.
func (r Ring) Full() bool { return r.Consumer() == (r.Producer()+1)&r.Mask() }

// Post has fill write the next element. It reports whether there was room.
func (r Ring) Post(fill func(e []byte)) bool {
	if r.Full() {
		return false
	}
	i := r.Producer()
	fill(r.Elem(i))
	r.SetProducer((i + 1) & r.Mask())
	return true
}

// Flags of send requests.
const (
	Fence     = 1
	Signaled  = 2
	Solicited = 4
	Inline    = 8
)

// Operations of send requests.
const (
	Write       = 0
	WriteImm    = 1
	Send        = 2
	SendImm     = 3
	Read        = 4
	CompareSwap = 5
	FetchAdd    = 6
	LocalInv    = 7
	BindMW      = 8
	SendInv     = 9
	Flush       = 14
	AtomicWrite = 15
)

// SendWR is a send request.
type SendWR struct {
	ID     uint64
	Opcode uint32
	Flags  uint32
	Imm    uint32 // as the wire has it: most significant byte first
	Key    uint32 // to invalidate

	SGE  []ib.SGE
	Data []byte // inline, with the flag

	Remote           uint64
	RKey             uint32
	CompareAdd, Swap uint64

	AH   uint32 // number of the address handle
	DGID [16]byte
	QPN  uint32
	QKey uint32

	Bind ib.BindMW

	FlushType, FlushLevel uint8
	Length                uint32 // of a FLUSH
}

// PostSend posts a send request as ibv_post_send does. It reports whether there
// was room.
func (r Ring) PostSend(w SendWR) bool { return r.Post(w.fill) }

func (w *SendWR) fill(e []byte) {
	clear(e[:184])
	native.PutUint64(e, w.ID)
	native.PutUint32(e[12:], w.Opcode)
	native.PutUint32(e[16:], w.Flags)
	switch w.Opcode {
	case WriteImm, SendImm:
		binary.BigEndian.PutUint32(e[20:], w.Imm)
	default:
		native.PutUint32(e[20:], w.Key)
	}
	w.fillOperation(e)
	length := w.Length
	if w.Flags&Inline != 0 {
		copy(e[208:], w.Data)
		length += uint32(len(w.Data))
		putDMA(e[184:], length, 1)
		return
	}
	if w.Opcode == AtomicWrite {
		copy(e[208:], w.Data)
		putDMA(e[184:], 8, 0)
		return
	}
	length += putList(e[208:], w.SGE)
	putDMA(e[184:], length, len(w.SGE))
}

func (w *SendWR) fillOperation(e []byte) {
	switch w.Opcode {
	case Write, WriteImm, Read, AtomicWrite:
		native.PutUint64(e[24:], w.Remote)
		native.PutUint32(e[32:], w.RKey)
	case CompareSwap, FetchAdd:
		native.PutUint64(e[24:], w.Remote)
		native.PutUint64(e[32:], w.CompareAdd)
		native.PutUint64(e[40:], w.Swap)
		native.PutUint32(e[48:], w.RKey)
	case Flush:
		native.PutUint64(e[24:], w.Remote)
		native.PutUint32(e[36:], w.RKey)
		e[40], e[41] = w.FlushType, w.FlushLevel
	case BindMW:
		native.PutUint64(e[24:], w.Bind.Addr)
		native.PutUint64(e[32:], w.Bind.Length)
		native.PutUint32(e[40:], uint32(w.Bind.Region))
		native.PutUint32(e[44:], uint32(w.Bind.Window))
		native.PutUint32(e[48:], uint32(w.Bind.NewKey))
		native.PutUint32(e[52:], uint32(w.Bind.Access))
	case Send, SendImm:
		if w.QPN == 0 {
			return
		}
		native.PutUint32(e[24:], w.QPN)
		native.PutUint32(e[28:], w.QKey)
		native.PutUint32(e[36:], w.AH)
		if w.AH == 0 { // as drivers do that know no numbers
			e[56] = 1
			copy(e[64:], w.DGID[:])
			e[85] = 64
		}
	}
}

// putDMA writes the part of an element that describes the data.
func putDMA(e []byte, length uint32, n int) {
	clear(e[:24])
	native.PutUint32(e, length)
	native.PutUint32(e[4:], length)
	native.PutUint32(e[12:], uint32(n))
}

// putList writes entries, and returns the sum of their lengths.
func putList(e []byte, list []ib.SGE) (length uint32) {
	for i, s := range list {
		native.PutUint64(e[16*i:], s.Addr)
		native.PutUint32(e[16*i+8:], s.Length)
		native.PutUint32(e[16*i+12:], uint32(s.LKey))
		length += s.Length
	}
	return length
}

// PostRecv posts a receive as ibv_post_recv does. It reports whether there was
// room.
func (r Ring) PostRecv(id uint64, list ...ib.SGE) bool {
	return r.Post(func(e []byte) {
		native.PutUint64(e, id)
		length := putList(e[40:], list)
		putDMA(e[16:], length, len(list))
	})
}

// Flags of completions.
const (
	GRH     = 1
	WithImm = 2
	WithInv = 8
)

// WC is a completion as struct ibv_wc has it.
type WC struct {
	ID        uint64
	Status    ib.Status
	Opcode    ib.WCOpcode
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // as the wire has it, if Flags has WithImm
	Key       uint32 // if Flags has WithInv
	QPN       uint32
	SrcQPN    uint32
	Flags     uint32
	PKeyIndex uint16
	SL        uint8
	Port      uint8
}

// Poll takes a completion as ibv_poll_cq does.
func (r Ring) Poll() (WC, bool) {
	i := r.Consumer()
	if r.Producer() == i {
		return WC{}, false
	}
	e := r.Elem(i)
	c := WC{ID: native.Uint64(e), Status: ib.Status(native.Uint32(e[8:])), Opcode: ib.WCOpcode(native.Uint32(e[12:])),
		VendorErr: native.Uint32(e[16:]), ByteLen: native.Uint32(e[20:]), QPN: native.Uint32(e[28:]), SrcQPN: native.Uint32(e[32:]),
		Flags: native.Uint32(e[36:]), PKeyIndex: native.Uint16(e[40:]), SL: e[44], Port: e[46]}
	if c.Flags&WithImm != 0 {
		c.Imm = binary.BigEndian.Uint32(e[24:])
	}
	if c.Flags&WithInv != 0 {
		c.Key = native.Uint32(e[24:])
	}
	r.SetConsumer((i + 1) & r.Mask())
	return c, true
}

// PutSend writes a send request.
func PutSend(e []byte, w SendWR) { w.fill(e) }

// PutRecv writes a receive without entries.
func PutRecv(e []byte, id uint64) {
	native.PutUint64(e, id)
	putDMA(e[16:], 0, 0)
}

// SetRecvSGE has a receive say that it has n entries.
func SetRecvSGE(e []byte, n uint32) { native.PutUint32(e[28:], n) }

// Scribble writes over rings without a rule, as a program can, until stop is
// closed.
//
//go:norace
func Scribble(stop <-chan struct{}, rings ...[]byte) {
	seed := uint64(1)
	for {
		select {
		case <-stop:
			return
		default:
		}
		for range 100 {
			seed = seed*6364136223846793005 + 1442695040888963407
			mem := rings[seed>>60%uint64(len(rings))]
			at := seed >> 20 % uint64(len(mem)-3)
			if seed>>59&1 == 0 { // an index, or a number in an element
				at = []uint64{128, 256, 384 + 12, 384 + 184 + 12, 384 + 184, 384 + 28}[seed>>40%6]
			}
			native.PutUint32(mem[at:], uint32(seed>>33)&0x1f)
		}
		runtime.Gosched()
	}
}
