package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/server"
)

// Programs find the devices of the daemon in its directory, as long as it runs.
func TestPrograms(t *testing.T) {
	t.Parallel()
	cfg := settings(loopback())
	cfg.Programs.Dir = filepath.Join(t.TempDir(), "d")
	s, err := server.Start(t.Context(), cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := filepath.Glob(filepath.Join(cfg.Programs.Dir, "sys/class/infiniband/rxe_lo*"))
	if err != nil || len(devices) != 1 {
		t.Errorf("%v, %v", devices, err)
	}
	held, err := programs.Hold(cfg.Programs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := programs.Listen(programs.Config{Dir: cfg.Programs.Dir}); !errors.Is(err, programs.ErrInUse) {
		t.Errorf("a second daemon of the directory: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Programs.Dir, "socket")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
