//go:build !unix

package tlsfiles

import "io/fs"

func isOfAnother(fs.FileInfo) bool { return false }
