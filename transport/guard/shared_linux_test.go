package guard_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/transport/guard"
)

// TestSharedTable: another process, that has the file, reads the table, and
// cannot write it.
func TestSharedTable(t *testing.T) {
	t.Parallel()
	table, f, err := guard.NewSharedTable()
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	theirs, err := guard.MapTable(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	was := theirs.Version()
	table.Set(&guard.Peer{Addr: addrA, Send: secret(1, 1, 1)})
	if theirs.Version() == was {
		t.Error("a change is not seen")
	}
	if _, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err == nil {
		t.Error("it can be mapped for writing")
	}
	if _, err := f.WriteAt([]byte{1}, 0); err == nil {
		t.Error("it can be written")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("it can be cut")
	}
	other, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := guard.MapTable(int(other.Fd())); err == nil || !strings.Contains(err.Error(), "same release") {
		t.Errorf("another file: %v", err)
	}
}
