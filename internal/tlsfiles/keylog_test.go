package tlsfiles

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestKeyLog has two writers of a file add lines to it.
func TestKeyLog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.log")
	for _, text := range []string{"one\n", "two\n"} {
		w, err := OpenKeyLog(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "one\ntwo\n" {
		t.Errorf("%q, %v", b, err)
	}
	if st, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestKeyLogMistakes has files that cannot be, or that others may read, also
// when that is so only later.
func TestKeyLogMistakes(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		t.TempDir(): "is a directory",
		filepath.Join(t.TempDir(), "none", "keys.log"): "open",
	} {
		if _, err := OpenKeyLog(file); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if _, err := OpenKeyLog(write(t, "open", "", 0o644)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
	file := write(t, "later", "", 0o600)
	w, err := OpenKeyLog(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "a key\n"); err == nil {
		t.Error("a key was written where others may read it")
	}
	if b, _ := os.ReadFile(file); len(b) > 0 {
		t.Errorf("%q", b)
	}
}
