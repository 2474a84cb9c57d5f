//go:build !portable

package shm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The side that has packets for a peer connects to its socket and sends a
// hello, with the memory and one of two bells, see newBells. The other side
// checks all that, and answers. Then both use the memory. The connection stays
// open: when it ends, the peer has ended.

// hello is the first message, as JSON in one packet of the socket.
type hello struct {
	Version   int            `json:"rocev2shm"`
	Order     string         `json:"order"`     // of bytes
	Namespace uint64         `json:"namespace"` // of the network
	From      netip.AddrPort `json:"from"`
	Scope     uint32         `json:"scope"` // of both addresses
	Slot      int            `json:"slot"`  // of the link: its queue pairs are those
	Slots     int            `json:"slots"` // with these numbers modulo Slots
	To        netip.AddrPort `json:"to"`
	ToQPN     int            `json:"to_qpn"` // chooses the link
	Memory    int            `json:"memory"`
}

// answer is the second one. Refused says why not.
type answer struct {
	Refused string `json:"refused,omitempty"`
	Slot    int    `json:"slot"`
	Slots   int    `json:"slots"`
}

const (
	agreeTime  = 2 * time.Second // for one side to answer
	maxMessage = 1024
	maxSlots   = 256 // of a port: links of a device, or parts that are leased
)

// sendMessage sends a message with descriptors.
func sendMessage(c *net.UnixConn, m any, fds ...int) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(agreeTime)); err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(data, rights, nil)
	return err
}

// receiveMessage receives a message and its descriptors, of which there must be
// want. If there is an error they are closed.
func receiveMessage(c *net.UnixConn, m any, want int) (fds []int, err error) {
	if err := c.SetDeadline(time.Now().Add(agreeTime)); err != nil {
		return nil, err
	}
	data, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxRights))
	n, nc, flags, _, err := c.ReadMsgUnix(data, control)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:nc])
	for i := range messages {
		got, _ := unix.ParseUnixRights(&messages[i]) // what has none fails
		fds = append(fds, got...)
	}
	switch {
	case err != nil:
	case n == 0:
		err = errors.New("the peer has ended the agreement")
	case flags&unix.MSG_TRUNC != 0:
		err = errBroken("a message of the agreement is too long")
	case flags&unix.MSG_CTRUNC != 0 || len(fds) != want:
		err = errBroken("a message of the agreement has not as many descriptors as it should")
	default:
		err = json.Unmarshal(data[:n], m)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

// maxRights is how many descriptors may come at once: the rest is closed by the
// kernel.
const maxRights = 4

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// sameUser refuses a peer that is not of the user uid.
func sameUser(c *net.UnixConn, uid int) error {
	cred, err := credentials(c)
	if err != nil {
		return err
	}
	if int(cred.Uid) != uid {
		return fmt.Errorf("the peer is of user %d, not %d", cred.Uid, uid)
	}
	return nil
}

// credentials says which process is at the other end.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return nil, e
	}
	return cred, os.NewSyscallError("getsockopt SO_PEERCRED", err)
}

// pidOf returns the process at the other end, 0 if that is not visible here.
func pidOf(c *net.UnixConn) int32 {
	cred, err := credentials(c)
	if err != nil {
		return 0
	}
	return cred.Pid
}
