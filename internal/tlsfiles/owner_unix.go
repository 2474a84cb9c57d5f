//go:build unix

package tlsfiles

import (
	"io/fs"
	"os"
	"syscall"
)

// isOfAnother reports whether a file is another user's.
func isOfAnother(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int64(s.Uid) != int64(os.Geteuid())
}
