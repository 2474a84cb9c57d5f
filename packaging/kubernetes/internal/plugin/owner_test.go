package plugin_test

import (
	"os"
	"syscall"
	"testing"
)

// owner returns the user and the group of a file.
func owner(t *testing.T, path string) [2]int {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	u := st.Sys().(*syscall.Stat_t)
	return [2]int{int(u.Uid), int(u.Gid)}
}
