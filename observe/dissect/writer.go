package dissect

import (
	"bufio"
	"encoding/binary"
	"errors"
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

// Options of an interface.
const (
	ngOptionComment = 1
	ngOptionName    = 2
)

// Interface describes the interface that frames of a link type are from, before
// the first of them: its name, a comment, and the most bytes that are captured
// of a frame, 0 without a limit. Texts that are empty are left out.
func (w *Writer) Interface(link LinkType, name, comment string, snap int) error {
	if _, known := w.interfaces[link]; known {
		return errors.New("the interface is described already")
	}
	if n := max(len(name), len(comment)); n > maxText {
		return fmt.Errorf("a text of %d bytes is too long for an interface", n)
	}
	w.interfaces[link] = uint32(len(w.interfaces))
	le := binary.LittleEndian
	b := le.AppendUint32(w.block[:0], uint32(link))
	b = le.AppendUint32(b, uint32(snap))
	for _, o := range []struct {
		code uint16
		text string
	}{{ngOptionComment, comment}, {ngOptionName, name}} {
		if o.text == "" {
			continue
		}
		b = le.AppendUint16(b, o.code)
		b = le.AppendUint16(b, uint16(len(o.text)))
		b = pad(append(b, o.text...))
	}
	b = append(b, ngOptionTSResol, 0, 1, 0, 9, 0, 0, 0) // time stamps in nanoseconds
	b = le.AppendUint32(b, ngOptionEnd)
	w.block = b
	return w.write(ngIDB, b)
}

const maxText = 1 << 12 // of an option, in bytes

// pad fills a block up to a multiple of 4 bytes.
func pad(b []byte) []byte {
	for len(b)&3 != 0 {
		b = append(b, 0)
	}
	return b
}

// Write writes a frame.
func (w *Writer) Write(f *Frame) error {
	le := binary.LittleEndian
	if _, known := w.interfaces[f.Link]; !known {
		if err := w.Interface(f.Link, "", "", 0); err != nil {
			return err
		}
	}
	if len(f.Data) > maxRecord {
		return fmt.Errorf("a frame of %d bytes does not fit a capture", len(f.Data))
	}
	stamp := uint64(f.Time.UnixNano())
	b := le.AppendUint32(w.block[:0], w.interfaces[f.Link])
	b = le.AppendUint32(b, uint32(stamp>>32))
	b = le.AppendUint32(b, uint32(stamp))
	b = le.AppendUint32(b, uint32(len(f.Data)))
	b = le.AppendUint32(b, uint32(max(f.Length, len(f.Data))))
	w.block = pad(append(b, f.Data...))
	return w.write(ngEnhanced, w.block)
}

// Flush writes out what is buffered, and returns the first error.
func (w *Writer) Flush() error { return w.w.Flush() }
