package ib

import (
	"strconv"

	"github.com/gosoftroce/rocev2/rocev2"
)

// QPType is the type of a queue pair, with the numbers of ibv_qp_type: its
// transport service, and for XRC and the management queue pair its role.
type QPType uint8

// The types.
const (
	GSI          QPType = 1 // QP 1: management datagrams, over UD
	RC           QPType = 2
	UC           QPType = 3
	UD           QPType = 4
	XRCInitiator QPType = 9  // sends requests, has no receives
	XRCTarget    QPType = 10 // executes requests, has no send queue
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
