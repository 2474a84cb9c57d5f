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
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// programsServed says that the system runs unmodified programs.
const programsServed = true

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
			Objects:   hca.Quota{QPs: p.File.QPs, MRs: p.File.MRs},
			CQEntries: p.File.CQEntries, RingBytes: p.File.QueueMemory,
		},
		User: quota.Limits{
			quota.QPs: int64(p.User.QPs), quota.MRs: int64(p.User.MRs), quota.CQEntries: int64(p.User.CQEntries),
			quota.RingBytes: int64(p.User.QueueMemory), quota.MappedBytes: int64(p.User.MappedMemory), quota.IDs: int64(p.User.IDs),
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
