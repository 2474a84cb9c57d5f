package foreign

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// Limits of what is mapped for one process. Each costs this process a mapping,
// of which the system grants 65530.
const (
	maxMapped      = 1024
	maxMappedBytes = 1 << 38
)

var pageSize = uint64(os.Getpagesize())

// mapping is shared memory that is mapped here.
type mapping struct {
	data    []byte
	users   atomic.Int32 // ranges, and parts of regions
	account *quota.Account
}

// newMapping maps n bytes of a file, for one user.
func newMapping(fd int, off int64, n int, account *quota.Account) (*mapping, error) {
	if err := account.Take(quota.Mappings, 1); err != nil {
		return nil, fmt.Errorf("%w: %w", unix.ENOMEM, err)
	}
	if err := account.Take(quota.MappedBytes, int64(n)); err != nil {
		account.Give(quota.Mappings, 1)
		return nil, fmt.Errorf("%w: %w", unix.ENOMEM, err)
	}
	data, err := unix.Mmap(fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		account.Give(quota.Mappings, 1)
		account.Give(quota.MappedBytes, int64(n))
		return nil, fmt.Errorf("mmap: %w", err)
	}
	m := &mapping{data: data, account: account}
	m.users.Store(1)
	return m, nil
}

// release is not called with a lock of the space held: to unmap much memory
// takes a while.
func (m *mapping) release() {
	if m.users.Add(-1) != 0 {
		return
	}
	n := int64(len(m.data))
	unix.Munmap(m.data)
	m.account.Give(quota.Mappings, 1)
	m.account.Give(quota.MappedBytes, n)
}

func releaseAll(list ranges) {
	for _, r := range list {
		r.m.release()
	}
}

// mappedRange is a part of the process's memory that is mapped here.
type mappedRange struct {
	start, end uint64 // there
	m          *mapping
	off        uint64 // of start in m
}

// bytes returns the memory from start to end, which are inside.
func (r *mappedRange) bytes(start, end uint64) []byte {
	from, to := r.off+start-r.start, r.off+end-r.start
	return r.m.data[from:to:to]
}

// ranges are in order, and do not overlap.
type ranges []mappedRange

// Map says that n bytes at addr of the process are those of fd from off on,
// shared: what the process says. Regions over them that are made from now on
// use a mapping of this process; those made before go on as they are. It
// replaces what was said of that range before.
//
// Only a memfd is taken that was opened for writing and is sealed against
// shrinking (F_SEAL_SHRINK): memory that is taken away again would end this
// process. The fd can be closed afterwards. All is in whole pages.
func (s *Space) Map(fd int, off int64, addr, n uint64) error {
	if !s.acquire() {
		return errClosed
	}
	defer s.Close()
	if err := s.tryMap(fd, off, addr, n); err != nil {
		return fmt.Errorf("shared memory of process %d at %#x: %w", s.pid, addr, err)
	}
	return nil
}

func (s *Space) tryMap(fd int, off int64, addr, n uint64) error {
	switch {
	case n == 0 || addr%pageSize != 0 || n%pageSize != 0 || off < 0 || uint64(off)%pageSize != 0:
		return fmt.Errorf("%w: address, offset and length must be of whole pages", unix.EINVAL)
	case addr+n < addr || n > maxMappedBytes || n > uint64(maxInt):
		return fmt.Errorf("%w: %d bytes", unix.EINVAL, n)
	}
	if err := checkMemfd(fd, off, n); err != nil {
		return err
	}
	m, err := newMapping(fd, off, int(n), s.account)
	if err != nil {
		return err
	}
	s.mu.Lock()
	gone := s.unmap(addr, addr+n)
	if have := len(s.mapped); have >= maxMapped || s.bytes+n > maxMappedBytes {
		err = fmt.Errorf("%w: it has %d mappings of %d bytes", unix.ENOMEM, have, s.bytes)
		gone = append(gone, mappedRange{m: m})
	} else {
		s.mapped = slices.Insert(s.mapped, s.mapped.from(addr), mappedRange{start: addr, end: addr + n, m: m})
		s.bytes += n
	}
	s.mu.Unlock()
	releaseAll(gone)
	return err
}

const maxInt = int(^uint(0) >> 1)

// checkMemfd refuses what is not memory, or can be taken away while it is
// mapped here. The pages of a memfd of huge pages may be missing, which is
// SIGBUS; an ordinary one gets them when they are touched.
func checkMemfd(fd int, off int64, n uint64) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("%w: it is no memfd", unix.EINVAL)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: the memfd is not sealed against shrinking (F_SEAL_SHRINK)", unix.EPERM)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if uint32(fs.Type) != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: a memfd of huge pages", unix.EINVAL)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if size := uint64(max(st.Size, 0)); uint64(off) > size || n > size-uint64(off) {
		return fmt.Errorf("%w: the memfd has %d bytes, not %d from %d on", unix.EINVAL, size, n, off)
	}
	return nil
}

// Unmap takes back what Map has said of n bytes at addr. Regions that use them
// keep them. What is beyond the end of addresses is left out.
func (s *Space) Unmap(addr, n uint64) {
	end := addr + n + pageSize - 1
	if end < addr || end < n {
		end = ^uint64(0)
	}
	s.mu.Lock()
	gone := s.unmap(addr/pageSize*pageSize, end/pageSize*pageSize)
	s.mu.Unlock()
	releaseAll(gone)
}

// from returns the first range that ends behind addr.
func (r ranges) from(addr uint64) int {
	i, _ := slices.BinarySearchFunc(r, addr, func(m mappedRange, addr uint64) int {
		if m.end <= addr {
			return -1
		}
		return 1
	})
	return i
}

// unmap takes out what is between start and end, and keeps what ranges have
// beside that. The caller holds mu, and releases what it returns without.
func (s *Space) unmap(start, end uint64) (gone ranges) {
	i := s.mapped.from(start)
	j := i
	var keep ranges
	for ; j < len(s.mapped) && s.mapped[j].start < end; j++ {
		r := s.mapped[j]
		s.bytes -= r.end - r.start
		if r.start < start {
			keep = append(keep, mappedRange{start: r.start, end: start, m: r.m, off: r.off})
		}
		if r.end > end {
			keep = append(keep, mappedRange{start: end, end: r.end, m: r.m, off: r.off + end - r.start})
		}
	}
	if len(s.mapped)-(j-i)+len(keep) > maxMapped {
		keep = nil // it is copied from now on
	}
	for _, r := range keep {
		r.m.users.Add(1)
		s.bytes += r.end - r.start
	}
	gone = slices.Clone(s.mapped[i:j])
	s.mapped = slices.Replace(s.mapped, i, j, keep...)
	return gone
}

// errTooLong says that a region ends behind the end of addresses.
var errTooLong = errors.New("it ends behind the end of addresses")
