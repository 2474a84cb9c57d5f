package ib

import (
	"strconv"

	"github.com/gosoftroce/rocev2/rocev2"
)

// QPType is the type of a queue pair, with the numbers of ibv_qp_type: its
// transport service, and for XRC and the management queue pair its role.
type QPType uint8

// Types of queue pairs.
const (
	// GSI is queue pair 1, of which a device has one: management datagrams
	// over UD (IBTA 13.5.1). Its number, and its Q_Key 0x80010000, are the
	// standard's.
	GSI QPType = 1
	// RC is the reliable connection (IBTA 9.7).
	RC QPType = 2
	// UC is the unreliable connection (IBTA 9.8.2): SEND and WRITE without
	// acknowledgement. What is lost stays lost, a message at a time.
	UC QPType = 3
	// UD is the unreliable datagram (IBTA 9.8.3): SENDs of one packet, to
	// the destination that each request names, and from every sender that
	// knows the Q_Key.
	UD QPType = 4
	// XRCInitiator is the sending side of the extended reliable connection
	// (IBTA A14): as RC, but each request names a shared receive queue of
	// the other side. It has no receives. See XRCD.
	XRCInitiator QPType = 9
	// XRCTarget is the receiving side of the extended reliable connection.
	// It sends no requests.
	XRCTarget QPType = 10
)

var qpTypes = map[QPType]struct {
	name    string
	service rocev2.Service
}{
	GSI:          {"GSI", rocev2.ServiceUD},
	RC:           {"RC", rocev2.ServiceRC},
	UC:           {"UC", rocev2.ServiceUC},
	UD:           {"UD", rocev2.ServiceUD},
	XRCInitiator: {"XRC_SEND", rocev2.ServiceXRC},
	XRCTarget:    {"XRC_RECV", rocev2.ServiceXRC},
}

// Known reports whether there is such a type.
func (t QPType) Known() bool { return qpTypes[t].name != "" }

// Service returns the transport service of the type, which is known.
func (t QPType) Service() rocev2.Service { return qpTypes[t].service }

// String returns the name of ibv_qp_type without its prefix.
func (t QPType) String() string {
	if t.Known() {
		return qpTypes[t].name
	}
	return "queue pair type " + strconv.Itoa(int(t))
}
