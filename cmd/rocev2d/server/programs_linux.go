package server

import (
	"fmt"
	"log/slog"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// programsServed says that the system runs unmodified programs.
const programsServed = true

// directory is what unmodified programs find.
type directory struct{ *programs.Host }

// openPrograms makes the directory of unmodified programs, and has the owners
// of ports listen there.
func openPrograms(cfg *config.Config, share *owner.Config, log *slog.Logger) (programsHost, error) {
	host, err := programs.Listen(programs.Config{Dir: cfg.Programs.Dir, Allow: share.Allow, Log: log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Where("programs.directory"), err)
	}
	share.Dir = host.PortDir()
	return directory{host}, nil
}

func (h directory) add(d *device) error {
	return h.AddDevice(d.dev, d.port, &d.past.Ended, d.config(0, true))
}
