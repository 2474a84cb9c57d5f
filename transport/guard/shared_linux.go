//go:build !portable

package guard

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NewSharedTable returns an empty table in memory that other processes can
// read, and a file for them, which the caller closes. It is never unmapped:
// links of the process may still read it.
func NewSharedTable() (*Table, *os.File, error) {
	fd, err := unix.MemfdCreate("rocev2-keys", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("guard: memory for keys: %w", err)
	}
	f := os.NewFile(uintptr(fd), "rocev2-keys")
	t, err := share(fd)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("guard: memory for keys: %w", err)
	}
	return t, f, nil
}

func share(fd int) (*Table, error) {
	if err := unix.Ftruncate(fd, TableBytes); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(fd, 0, TableBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	_ = unix.Mlock(b) // or secrets may be swapped out
	// What is mapped already stays writable (Linux 5.1).
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Munmap(b)
		return nil, fmt.Errorf("keep others from writing it (Linux 5.1 can): %w", err)
	}
	return tableOf(wordsOf(b)), nil
}

// mapped are the tables of other processes that are mapped, by their files.
// They stay: links may still read them.
var mapped = struct {
	sync.Mutex
	of map[[2]uint64]*Table
}{of: map[[2]uint64]*Table{}}

// MapTable maps the table of another process, for reading, from the file that
// NewSharedTable has made. It does not close the file.
func MapTable(fd int) (*Table, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("guard: the keys of the port's owner: %w", err)
	}
	if st.Size != TableBytes {
		return nil, fmt.Errorf("guard: the keys of the port's owner have %d bytes, and not %d: use the same release of both", st.Size, TableBytes)
	}
	mapped.Lock()
	defer mapped.Unlock()
	id := [2]uint64{uint64(st.Dev), st.Ino}
	if t := mapped.of[id]; t != nil {
		return t, nil
	}
	b, err := unix.Mmap(fd, 0, TableBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("guard: map the keys of the port's owner: %w", err)
	}
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	t := tableOf(wordsOf(b))
	mapped.of[id] = t
	return t, nil
}

func wordsOf(b []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[0])), tableWords)
}
