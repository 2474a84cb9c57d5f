package dissect

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Writer writes frames as pcapng.
type Writer struct {
	w          *bufio.Writer
	interfaces map[LinkType]uint32
	block      []byte
}

// NewWriter begins a capture. It is buffered until Flush.
func NewWriter(w io.Writer) *Writer {
	n := &Writer{w: bufio.NewWriterSize(w, 1<<16), interfaces: map[LinkType]uint32{}}
	le := binary.LittleEndian
	b := le.AppendUint32(nil, ngByteOrder)
	b = le.AppendUint32(b, 1) // version 1.0
	b = le.AppendUint64(b, 1<<64-1)
	_ = n.write(ngSection, b) // the buffer keeps the error
	return n
}

// write writes a block; b is padded.
func (w *Writer) write(kind uint32, b []byte) error {
	le := binary.LittleEndian
	length := uint32(12 + len(b))
	var head [8]byte
	le.PutUint32(head[:], kind)
	le.PutUint32(head[4:], length)
	_, _ = w.w.Write(head[:])
	_, _ = w.w.Write(b)
	_, err := w.w.Write(le.AppendUint32(head[:0], length))
	return err
}

// Write writes a frame.
func (w *Writer) Write(f *Frame) error {
	le := binary.LittleEndian
	id, known := w.interfaces[f.Link]
	if !known {
		id = uint32(len(w.interfaces))
		w.interfaces[f.Link] = id
		b := le.AppendUint32(w.block[:0], uint32(f.Link))
		b = le.AppendUint32(b, 0)             // no limit of the length
		b = append(b, 9, 0, 1, 0, 9, 0, 0, 0) // time stamps in nanoseconds
		b = le.AppendUint32(b, 0)             // end of options
		if err := w.write(ngIDB, b); err != nil {
			return err
		}
	}
	if len(f.Data) > maxRecord {
		return fmt.Errorf("a frame of %d bytes does not fit a capture", len(f.Data))
	}
	stamp := uint64(f.Time.UnixNano())
	b := le.AppendUint32(w.block[:0], id)
	b = le.AppendUint32(b, uint32(stamp>>32))
	b = le.AppendUint32(b, uint32(stamp))
	b = le.AppendUint32(b, uint32(len(f.Data)))
	b = le.AppendUint32(b, uint32(max(f.Length, len(f.Data))))
	b = append(b, f.Data...)
	for len(b)&3 != 0 {
		b = append(b, 0)
	}
	w.block = b
	return w.write(ngEnhanced, b)
}

// Flush writes out what is buffered, and returns the first error.
func (w *Writer) Flush() error { return w.w.Flush() }
