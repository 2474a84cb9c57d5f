package transport

import "net/netip"

// Use is what a device has been used for, for the owner of its port.
type Use struct {
	QPs   int       // open queue pairs
	Made  uint64    // queue pairs made since the beginning
	Link  LinkStats // of all links, with what went through shared memory
	Peers []UsedPeer
}

// UsedPeer is a peer that queue pairs were connected to.
type UsedPeer struct {
	Addr   netip.Addr `json:"addr"`
	Native bool       `json:"native,omitempty"` // the program said that it is this software
}

// MostUsedPeers is how many of a device are remembered: the first ones.
const MostUsedPeers = 16
