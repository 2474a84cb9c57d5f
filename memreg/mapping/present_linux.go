package mapping

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mayAsk reports whether mincore tells the truth of a file's pages: to who owns
// the file or may write it, for it would show what other programs read.
func mayAsk(st os.FileInfo, o *Options) bool {
	if !o.ReadOnly && !o.Private {
		return true // open for writing
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// mayAskAnonymous is mayAsk for memory without a file.
const mayAskAnonymous = true

// resident reports whether all pages of b are in memory (mincore(2)).
func resident(b []byte) bool {
	var vec [64]byte
	page := os.Getpagesize()
	for len(b) > 0 {
		n := min(len(b), len(vec)*page)
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(n), uintptr(unsafe.Pointer(&vec[0])))
		if e != 0 {
			return false
		}
		for _, v := range vec[:(n+page-1)/page] {
			if v&1 == 0 {
				return false
			}
		}
		b = b[n:]
	}
	return true
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
