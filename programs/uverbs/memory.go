//go:build linux

package uverbs

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/memreg"
)

// memoryAt returns n bytes at an address of the process as a memory: to be
// written too, or only read. The error is EFAULT where not all of it is mapped
// with that right, as a kernel that pins the pages has it. What becomes of it
// later is not looked at: an access to what is gone fails with ib.FaultMemory.
func memoryAt(addr, n uint64, write bool) (memreg.Memory, error) {
	const most = uint64(^uintptr(0)) // a 32-bit process has memory above 2 GiB, too
	if addr > most || n > min(most-addr, math.MaxInt) {
		return nil, unix.EFAULT
	}
	if err := checkMapped(addr, addr+n, write); err != nil {
		return nil, err
	}
	at := uintptr(addr)
	return memreg.Guarded(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)), nil
}

// maps is /proc/self/maps, opened once: it is of the process and no other.
var maps = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// Files returns the files that the package has for itself.
func Files() []int {
	if fd, err := maps(); err == nil {
		return []int{fd}
	}
	return nil
}

// vma is what is mapped at an address.
type vma struct {
	start, end  uint64
	read, write bool
}

// lets reports whether memory at an address may be read, or also written.
func (m *vma) lets(addr uint64, write bool) bool {
	return m.start <= addr && m.read && (m.write || !write)
}

// checkMapped checks that the addresses from one up to another are mapped.
func checkMapped(addr, end uint64, write bool) error {
	fd, err := maps()
	if err != nil {
		return err
	}
	for addr < end {
		m, err := query(fd, addr)
		if err == unix.ENOTTY || err == unix.EINVAL {
			return checkByReading(fd, addr, end, write)
		}
		if err != nil || !m.lets(addr, write) {
			return fmt.Errorf("%w: address %#x is not mapped so", unix.EFAULT, addr)
		}
		addr = m.end
	}
	return nil
}

// procmapQuery is struct procmap_query of linux/fs.h (Linux 6.11 and later). To
// read all of the maps takes some hundred microseconds.
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

// query returns what is mapped at an address; ENOENT: nothing.
func query(fd int, addr uint64) (m vma, err error) {
	q := procmapQuery{addr: addr}
	q.size = uint64(unsafe.Sizeof(q))
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), procmapIoctl, uintptr(unsafe.Pointer(&q)))
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return m, e
		}
		return vma{q.start, q.end, q.rights&vmaReadable != 0, q.rights&vmaWritable != 0}, nil
	}
}

// checkByReading is checkMapped for kernels that do not answer query. A process
// with another user or root than before could not open the file once more.
func checkByReading(fd int, addr, end uint64, write bool) error {
	text, err := io.ReadAll(io.NewSectionReader(readerAt(fd), 0, math.MaxInt64))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		m, ok := parseMap(line)
		if !ok || m.end <= addr {
			continue
		}
		if !m.lets(addr, write) {
			break
		}
		if addr = m.end; addr >= end {
			return nil
		}
	}
	return fmt.Errorf("%w: address %#x is not mapped so", unix.EFAULT, addr)
}

// readerAt is a file that is read at offsets.
type readerAt int

func (fd readerAt) ReadAt(b []byte, off int64) (int, error) {
	n, err := unix.Pread(int(fd), b, off)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// parseMap reads "start-end rwxp ...".
func parseMap(line []byte) (m vma, ok bool) {
	span, rest, _ := bytes.Cut(line, []byte(" "))
	from, to, _ := bytes.Cut(span, []byte("-"))
	var err [2]error
	m.start, err[0] = strconv.ParseUint(string(from), 16, 64)
	m.end, err[1] = strconv.ParseUint(string(to), 16, 64)
	if err != [2]error{} || len(rest) < 4 {
		return m, false
	}
	m.read, m.write = rest[0] == 'r', rest[1] == 'w'
	return m, true
}
