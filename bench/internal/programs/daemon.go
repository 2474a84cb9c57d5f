package programs

import (
	"context"
	"net"
	"strconv"
	"time"
)

// waitDaemons waits until the daemons of addresses have ended, a second after
// their last program: the next cell opens a device there.
func waitDaemons(ctx context.Context, addrs ...string) {
	const udpPort = 4791
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, addr := range addrs {
		for ctx.Err() == nil {
			var l net.ListenConfig
			c, err := l.ListenPacket(ctx, "udp", net.JoinHostPort(addr, strconv.Itoa(udpPort)))
			if err == nil {
				_ = c.Close()
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
