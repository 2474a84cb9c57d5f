package mapping

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// residenceOf returns what the system says of a file's pages.
func residenceOf(fd uintptr, st os.FileInfo, o *Options) residence {
	var fs unix.Statfs_t
	err := unix.Fstatfs(int(fd), &fs)
	return residence{asks: mayAsk(st, o), local: err == nil && isLocal(uint32(fs.Type)) || o.Private}
}

// anonymousResidence is that of memory without a file.
var anonymousResidence = residence{asks: true, local: true}

// isLocal reports whether a file system is known to need only this machine when
// a page that is in memory is written.
func isLocal(magic uint32) bool {
	switch magic {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC,
		unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	}
	return false
}

// onDisk reports whether what is written to a file outlives the machine's
// power.
func onDisk(fd uintptr) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(fd), &fs) != nil {
		return false
	}
	switch uint32(fs.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		return false
	}
	return true
}

// mayAsk reports whether mincore tells the truth about a file's pages. It does
// so only to a process that owns the file or may write it, because it would
// show what other programs read.
func mayAsk(st os.FileInfo, o *Options) bool {
	if !o.ReadOnly && !o.Private {
		return true // open for writing
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// resident returns how many pages from the first of b on are in memory
// (mincore(2)).
func resident(b []byte) (pages int) {
	var vec [askedAtOnce]byte
	page := os.Getpagesize()
	for len(b) > 0 {
		n := min(len(b), len(vec)*page)
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(n), uintptr(unsafe.Pointer(&vec[0])))
		if e != 0 {
			return pages
		}
		for _, v := range vec[:(n+page-1)/page] {
			if v&1 == 0 {
				return pages
			}
			pages++
		}
		b = b[n:]
	}
	return pages
}

// populatePages has the kernel make the faults of a touch, since Linux 5.14.
func populatePages(b []byte, write bool) error {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		switch err := unix.Madvise(b, advice); {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.EINVAL):
			return errNoPopulate
		default:
			return err
		}
	}
}

// noReserve has mmap take addresses and no memory.
const noReserve = unix.MAP_NORESERVE
