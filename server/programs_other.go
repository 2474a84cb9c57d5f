//go:build !linux

package server

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/gosoftroce/rocev2/server/config"
)

// programsServed says that the system runs unmodified programs.
const programsServed = false

func servePrograms(cfg *config.Config, _ []*device, _ *slog.Logger) (io.Closer, error) {
	if cfg.Programs.Dir == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("%s: unmodified verbs programs run on Linux only", cfg.Where("programs.directory"))
}
