//go:build !linux

package server

import (
	"fmt"
	"log/slog"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// programsServed says that the system runs unmodified programs.
const programsServed = false

func openPrograms(cfg *config.Config, _ *owner.Config, _ *slog.Logger) (programsHost, error) {
	return nil, fmt.Errorf("%s: unmodified verbs programs run on Linux only", cfg.Where("programs.directory"))
}
