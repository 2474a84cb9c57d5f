package mapping

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// granularity is that of where in a file a view begins, the same on every
// Windows. What is before a mapping up to there is mapped, too.
const granularity = 64 << 10

// prot returns the protection of pages and the access of a view.
func (o *Options) prot() (page, view uint32) {
	switch {
	case o.ReadOnly:
		return windows.PAGE_READONLY, windows.FILE_MAP_READ
	case o.Private:
		return windows.PAGE_WRITECOPY, windows.FILE_MAP_COPY
	}
	return windows.PAGE_READWRITE, windows.FILE_MAP_WRITE
}

// bytesAt makes a slice of memory that is not Go's.
func bytesAt(addr uintptr, size int) []byte {
	// The detour tells vet that addr is not a Go pointer.
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), size)
}

func mapAnonymous(size int, o *Options) (pages, error) {
	page, _ := (&Options{ReadOnly: o.ReadOnly}).prot()
	addr, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE|windows.MEM_COMMIT, page)
	if err != nil {
		return pages{}, fmt.Errorf("VirtualAlloc of %d bytes: %w", size, err)
	}
	return pages{data: bytesAt(addr, size), release: func() error {
		return os.NewSyscallError("VirtualFree", windows.VirtualFree(addr, 0, windows.MEM_RELEASE))
	}}, nil
}

func mapFile(fd uintptr, off int64, size int, o *Options) (pages, error) {
	page, view := o.prot()
	file, err := duplicate(windows.Handle(fd)) // Sync needs it when f is closed
	if err != nil {
		return pages{}, err
	}
	fail := func(err error) (pages, error) { return pages{}, errors.Join(err, windows.CloseHandle(file)) }
	section, err := windows.CreateFileMapping(file, nil, page, 0, 0, nil)
	switch {
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return fail(fmt.Errorf("CreateFileMapping: %w (is it open for what is asked? a shared writable mapping needs O_RDWR)", err))
	case err != nil:
		return fail(os.NewSyscallError("CreateFileMapping", err))
	}
	before := uintptr(off % granularity)
	begin := off - int64(before)
	addr, err := windows.MapViewOfFile(section, view, uint32(begin>>32), uint32(begin), before+uintptr(size))
	// The view keeps the section.
	if err := errors.Join(err, windows.CloseHandle(section)); err != nil {
		return fail(fmt.Errorf("MapViewOfFile of %d bytes at %d: %w", size, off, err))
	}
	return pages{
		data: bytesAt(addr+before, size),
		flush: func(data []byte) error {
			at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
			if err := windows.FlushViewOfFile(at, uintptr(len(data))); err != nil {
				return os.NewSyscallError("FlushViewOfFile", err)
			}
			if o.ReadOnly || o.Private {
				return nil
			}
			return os.NewSyscallError("FlushFileBuffers", windows.FlushFileBuffers(file))
		},
		release: func() error {
			return errors.Join(os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(addr)), windows.CloseHandle(file))
		},
	}, nil
}

func duplicate(h windows.Handle) (windows.Handle, error) {
	var d windows.Handle
	self := windows.CurrentProcess()
	err := windows.DuplicateHandle(self, h, self, &d, 0, false, windows.DUPLICATE_SAME_ACCESS)
	return d, os.NewSyscallError("DuplicateHandle", err)
}

func lock(data []byte) error {
	return windows.VirtualLock(uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
}

// lockHint says what bounds the memory that may be locked.
func lockHint() string {
	return " (a process locks little less than its minimum working set; raise that or map without Lock)"
}
