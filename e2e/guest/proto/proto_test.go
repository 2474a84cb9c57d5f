package proto

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

func TestConversation(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	c := NewConn(&wire)
	want := Request{Op: OpExec, Argv: []string{"sh", "-c", "true"}, Stdin: true, Timeout: time.Second}
	long := strings.Repeat("x", maxFrame+1)
	for _, err := range []error{
		c.WriteJSON(FrameRequest, want),
		c.Write(FrameStdout, []byte(long)),
		c.Write(FrameStdinEOF, nil),
		c.WriteJSON(FrameExit, Exit{Code: 137, TimedOut: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	typ, b, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseRequest(typ, b)
	if err != nil || got.Op != want.Op || strings.Join(got.Argv, " ") != "sh -c true" || !got.Stdin || got.Timeout != want.Timeout {
		t.Errorf("request = %+v, %v; want %+v", got, err, want)
	}
	for i, n := range []int{maxFrame, 1} {
		if typ, b, err = c.Read(); err != nil || typ != FrameStdout || len(b) != n {
			t.Errorf("part %d of a long payload: %q, %d bytes, %v; want %d bytes", i, typ, len(b), err, n)
		}
	}
	if typ, b, err = c.Read(); err != nil || typ != FrameStdinEOF || len(b) != 0 {
		t.Errorf("empty frame: %q, %d bytes, %v", typ, len(b), err)
	}
	_, b, err = c.Read()
	if err != nil {
		t.Fatal(err)
	}
	if x, err := ParseExit(b); err != nil || x != (Exit{Code: 137, TimedOut: true}) {
		t.Errorf("exit = %+v, %v", x, err)
	}
	if _, _, err := c.Read(); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
}

func TestReadRefusesLongFrame(t *testing.T) {
	t.Parallel()
	c := NewConn(bytes.NewBuffer([]byte{'O', 0xff, 0xff, 0xff, 0xff, 0}))
	if _, b, err := c.Read(); err == nil {
		t.Errorf("a frame of 4 GiB was accepted: %d bytes", len(b))
	}
	c = NewConn(bytes.NewBuffer([]byte{'O', 0, 0, 0, 2, 0}))
	if _, _, err := c.Read(); err != io.ErrUnexpectedEOF {
		t.Errorf("a frame cut short: %v", err)
	}
}

func TestRequestMustComeFirst(t *testing.T) {
	t.Parallel()
	if _, err := ParseRequest(FrameStdin, []byte("{}")); err == nil {
		t.Error("standard input was taken for a request")
	}
	if _, err := ParseRequest(FrameRequest, []byte("nonsense")); err == nil {
		t.Error("nonsense was taken for a request")
	}
}

func TestListens(t *testing.T) {
	t.Parallel()
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:4853 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0
   1: 010012C6:4E20 020012C6:1B58 01 00000000:00000000 00:00000000 00000000     0        0 15 1 0 20 4 30 10 -1
`
	for port, want := range map[int]bool{0x4853: true, 0x4e20: false, 0x1b58: false, 1: false} {
		if got := listens(table, port); got != want {
			t.Errorf("listens on %#x = %v, want %v", port, got, want)
		}
	}
}
