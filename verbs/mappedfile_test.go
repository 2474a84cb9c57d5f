package verbs_test

import (
	"os"
	"runtime"
	"testing"
)

// mappedDir returns a directory for files that are mapped until the devices of
// the test have ended. Windows refuses to remove them before, so there they
// stay in the system's folder for such files.
func mappedDir(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "windows" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("", "mapped")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// cut truncates a file that is mapped. On Windows the test ends there.
func cut(t testing.TB, f *os.File, size int64) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not truncate a file that is mapped: run it on another system")
	}
	check(t, f.Truncate(size))
}
