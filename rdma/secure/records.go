package secure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// records is a connection that is read record by record of TLS (RFC 8446 5.1):
// a Read takes nothing that comes after the record that it is in. So what TLS
// has taken when it has done its work is TLS's, and the program has the rest.
type records struct {
	net.Conn
	head   [5]byte
	have   int   // bytes of head
	left   int   // bytes of the record after it
	some   bool  // records have come
	failed error // of a Write
}

// Write returns no error of the connection: Read does, after all that the peer
// has said before. What it says before it ends a handshake is why: an alert.
func (r *records) Write(p []byte) (n int, err error) {
	if r.failed == nil {
		_, r.failed = r.Conn.Write(p)
	}
	return len(p), nil
}

// errGivenUp is what a peer causes that has TLS, and ends the handshake.
var errGivenUp = fmt.Errorf("the peer has ended the handshake after it had begun it: it has waited too long for this side, as for a program that was stopped (clients have %v), or its own error says why: %w", Time, io.ErrUnexpectedEOF)

func (r *records) Read(p []byte) (n int, err error) {
	n, err = r.read(p)
	if err != nil && r.failed != nil {
		err = r.failed
	}
	return n, err
}

func (r *records) read(p []byte) (n int, err error) {
	if r.left > 0 {
		n, err = r.Conn.Read(p[:min(len(p), r.left)])
		if r.left -= n; r.left == 0 {
			r.have = 0
		}
		return n, err
	}
	n, err = r.Conn.Read(p[:min(len(p), len(r.head)-r.have)])
	if n == 0 && r.some && errors.Is(err, io.EOF) {
		return 0, errGivenUp
	}
	r.have += copy(r.head[r.have:], p[:n])
	if r.have == len(r.head) {
		r.some = true
		if r.left = int(binary.BigEndian.Uint16(r.head[3:])); r.left == 0 {
			r.have = 0
		}
	}
	return n, err
}
