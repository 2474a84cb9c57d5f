//go:build unix

package sims

import (
	"os"
	"runtime"
	"syscall"
)

// peak returns the most memory of an ended process that was resident.
func peak(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) * 1024
}
