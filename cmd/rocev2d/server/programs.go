package server

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// sharePorts says which users may share the ports of the devices, and makes the
// directory of unmodified programs if there is to be one.
func sharePorts(cfg *config.Config, log *slog.Logger) (c owner.Config, host programsHost, err error) {
	p := cfg.Programs
	uids, err := p.UIDs()
	if err != nil {
		return c, nil, fmt.Errorf("%s: %w", cfg.Where("programs.users"), err)
	}
	member, err := p.Member()
	if err != nil {
		return c, nil, fmt.Errorf("%s: %w", cfg.Where("programs.groups"), err)
	}
	q := p.Lease
	c = owner.Config{Log: log,
		Allow: func(uid uint32) bool { return p.Any || uid == 0 || slices.Contains(uids, uid) || member(uid) },
		Quota: owner.Quota{QPs: q.QPs, RecvBuffer: q.Buffers, SendBuffer: q.Buffers, MADs: q.MADs, Leases: q.PerUser},
	}
	if p.Dir != "" {
		host, err = openPrograms(cfg, &c, log)
	}
	return c, host, err
}
