package transport

import "net/netip"

// Use is what a device has been used for, for the owner of its port.
type Use struct {
	QPs   int       // open queue pairs
	Made  uint64    // queue pairs made since the beginning
	Link  LinkStats // of all links, with what went through shared memory
	Peers []UsedPeer
	Work  Work
}

// Work is what a program has done with its queue pairs.
type Work struct {
	Types       []UsedType       `json:"types,omitempty"`       // of the queue pairs made
	Connections []UsedConnection `json:"connections,omitempty"` // of queue pairs: the first ones
	Requests    []UsedOperation  `json:"requests,omitempty"`    // accepted send requests, where they are counted
	LoopPackets uint64           `json:"loop_packets,omitempty"`
	LoopBytes   uint64           `json:"loop_bytes,omitempty"` // that passed inside the device, BTH to ICRC
}

// UsedPeer is a peer that queue pairs were connected to, or that an address
// handle leads to.
type UsedPeer struct {
	Addr   netip.Addr `json:"addr"`
	Native bool       `json:"native,omitempty"` // the program said that it is this software
}

// UsedType says how many queue pairs of a type were made.
type UsedType struct {
	Type string `json:"type"` // as verbs call it: RC
	Made uint64 `json:"made"`
}

// UsedConnection is a queue pair that was connected, and to which one.
type UsedConnection struct {
	Type    string     `json:"type"`
	QPN     uint32     `json:"qpn"`
	Peer    netip.Addr `json:"peer"`
	PeerQPN uint32     `json:"peer_qpn"`
}

// UsedOperation says how many send requests of an operation were accepted.
type UsedOperation struct {
	Operation string `json:"operation"` // as completions call it: WRITE
	Requests  uint64 `json:"requests"`
	Bytes     uint64 `json:"bytes"` // of their messages
}

// Of each list a device remembers this many at most: the first ones. All of
// them fit into a message to the owner of the port.
const (
	MostUsedPeers       = 16
	MostUsedConnections = 12
	MostUsedTypes       = 6
	MostUsedOperations  = 10
)
