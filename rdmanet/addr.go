package rdmanet

import "net/netip"

// Network is the name of the network of this package's addresses.
const Network = "rdma"

// Addr is the address of an end of a connection, a net.Addr: the IP address of
// a device, and a port of the connection manager (port space TCP).
type Addr struct{ netip.AddrPort }

// Network returns "rdma".
func (Addr) Network() string { return Network }
