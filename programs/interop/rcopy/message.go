package rcopy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// DefaultPort is the port of the connection manager that rcopy listens on.
const DefaultPort = 7427

// command is what a message asks for.
type command uint8

const (
	cmdOpen  command = 1
	cmdClose command = 2
	cmdWrite command = 3
	response command = 0x80 // with the command that is answered
)

func (c command) String() string {
	switch c {
	case cmdOpen:
		return "OPEN"
	case cmdClose:
		return "CLOSE"
	case cmdWrite:
		return "WRITE"
	}
	return fmt.Sprintf("command 0x%02x", uint8(c))
}

const (
	headerLen = 16
	sizeLen   = 8 // after the header of a WRITE
	maxPath   = 4096
)

// ErrProtocol is wrapped by errors that say that the peer does not speak the
// protocol.
var ErrProtocol = errors.New("rcopy protocol violated by the peer")

// header begins a message.
//
//	0: version, 0   1: command   2-3: length of the message
//	4-7: file mode, or in an answer the status   8-15: of the client's choice
type header struct {
	command command
	length  uint16
	data    uint32
	id      uint64
}

func (h *header) appendTo(p []byte) []byte {
	p = append(p, 0, byte(h.command))
	p = binary.LittleEndian.AppendUint16(p, h.length)
	p = binary.LittleEndian.AppendUint32(p, h.data)
	return binary.LittleEndian.AppendUint64(p, h.id)
}

func parseHeader(p []byte) (header, error) {
	h := header{
		command: command(p[1]), length: binary.LittleEndian.Uint16(p[2:]),
		data: binary.LittleEndian.Uint32(p[4:]), id: binary.LittleEndian.Uint64(p[8:]),
	}
	if p[0] != 0 || h.length < headerLen {
		return h, fmt.Errorf("%w: a header of version %d and length %d, expected version 0 and at least %d", ErrProtocol, p[0], h.length, headerLen)
	}
	return h, nil
}

func readHeader(r io.Reader) (header, error) {
	var p [headerLen]byte
	if _, err := io.ReadFull(r, p[:]); err != nil {
		return header{}, err
	}
	return parseHeader(p[:])
}

// openMessage asks for a file. The name ends with NULs, and has a multiple of 8
// bytes.
func openMessage(path string, mode uint32) []byte {
	n := (len(path) + 8) &^ 7
	h := header{command: cmdOpen, length: uint16(headerLen + n), data: mode}
	p := append(h.appendTo(nil), path...)
	return append(p, make([]byte, n-len(path))...)
}

func writeMessage(size uint64) []byte {
	h := header{command: cmdWrite, length: headerLen + sizeLen}
	return binary.LittleEndian.AppendUint64(h.appendTo(nil), size)
}

func closeMessage() []byte {
	h := header{command: cmdClose, length: headerLen}
	return h.appendTo(nil)
}

// StatusError says that the server did not do what it was asked for.
type StatusError struct {
	Command string        // OPEN, WRITE or CLOSE
	Status  syscall.Errno // as the server says; of another system it may mean something else
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server refuses %s: %v (%d)", e.Command, e.Status, int(e.Status))
}

// Unwrap returns the status, for errors.Is with syscall.EACCES for example.
func (e *StatusError) Unwrap() error { return e.Status }

// readAnswer reads the answer to a command.
func readAnswer(r io.Reader, c command) error {
	h, err := readHeader(r)
	switch {
	case err != nil:
		return fmt.Errorf("answer to %v: %w", c, err)
	case h.command != c|response || h.length != headerLen:
		return fmt.Errorf("%w: %v with %d bytes, expected the answer to %v", ErrProtocol, h.command, h.length, c)
	case h.data != 0:
		return &StatusError{c.String(), syscall.Errno(h.data)}
	}
	return nil
}
