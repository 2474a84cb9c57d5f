package dissect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// LinkType says what a frame begins with. The numbers are those of capture
// files.
type LinkType uint16

// The link types that are decoded. Others give no packets.
const (
	LinkNull     LinkType = 0   // BSD loopback: 4 bytes, then IP
	LinkEthernet LinkType = 1   // Ethernet, with or without VLAN tags
	LinkRaw      LinkType = 101 // IPv4 or IPv6
	LinkLoop     LinkType = 108 // OpenBSD loopback: 4 bytes, then IP
	LinkSLL      LinkType = 113 // Linux cooked capture
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkSLL2     LinkType = 276 // Linux cooked capture, version 2
)

// Frame is one record of a capture.
type Frame struct {
	Time    time.Time
	Link    LinkType
	Data    []byte // what was captured; valid until the next call
	Length  int    // in bytes, of the frame on the wire; 0 = that of Data
	Segment int    // if the frame is to be segmented by offload: the UDP payload of a segment in bytes; 0 = not known
}

// Source gives frames: a file, or a socket that captures. Next fills f, and
// returns io.EOF at the end.
type Source interface {
	Next(f *Frame) error
}

// maxRecord is how many bytes of a frame a capture may hold, as in libpcap. No
// frame is longer, and a damaged file may claim anything.
const maxRecord = 262144

// errCut is for a capture that was not written to its end.
var errCut = errors.New("the capture ends in the middle of a record: it was cut off, or is still being written")

// FileError is what is wrong with a capture file, and where.
type FileError struct {
	Offset int64 // in bytes
	Err    error
}

func (e *FileError) Error() string { return fmt.Sprintf("byte %d: %v", e.Offset, e.Err) }

// Unwrap returns what is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// file reads pcap and pcapng. (gopacket's reader of pcapng panics on some
// damaged files, and allocates what they claim.)
type file struct {
	r      *bufio.Reader
	offset int64
	order  binary.ByteOrder
	buf    []byte
	head   [32]byte

	link  LinkType      // pcap
	nanos time.Duration // pcap: unit of the fraction

	ng         bool
	interfaces []ngInterface
	keys       *Keys // nil: of no use
}

// Format keeps the keys out of what is printed.
func (f file) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "capture file at byte %d", f.offset) }

// OpenFile reads a capture file, pcap or pcapng. It reads the file's header at
// once.
func OpenFile(r io.Reader) (Source, error) {
	f := &file{r: bufio.NewReaderSize(r, 1<<16)}
	magic, err := f.r.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &FileError{0, errors.New("the file is empty, or too short to be a capture")}
		}
		return nil, err
	}
	switch string(magic) {
	case "\x0a\x0d\x0d\x0a":
		f.ng = true
		return f, f.section()
	case "\xa1\xb2\xc3\xd4", "\xa1\xb2\x3c\x4d":
		f.order = binary.BigEndian
	case "\xd4\xc3\xb2\xa1", "\x4d\x3c\xb2\xa1":
		f.order = binary.LittleEndian
	default:
		return nil, &FileError{0, notCapture(magic)}
	}
	return f, f.pcapHeader()
}

func notCapture(magic []byte) error {
	switch {
	case string(magic[:2]) == "\x1f\x8b":
		return errors.New("the file is compressed with gzip: decompress it first, for example with zcat FILE | rocev2 dump -")
	case string(magic) == "\x28\xb5\x2f\xfd":
		return errors.New("the file is compressed with zstd: decompress it first, for example with zstdcat FILE | rocev2 dump -")
	}
	return fmt.Errorf("neither pcap nor pcapng: the file begins with % x", magic)
}

func (f *file) pcapHeader() error {
	h := f.head[:24]
	if err := f.read(h); err != nil {
		return f.wrong(errCut)
	}
	f.nanos = time.Microsecond
	if magic := f.order.Uint32(h); magic == 0xa1b23c4d {
		f.nanos = time.Nanosecond
	}
	if major := f.order.Uint16(h[4:]); major != 2 {
		return f.wrong(fmt.Errorf("version %d of pcap, which is not known; 2 is the only one", major))
	}
	// The upper bits are about frame check sequences.
	f.link = LinkType(f.order.Uint32(h[20:]) & 0xffff)
	return nil
}

// read fills b. The error is io.EOF only if nothing was read.
func (f *file) read(b []byte) error {
	n, err := io.ReadFull(f.r, b)
	f.offset += int64(n)
	return err
}

// wrong is an error at the current place.
func (f *file) wrong(err error) error { return &FileError{f.offset, err} }

// Next returns the next frame.
func (f *file) Next(to *Frame) error {
	if f.ng {
		return f.nextBlock(to)
	}
	h := f.head[:16]
	if err := f.read(h); err != nil {
		return f.end(err)
	}
	captured, length := f.order.Uint32(h[8:]), f.order.Uint32(h[12:])
	to.Time = time.Unix(int64(f.order.Uint32(h)), int64(f.order.Uint32(h[4:]))*int64(f.nanos)).UTC()
	to.Link = f.link
	to.Segment = 0
	return f.data(to, captured, length)
}

// end is the error of a read that may meet the end of the file.
func (f *file) end(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return f.wrong(errCut)
	}
	return err
}

// data reads what was captured of a frame.
func (f *file) data(to *Frame, captured, length uint32) error {
	if captured > maxRecord {
		return f.wrong(fmt.Errorf("a record of %d bytes; no frame has more than %d: the file is damaged", captured, maxRecord))
	}
	if n := int(captured); cap(f.buf) < n {
		f.buf = make([]byte, max(n, 4096))
	}
	to.Data = f.buf[:captured]
	to.Length = max(int(captured), int(min(length, maxRecord)))
	return f.whole(to.Data)
}

// whole is read where the file must not end.
func (f *file) whole(b []byte) error {
	err := f.read(b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return f.wrong(errCut)
	}
	return err
}
