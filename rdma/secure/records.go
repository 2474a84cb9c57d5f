package secure

import (
	"encoding/binary"
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
	r.have += copy(r.head[r.have:], p[:n])
	if r.have == len(r.head) {
		if r.left = int(binary.BigEndian.Uint16(r.head[3:])); r.left == 0 {
			r.have = 0
		}
	}
	return n, err
}
