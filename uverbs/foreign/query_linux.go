package foreign

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of linux/fs.h: what there is at an
// address of a process, asked of its maps (Linux 6.11 and later). To read all
// of the maps takes some hundred microseconds.
type procmapQuery struct {
	size, flags, addr                    uint64
	start, end, rights, pageSize, offset uint64
	inode                                uint64
	major, minor                         uint32
	nameSize, buildIDSize                uint32
	name, buildID                        uint64
}

const (
	procmapIoctl = 0xc0686611 // _IOWR('f', 17, struct procmap_query)
	vmaReadable  = 1
	vmaWritable  = 2
)

// noQuery is set where the kernel has no such question.
var noQuery atomic.Bool

// query returns what is mapped at an address. ok is false where the kernel
// cannot say; then an error is of the process.
func (s *Space) query(addr uint64) (m vma, ok bool, err error) {
	if noQuery.Load() {
		return m, false, nil
	}
	q := procmapQuery{addr: addr}
	q.size = uint64(unsafe.Sizeof(q))
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s.maps), procmapIoctl, uintptr(unsafe.Pointer(&q)))
		switch e {
		case 0:
			return vma{start: q.start, end: q.end, read: q.rights&vmaReadable != 0, write: q.rights&vmaWritable != 0,
				dev: hexDevice(q.major, q.minor), inode: q.inode}, true, nil
		case unix.ENOENT:
			return m, true, fault(addr, "is not mapped")
		case unix.ESRCH:
			return m, true, fault(addr, "has gone")
		case unix.EINTR:
			continue
		}
		if e == unix.ENOTTY { // else it is of this process alone
			noQuery.Store(true)
		}
		return m, false, nil
	}
}
