package regular

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, link} {
		if name == link && os.Symlink(file, link) != nil {
			continue // Windows asks for a right
		}
		if b, err := Read(name, 5); err != nil || string(b) != "12345" {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := Read(name, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
			t.Errorf("a file that is too large: %v", err)
		}
	}
	for name, want := range map[string]string{
		dir:                         "is a directory",
		filepath.Join(dir, "none"):  "none",
		filepath.Join(file, "none"): "none",
	} {
		if _, err := Read(name, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := OpenFile(filepath.Join(dir, "new"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
