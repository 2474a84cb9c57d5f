//go:build unix

package mapping

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func (o *Options) prot() int {
	if o.ReadOnly {
		return unix.PROT_READ
	}
	return unix.PROT_READ | unix.PROT_WRITE
}

func mapAnonymous(size int, o *Options) (pages, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_ANON
	if o.Reserve {
		flags |= noReserve
	}
	data, err := unix.Mmap(-1, 0, size, o.prot(), flags)
	if err != nil {
		return pages{}, fmt.Errorf("mmap of %d bytes: %w", size, err)
	}
	return pages{data: data, release: func() error { return unmap(data) }}, nil
}

func mapFile(fd uintptr, off int64, size int, o *Options) (pages, error) {
	flags := unix.MAP_SHARED
	if o.Private {
		flags = unix.MAP_PRIVATE
	}
	data, err := unix.Mmap(int(fd), off, size, o.prot(), flags)
	switch {
	case errors.Is(err, unix.EACCES):
		return pages{}, fmt.Errorf("mmap: %w (is it open for what is asked? a shared writable mapping needs O_RDWR)", err)
	case err != nil:
		return pages{}, fmt.Errorf("mmap of %d bytes at %d: %w", size, off, err)
	}
	return pages{
		data: data,
		flush: func(data []byte) error {
			if err := unix.Msync(data, unix.MS_SYNC); err != nil {
				return os.NewSyscallError("msync", err)
			}
			return nil
		},
		release: func() error { return unmap(data) },
	}, nil
}

func unmap(data []byte) error {
	if err := unix.Munmap(data); err != nil {
		return os.NewSyscallError("munmap", err)
	}
	return nil
}

func lock(data []byte) error { return unix.Mlock(data) }

// lockHint says what bounds the memory that may be locked.
func lockHint() string {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) != nil || l.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(" (RLIMIT_MEMLOCK is %d bytes; raise it or map without Lock)", l.Cur)
}
