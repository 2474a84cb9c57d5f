package programs

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// The directory shows nothing but the tree of a daemon that has ended, until
// all devices are there.
func TestTreeAppearsWhole(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	old := filepath.Join(dir, "sys/class/infiniband/rxe_old")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := Listen(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for range 2 {
		if err := h.OpenDevice(loopback()(), verbs.Config{}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "dev")); !os.IsNotExist(err) {
			t.Errorf("device files are there: %v", err)
		}
		if list, _ := os.ReadDir(filepath.Dir(old)); len(list) != 1 {
			t.Errorf("%v beside the old device", list)
		}
	}
	if err := h.Ready(); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(filepath.Dir(old))
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if list, _ := os.ReadDir(filepath.Join(dir, "dev/infiniband")); len(list) != 3 {
		t.Errorf("device files %v", list)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "ne*")); len(list) > 0 {
		t.Errorf("%v is left over", list)
	}
}

// A program that looks for devices of a daemon that has just begun waits for
// them.
func TestProgramWaitsForDevices(t *testing.T) {
	t.Parallel()
	h, err := Listen(Config{Dir: shortDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	cmd := preloaded(t, copyFile(t, library(t), t.TempDir()), h.config.Dir, "sh", "-c", "echo begins; ls /sys/class/infiniband")
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "begins\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := h.OpenDevice(loopback()(), verbs.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil || !strings.HasPrefix(string(rest), "rxe_") {
		t.Errorf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
