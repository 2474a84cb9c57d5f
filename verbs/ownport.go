package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/transport/lease"
)

// OpenLease opens a device on a part of a port that its owner leases, by the
// path of the owner's Unix socket. [OpenAddr] finds that itself, where it is in
// one of the usual places. It is for daemons that are owners (package
// transport/owner): other programs have Config.Owner. The device does not close
// the owner.
func OpenLease(socket string, cfg Config) (*Device, error) {
	l, err := lease.OpenAt(socket, lease.Config{Shards: cfg.Shards, UDP: cfg.udpConfig()})
	if err != nil {
		return nil, fmt.Errorf("verbs: open a device by %s: %w", socket, err)
	}
	return openLinks(cfg, l.Links())
}
