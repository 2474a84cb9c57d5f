//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
)

// ports are those of the field's tools, of the daemon, and of RoCEv2 itself,
// which rdma_rxe holds.
var ports = []struct {
	network string
	port    int
}{
	{"tcp", 18515}, {"tcp", 7174}, {"tcp", 7471}, {"tcp", 7470}, {"tcp", 14791},
	{"udp", 7174}, {"udp", 7471}, {"udp", 4791},
}

type sockets []io.Closer

// takePorts takes the ports on all addresses, and returns which it could not
// take.
func takePorts() (taken sockets, refused []string) {
	for _, p := range ports {
		var s io.Closer
		var err error
		if at := fmt.Sprintf(":%d", p.port); p.network == "udp" {
			s, err = net.ListenPacket(p.network, at)
		} else {
			s, err = net.Listen(p.network, at)
		}
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s port %d", p.network, p.port))
			continue
		}
		taken = append(taken, s)
	}
	return taken, refused
}

func (s sockets) release() {
	for _, c := range s {
		c.Close()
	}
}
