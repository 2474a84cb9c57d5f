package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/server/config"
	"github.com/gosoftroce/rocev2/uverbs"
)

// servePrograms has unmodified programs of this host use the devices. It
// returns nil if nobody wants that.
func servePrograms(cfg *config.Config, devices []*device, log *slog.Logger) (io.Closer, error) {
	p := cfg.Programs
	if p.Dir == "" {
		return nil, nil
	}
	uids, err := p.UIDs()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Where("programs.users"), err)
	}
	own := uint32(os.Geteuid())
	host, err := programs.Listen(programs.Config{
		Dir: p.Dir, MaxConnections: p.Files, MaxPerUser: p.PerUser, Log: log,
		Allow: func(uid uint32) bool { return p.Any || uid == 0 || uid == own || slices.Contains(uids, uid) },
		Quota: uverbs.Quota{
			Objects:   hca.Quota{QPs: p.QPs, MRs: p.MRs},
			CQEntries: p.CQEntries, RingBytes: p.QueueMemory,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Where("programs.directory"), err)
	}
	for _, d := range devices {
		if err := host.AddDevice(d.dev); err != nil {
			return nil, errors.Join(fmt.Errorf("device %s: %w", d.addr(), err), host.Close())
		}
	}
	log.Info("programs served", "directory", p.Dir)
	return host, nil
}
