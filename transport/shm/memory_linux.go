//go:build !portable

package shm

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memorySeals keep the peer from taking memory away that this process reads:
// that would be a SIGBUS.
const memorySeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newMemory makes memory for two links.
func newMemory() (fd int, err error) {
	fd, err = unix.MemfdCreate("rocev2", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("rocev2", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, memoryLen); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memorySeals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("memfd", err)
	}
	return fd, nil
}

// checkMemory refuses memory of a peer that could be taken away, or is of
// another size.
func checkMemory(fd int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return os.NewSyscallError("fcntl F_GET_SEALS", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	// Another seal would make it impossible to map, or to write.
	if seals&^unix.F_SEAL_EXEC != memorySeals || st.Size != memoryLen {
		return errBroken("the peer's memory is not sealed, or not of the right size")
	}
	return nil
}

// places are ranges of addresses for memory. They are used again and never
// given back. What still points into one whose memory is gone, such as a packet
// that a capture looks at while the link is closed, reads other bytes then, and
// is no fault.
var places placeList

type placeList struct {
	mu   sync.Mutex
	free []unsafe.Pointer // the longest free first
}

// sparePlaces are kept free, so that none is used again at once.
const sparePlaces = 8

// mapMemory maps the memory of a descriptor.
func mapMemory(fd int) ([]byte, error) {
	at, err := places.get()
	if err != nil {
		return nil, err
	}
	if err := mapFixed(fd, at, unix.MAP_SHARED); err != nil {
		// Some kernels have unmapped the place then, and another
		// mapping may be there: it is not used again.
		return nil, err
	}
	return unsafe.Slice((*byte)(at), memoryLen), nil
}

// unmapMemory gives back what mapMemory has mapped. Zeros are there then.
func unmapMemory(mem []byte) {
	at := unsafe.Pointer(unsafe.SliceData(mem))
	if mapFixed(-1, at, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE) == nil {
		places.put(at)
	}
}

func mapFixed(fd int, at unsafe.Pointer, flags int) error {
	_, err := unix.MmapPtr(fd, 0, at, memoryLen, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED)
	return os.NewSyscallError("mmap", err)
}

func (l *placeList) get() (unsafe.Pointer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) > sparePlaces {
		at := l.free[0]
		l.free = append(l.free[:0], l.free[1:]...)
		return at, nil
	}
	at, err := unix.MmapPtr(-1, 0, nil, memoryLen, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	return at, os.NewSyscallError("mmap", err)
}

func (l *placeList) put(at unsafe.Pointer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, at)
}
