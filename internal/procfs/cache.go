package procfs

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// SysRoot is the /sys of this system.
func SysRoot() fs.FS { return os.DirFS("/sys") }

// L2Cache returns the size in bytes of the second-level cache that the first
// processor has, from sys; 0 if that is not known.
func L2Cache(sys fs.FS) int {
	const dir = "devices/system/cpu/cpu0/cache"
	entries, err := fs.ReadDir(sys, dir)
	if err != nil {
		return 0
	}
	text := func(name, file string) string {
		b, _ := fs.ReadFile(sys, path.Join(dir, name, file))
		return strings.TrimSpace(string(b))
	}
	for _, e := range entries {
		if text(e.Name(), "level") != "2" || text(e.Name(), "type") == "Instruction" {
			continue
		}
		size := text(e.Name(), "size")
		unit := uint64(1)
		switch {
		case strings.HasSuffix(size, "K"):
			unit = 1 << 10
		case strings.HasSuffix(size, "M"):
			unit = 1 << 20
		}
		if n, err := strconv.ParseUint(strings.TrimRight(size, "KM"), 10, 32); err == nil && n*unit <= math.MaxInt32 {
			return int(n * unit)
		}
	}
	return 0
}
