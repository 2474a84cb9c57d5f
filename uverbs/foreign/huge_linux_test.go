package foreign

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory of huge pages is of a file system that nobody sees mounted.
func TestHugePagesAreMemory(t *testing.T) {
	t.Parallel()
	// Without a reservation it can be mapped where there are no such pages.
	mem, err := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("this system has no huge pages (CONFIG_HUGETLBFS): %v", err)
	}
	defer unix.Munmap(mem)
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	for line := range strings.Lines(string(text)) {
		if m, ok := parseMap(line); ok && m.start <= at && at < m.end {
			if m.inode == 0 || !(&filesystems{}).local(nil, m.dev) {
				t.Errorf("not memory: %s", line)
			}
			return
		}
	}
	t.Error("it is not mapped")
}
