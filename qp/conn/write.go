package conn

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Writer takes packets one after the other.
type Writer interface {
	// Room returns at least rocev2.MaxPacketLen bytes to write the next
	// packet to, or nil when it takes no more.
	Room() []byte
	// Commit says that Room holds a packet of n bytes, BTH to pad, without
	// ICRC. It goes to the address to, or to the peer of the connection if
	// that is nil.
	Commit(n int, to *ib.AddressVector, k PacketKind)
}

// PacketKind says which packets a Writer may treat in a way of their own. One
// that does not know a kind treats it as an OrdinaryPacket.
type PacketKind uint8

const (
	OrdinaryPacket PacketKind = iota
	// KernelFlush is a FLUSH whose ICRC is that of Linux
	// (rocev2.Flow.SealKernelFlush).
	KernelFlush
	// NoticePacket is a congestion notification, which may have a traffic
	// class of its own.
	NoticePacket
)

// Output is a Writer that takes a limited number of packets.
type Output struct {
	Packets int  // written
	Full    bool // the writer took no more

	w    Writer
	left int
}

// NewOutput returns an output of at most that many packets to w.
func NewOutput(w Writer, packets int) Output { return Output{w: w, left: packets} }

// Left returns how many more packets may be written.
func (o *Output) Left() int { return o.left }

// Only bounds how many more packets may be written, and returns how many fewer
// that are.
func (o *Output) Only(n int) (fewer int) {
	fewer = o.left - n
	o.left = n
	return fewer
}

// Room is Writer.Room.
func (o *Output) Room() []byte {
	if o.left <= 0 {
		return nil
	}
	b := o.w.Room()
	o.Full = b == nil
	return b
}

// Commit is Writer.Commit.
func (o *Output) Commit(n int, to *ib.AddressVector, k PacketKind) {
	o.w.Commit(n, to, k)
	o.left--
	o.Packets++
}

// Run is packets that differ in PSN and payload only: BTH, for a request of XRC
// an XRCETH, and a payload of the path MTU each, as in the middle of a long
// message. Or they are WRITEs of one packet each, to adjacent addresses.
type Run struct {
	Op   rocev2.Opcode
	PSN  rocev2.PSN
	N    int
	View memreg.View
	Off  uint64 // of the first payload in the view

	XRCETH bool // an XRCETH follows the BTH: a request of XRC
	SRQN   uint32

	RETH bool   // a RETH follows: each packet is a WRITE,
	VA   uint64 // the first of them to here
	RKey uint32
}

// WriteRun writes the packets of a run, for all of which out has room, until
// there are all, the writer takes no more, or a fault, and returns how many.
func (c *Conn) WriteRun(out *Output, t *Run) int {
	h := c.BTH(t.Op, 0)
	var head [rocev2.BTHLen]byte
	h.AppendTo(head[:0])
	at, w, n := rocev2.BTHLen, out.w, 0
	if t.XRCETH {
		at += rocev2.XRCETHLen
	}
	reth := at
	if t.RETH {
		at += rocev2.RETHLen
	}
	end := at + c.MTU
	for ; n < t.N; n++ {
		buf := w.Room()
		if buf == nil {
			out.Full = true
			break
		}
		*(*[rocev2.BTHLen]byte)(buf) = head
		binary.BigEndian.PutUint32(buf[psnOffset:], uint32(t.PSN.Add(n)))
		if t.XRCETH {
			binary.BigEndian.PutUint32(buf[rocev2.BTHLen:], t.SRQN)
		}
		if t.RETH {
			e := rocev2.RETH{VA: t.VA + uint64(n)<<c.Shift, RKey: t.RKey, Length: uint32(c.MTU)}
			e.AppendTo(buf[:reth])
		}
		if t.View.CopyOut(buf[at:end], t.Off+uint64(n)<<c.Shift) != ib.FaultNone {
			break
		}
		w.Commit(end, nil, OrdinaryPacket)
	}
	out.left -= n
	out.Packets += n
	return n
}

// psnOffset is where the word with AckReq, 0 here, and the PSN begins in a BTH.
const psnOffset = 8
