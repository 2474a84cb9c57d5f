package dissect

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Protocol is what programs speak on a connection, as far as it is decoded.
type Protocol uint8

// The protocols. Which one it is, both sides say in the private data of REQ and
// REP.
const (
	ProtocolUnknown  Protocol = iota
	ProtocolRDMA              // messages and directory of package rdma
	ProtocolRsockets          // streams of rsockets and of package rdma/rdmanet
)

var protocols = map[string]Protocol{"rdma": ProtocolRDMA, "rsockets": ProtocolRsockets}

var protocolNames = [...]string{ProtocolRDMA: "rdma", ProtocolRsockets: "rsockets"}

// String returns the name; that of ProtocolUnknown is empty.
func (p Protocol) String() string { return protocolNames[p] }

// Application is what a packet says in the protocol of the programs, and what
// a selective acknowledgement says.
type Application struct {
	Text   string // in short
	fields fields
	rows   []string // what has no field
}

// number and add add a field, whose name begins with "rocev2.".
func (a *Application) number(name string, v uint64) { a.fields.number("rocev2."+name, v) }
func (a *Application) add(name string, v any)       { a.fields.add("rocev2."+name, v) }

// spoken is what a connection knows of the protocol on it.
type spoken struct {
	protocol Protocol
	// bigEndian says of A and B in which byte order it reads its slots.
	bigEndian [2]bool
}

// application decodes what the analysed packet says to programs.
func (p *Packet) application() {
	switch {
	case p.Err != nil || p.ICRC == ICRCBad || p.Flags&Replayed != 0 || p.Cut:
	case p.Mgmt.Message != nil:
		p.greeting()
	case p.is(rocev2.OpSelectiveAck):
		p.selective()
	case p.Conn == nil || !p.Has(rocev2.HasImmDt):
	case p.Conn.spoken.protocol == ProtocolRDMA && p.is(rocev2.OpSend):
		p.message()
	case p.Conn.spoken.protocol == ProtocolRsockets && p.is(rocev2.OpWrite):
		p.stream()
	}
}

// greeting takes the private data of REQ and REP.
func (p *Packet) greeting() {
	var side int
	switch p.Mgmt.Message.(type) {
	case *mad.REQ:
	case *mad.REP:
		side = 1
	default:
		return
	}
	a, b := &p.App, p.Mgmt.Private
	protocol, bigEndian := ProtocolUnknown, false
	if h, err := rsocket.ParseBlock(b); err == nil {
		protocol, bigEndian = ProtocolRsockets, h.BigEndian
		a.block(&h)
	} else if a.hello(b) {
		protocol = ProtocolRDMA
	}
	if protocol != ProtocolUnknown {
		a.add("protocol", protocol.String())
	}
	if c := p.Conn; c != nil {
		if s := &c.spoken; side == 0 || protocol == s.protocol {
			s.protocol, s.bigEndian[side] = protocol, bigEndian
		} else {
			s.protocol = ProtocolUnknown // they do not understand each other
		}
	}
}

// hello decodes the private data of package rdma. It reports whether it is
// that.
func (a *Application) hello(b []byte) bool {
	const size, version = 16, 1
	if len(b) < size || string(b[:4]) != "RMSG" || b[4] != version {
		return false
	}
	credits, most := be.Uint16(b[6:]), be.Uint32(b[8:])
	a.add("rdma.hello.regions", b[5]&1 != 0)
	a.number("rdma.hello.credits", uint64(credits))
	a.number("rdma.hello.size", uint64(most))
	a.number("rdma.hello.private", uint64(b[12]))
	a.Text = fmt.Sprintf("rdma, %d credits, messages to %s", credits, Bytes(int64(most)))
	return true
}

// block shows the connection block of rsockets.
func (a *Application) block(h *rsocket.Block) {
	a.number("rsockets.block.credits", uint64(h.Credits))
	a.add("rsockets.block.bigendian", h.BigEndian)
	a.number("rsockets.block.features", uint64(h.Features))
	a.memory("rsockets.block.slots", h.Slots)
	a.memory("rsockets.block.ring", h.Ring)
	a.Text = fmt.Sprintf("rsockets, %d credits, ring of %s", h.Credits, Bytes(int64(h.Ring.Length)))
}

func (a *Application) memory(name string, m rsocket.Memory) {
	a.add(name+".addr", Hex(m.Addr))
	a.number(name+".key", uint64(m.Key))
	a.number(name+".length", uint64(m.Length))
}

// selective shows which packets a selective acknowledgement says have arrived.
func (p *Packet) selective() {
	a, h := &p.App, &p.Wire.BTH
	var ranges []string
	for i := 0; i < 8*len(p.Wire.Payload); i++ {
		if p.Wire.Payload[i/8]>>(i%8)&1 == 0 {
			continue
		}
		first := i
		for i+1 < 8*len(p.Wire.Payload) && p.Wire.Payload[(i+1)/8]>>((i+1)%8)&1 != 0 {
			i++
		}
		text := fmt.Sprint(h.PSN.Add(first + 1))
		if i > first {
			text += fmt.Sprint("-", h.PSN.Add(i+1))
		}
		ranges = append(ranges, text)
	}
	arrived := strings.Join(ranges, ",")
	a.number("sack.missing", uint64(h.PSN))
	a.add("sack.arrived", arrived)
	a.Text = "has " + arrived
	if room, limited := p.Wire.AETH.Syndrome.Credits(); h.Solicited && limited {
		a.number("sack.room", uint64(room))
		a.Text += fmt.Sprintf(", room for %d", room)
	}
}

// stream shows a WRITE of rsockets.
func (p *Packet) stream() {
	a := &p.App
	op, value := rsocket.SplitImm(p.Wire.Imm)
	a.add("rsockets.op", op.String())
	a.number("rsockets.value", uint64(value))
	a.Text = "rsockets " + op.String()
	switch op {
	case rsocket.OpData:
		a.Text += fmt.Sprintf(" %d B", value)
	case rsocket.OpSGL:
		a.Text += fmt.Sprintf(" credit %d", value)
		p.target()
	case rsocket.OpControl:
		name := "reserved"
		switch value {
		case rsocket.ControlDisconnect:
			name = "disconnect"
		case rsocket.ControlKeepalive:
			name = "keepalive"
		case rsocket.ControlShutdown:
			name = "shutdown"
		}
		a.add("rsockets.control", name)
		a.Text += " " + name
	}
}

// target shows the piece of a ring that the peer may write to. It is in the
// byte order of the side that reads it.
func (p *Packet) target() {
	if len(p.Wire.Payload) != rsocket.SlotLen {
		return
	}
	var order binary.ByteOrder = binary.LittleEndian
	if p.Conn.spoken.bigEndian[1-p.From] {
		order = binary.BigEndian
	}
	b := p.Wire.Payload
	m := rsocket.Memory{Addr: order.Uint64(b), Key: order.Uint32(b[8:]), Length: order.Uint32(b[12:])}
	p.App.memory("rsockets.target", m)
	p.App.Text += fmt.Sprintf(" target %s at %#x", Bytes(int64(m.Length)), m.Addr)
}
