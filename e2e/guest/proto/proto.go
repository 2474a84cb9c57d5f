// Package proto is the small protocol between the test host and the agent
// inside a kernel guest: one TCP connection runs one command.
//
// A frame is one type byte, a big-endian 32-bit length and that many bytes.
// The host opens with a FrameRequest; then standard input and signals flow to
// the guest, output flows back, and one FrameExit ends the conversation.
// Closing the connection kills the command and everything in its process
// group.
//
// It has no authentication and no encryption: both ends live in a network
// namespace made for one test run.
package proto

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Port is the TCP port on which the agent listens.
const Port = 7000

// maxFrame bounds what a reader accepts in one frame.
const maxFrame = 1 << 20

// Type tells what a frame carries.
type Type byte

// The frame types. Request, Stdin, StdinEOF and Signal travel to the guest,
// the others to the host.
const (
	FrameRequest  Type = 'R' // JSON Request
	FrameStdin    Type = 'I' // bytes for standard input
	FrameStdinEOF Type = 'E' // empty: close standard input
	FrameSignal   Type = 'K' // one byte: signal number for the process group
	FrameStdout   Type = 'O'
	FrameStderr   Type = 'e'
	FrameExit     Type = 'X' // JSON Exit
)

// The operations of a Request.
const (
	OpExec       = "exec"   // run Argv
	OpWaitListen = "listen" // wait until a TCP socket listens on Port
)

// Request asks the agent for one operation.
type Request struct {
	Op      string
	Argv    []string      `json:",omitempty"`
	Env     []string      `json:",omitempty"` // added to the agent's own
	Stdin   bool          `json:",omitempty"` // stdin frames will follow; otherwise /dev/null
	Timeout time.Duration `json:",omitempty"` // 0 = none; then the command is killed
	Port    int           `json:",omitempty"` // OpWaitListen
}

// Exit is how an operation ended.
type Exit struct {
	Code     int    // exit status; 128+n after signal n, as a shell has it; -1 if it never ran
	TimedOut bool   `json:",omitempty"`
	Err      string `json:",omitempty"` // the agent's own failure, for example "no such file"
}

// Conn frames a byte stream. Reads must come from one goroutine; writes may
// come from several.
type Conn struct {
	rw io.ReadWriter
	mu sync.Mutex // orders whole frames
}

// NewConn frames rw.
func NewConn(rw io.ReadWriter) *Conn { return &Conn{rw: rw} }

// Write sends one frame; a payload longer than a frame is split.
func (c *Conn) Write(t Type, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n := min(len(payload), maxFrame)
		b := make([]byte, 5, 5+n)
		b[0] = byte(t)
		binary.BigEndian.PutUint32(b[1:], uint32(n))
		if _, err := c.rw.Write(append(b, payload[:n]...)); err != nil {
			return err
		}
		if payload = payload[n:]; len(payload) == 0 {
			return nil
		}
	}
}

// WriteJSON sends v as one frame.
func (c *Conn) WriteJSON(t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Write(t, b)
}

// Read returns the next frame.
func (c *Conn) Read() (Type, []byte, error) {
	var h [5]byte
	if _, err := io.ReadFull(c.rw, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("proto: frame of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.rw, b); err != nil {
		return 0, nil, err
	}
	return Type(h[0]), b, nil
}

// Writer returns an io.Writer that sends what it is given as frames of type t.
func (c *Conn) Writer(t Type) io.Writer { return frameWriter{c, t} }

type frameWriter struct {
	c *Conn
	t Type
}

func (w frameWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.c.Write(w.t, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ParseRequest decodes the opening frame of a conversation.
func ParseRequest(t Type, b []byte) (Request, error) {
	var r Request
	if t != FrameRequest {
		return r, fmt.Errorf("proto: frame %q where a request was expected", t)
	}
	err := json.Unmarshal(b, &r)
	return r, err
}

// ParseExit decodes the closing frame of a conversation.
func ParseExit(b []byte) (Exit, error) {
	var x Exit
	err := json.Unmarshal(b, &x)
	return x, err
}
