package tap

import (
	"bufio"
	"encoding/binary"
	"io"
	"runtime"
	"time"
)

// writer writes a pcapng file with one interface (draft-ietf-opsawg-pcapng), in
// the byte order of most machines. It is not that of package pcapgo, whose
// protocol tables take more memory than the rest of a program.
type writer struct {
	w     *bufio.Writer
	block []byte
}

// Types of blocks and options.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6 // enhanced packet block

	optionEnd  = 0
	optionApp  = 4  // of a section: the program
	optionName = 2  // of an interface
	optionText = 3  // of an interface: its description
	optionTime = 9  // of an interface: the resolution of timestamps
	optionOS   = 12 // of an interface

	linkTypeRaw = 101 // the packet begins with the IP header
)

var le = binary.LittleEndian

// newWriter writes the beginning of a file.
func newWriter(w io.Writer, name, description string) (*writer, error) {
	p := &writer{w: bufio.NewWriter(w)}
	p.begin(blockSection)
	p.block = le.AppendUint32(p.block, 0x1a2b3c4d) // tells the byte order
	p.block = le.AppendUint32(p.block, 1)          // version 1.0
	p.block = le.AppendUint64(p.block, 1<<64-1)    // the length is not known
	p.option(optionApp, []byte("rocev2"))
	p.option(optionEnd, nil)
	if err := p.end(); err != nil {
		return nil, err
	}
	p.begin(blockInterface)
	p.block = le.AppendUint32(p.block, linkTypeRaw)
	p.block = le.AppendUint32(p.block, 0) // packets are whole
	p.option(optionName, []byte(name))
	p.option(optionText, []byte(description))
	p.option(optionTime, []byte{9}) // nanoseconds
	p.option(optionOS, []byte(runtime.GOOS))
	p.option(optionEnd, nil)
	return p, p.end()
}

func (p *writer) begin(kind uint32) {
	p.block = le.AppendUint32(p.block[:0], kind)
	p.block = le.AppendUint32(p.block, 0) // end writes the length
}

func (p *writer) option(code uint16, value []byte) {
	p.block = le.AppendUint16(p.block, code)
	p.block = le.AppendUint16(p.block, uint16(len(value)))
	p.block = append(p.block, value...)
	p.pad()
}

func (p *writer) pad() {
	for len(p.block)%4 != 0 {
		p.block = append(p.block, 0)
	}
}

func (p *writer) end() error {
	n := uint32(len(p.block) + 4)
	le.PutUint32(p.block[4:], n)
	p.block = le.AppendUint32(p.block, n)
	_, err := p.w.Write(p.block)
	return err
}

// packet writes a packet, from its IP header on.
func (p *writer) packet(at time.Time, frame []byte) error {
	t := uint64(at.UnixNano())
	p.begin(blockPacket)
	p.block = le.AppendUint32(p.block, 0) // the interface
	p.block = le.AppendUint32(p.block, uint32(t>>32))
	p.block = le.AppendUint32(p.block, uint32(t))
	p.block = le.AppendUint32(p.block, uint32(len(frame)))
	p.block = le.AppendUint32(p.block, uint32(len(frame)))
	p.block = append(p.block, frame...)
	p.pad()
	return p.end()
}

func (p *writer) flush() error { return p.w.Flush() }
