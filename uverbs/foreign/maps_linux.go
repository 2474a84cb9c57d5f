package foreign

import (
	"bytes"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// check reports what keeps n bytes at addr of the process from being a region,
// to be written as well: EFAULT, as a kernel that pins the pages has it.
func (s *Space) check(addr, n uint64, write bool) error {
	if s.copier != nil {
		return s.checkByCopier(addr, n, write)
	}
	var kinds filesystems
	end := addr + n
	for addr < end {
		m, ok, err := s.query(addr)
		if !ok {
			return s.checkByReading(&kinds, addr, end, write)
		}
		if err == nil {
			err = m.check(s, &kinds, addr, write)
		}
		if err != nil {
			return err
		}
		addr = m.end
	}
	return nil
}

// checkByReading is check of addr to end for kernels that do not answer query.
func (s *Space) checkByReading(kinds *filesystems, addr, end uint64, write bool) error {
	s.reading.Lock() // who reads in turn sees whole lines
	text, err := readAll(s.maps)
	s.reading.Unlock()
	if err != nil {
		return err
	}
	for addr < end {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			return fault(addr, "is not mapped")
		}
		text = rest
		m, ok := parseMap(string(line))
		if !ok || m.end <= addr {
			continue
		}
		if err := m.check(s, kinds, addr, write); err != nil {
			return err
		}
		addr = m.end
	}
	return nil
}

// check reports what keeps the memory that is mapped at or after an address
// from being in a region.
func (m *vma) check(s *Space, kinds *filesystems, addr uint64, write bool) error {
	switch {
	case m.start > addr:
		return fault(addr, "is not mapped")
	case !m.read || write && !m.write:
		return fault(addr, "has no such rights")
	case m.inode != 0 && !kinds.local(s, m.dev):
		return fault(addr, "is a file whose pages somebody else brings: a device, or of a file system over a network or in userspace")
	}
	return nil
}

func fault(addr uint64, why string) error {
	return fmt.Errorf("%w: address %#x of the process %s", unix.EFAULT, addr, why)
}

// readAll returns a file of /proc as it is now.
func readAll(fd int) ([]byte, error) {
	var text []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Pread(fd, buf, int64(len(text)))
		if err != nil || n == 0 {
			return text, err
		}
		text = append(text, buf[:n]...)
	}
}

// vma is a line of /proc/PID/maps.
type vma struct {
	start, end  uint64
	read, write bool
	dev         string // major:minor, hexadecimal
	inode       uint64
}

// parseMap reads "start-end rwxp offset major:minor inode path".
func parseMap(line string) (m vma, ok bool) {
	f := strings.Fields(line)
	if len(f) < 5 || len(f[1]) < 2 {
		return m, false
	}
	from, to, _ := strings.Cut(f[0], "-")
	var err [3]error
	m.start, err[0] = strconv.ParseUint(from, 16, 64)
	m.end, err[1] = strconv.ParseUint(to, 16, 64)
	m.inode, err[2] = strconv.ParseUint(f[4], 10, 64)
	m.read, m.write, m.dev = f[1][0] == 'r', f[1][1] == 'w', f[3]
	return m, err == [3]error{}
}

// filesystems says of the file systems that the process sees, by device,
// whether they are local.
type filesystems map[string]bool

// localTypes are the file systems whose pages come from memory or from a disk
// of this machine: nobody can hold them back.
var localTypes = []string{"tmpfs", "ramfs", "hugetlbfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "zfs",
	"squashfs", "erofs", "iso9660", "vfat", "exfat", "bcachefs"}

// local reports whether a device is of one of those. One that the process does
// not see mounted is, if it is a disk (below an overlay, for instance), or
// where memfds, shared memory of System V and /dev/zero are.
func (f *filesystems) local(s *Space, dev string) bool {
	if slices.Contains(memoryDevices(), dev) {
		return true
	}
	if *f == nil {
		*f = filesystems{}
		text, _ := s.readMounts()
		for line := range strings.Lines(text) {
			f.add(line)
		}
	}
	local, known := (*f)[dev]
	return local || !known && !strings.HasPrefix(dev, hexDevice(0, 0)[:3])
}

// add takes a line of mountinfo: "id parent major:minor root point options
// [tags] - type source options".
func (f filesystems) add(line string) {
	before, after, ok := strings.Cut(line, " - ")
	fields, types := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 3 || len(types) == 0 {
		return
	}
	major, minor, _ := strings.Cut(fields[2], ":")
	f[hexDevice(parse(major), parse(minor))] = slices.Contains(localTypes, types[0])
}

func parse(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

// hexDevice is a device as /proc/PID/maps has it.
func hexDevice(major, minor uint32) string { return fmt.Sprintf("%02x:%02x", major, minor) }

// readMounts returns the mountinfo of the process.
func (s *Space) readMounts() (string, error) {
	fd, err := unix.Open(s.path("mountinfo"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	text, err := readAll(fd)
	return string(text), err
}

// memoryDevices are the devices of memfds, also of those of huge pages, where
// anonymous memory of huge pages is, too. Nobody sees them mounted.
var memoryDevices = sync.OnceValue(func() []string {
	list := []string{memfdDevice(0)}
	sizes, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB") // the pattern is good
	for _, dir := range sizes {
		var kB uint64
		if _, err := fmt.Sscanf(filepath.Base(dir), "hugepages-%dkB", &kB); err == nil {
			list = append(list, memfdDevice(unix.MFD_HUGETLB|(bits.Len64(kB<<10)-1)<<hugeShift))
		}
	}
	return list
})

// hugeShift is where flags have the logarithm of a size of huge pages
// (MFD_HUGE_SHIFT).
const hugeShift = 26

// memfdDevice returns the device of a memfd, "" if there is none.
func memfdDevice(flags int) string {
	fd, err := unix.MemfdCreate("rocev2", unix.MFD_CLOEXEC|flags)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return ""
	}
	return hexDevice(unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
}
