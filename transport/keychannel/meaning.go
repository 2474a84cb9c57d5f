package keychannel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Failure is a handshake that has failed.
type Failure struct {
	Peer  netip.Addr
	Err   error     // as Config.Explain has it
	Began bool      // this side has connected; else the peer has
	Since time.Time // of keys that there are nevertheless; zero: there are none
}

// notConnected says what it means that a peer cannot be connected to.
func (c *Config) notConnected(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the peer takes no connections at TCP port %d: its device is not secured, or the process that secures it does not run: %w", c.Port, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the peer does not answer at TCP port %d: a firewall drops it, here or there, or there is no such host: %w", c.Port, err)
	}
	return err
}
