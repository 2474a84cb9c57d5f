//go:build unix

// Package mapping makes page-aligned memory for memory regions: anonymous, or
// backed by a file. A Mapping is a memreg.Memory; the region that stands on it is
// deregistered before the Mapping is closed.
//
// A file that is truncated under a mapping takes the process down with SIGBUS when
// the lost part is touched. Options.Guard turns that into a memory fault, for
// files that others may change.
//
// What it does not do: huge pages, binding to NUMA nodes, device memory, and
// sharing anonymous memory between processes.
package mapping

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/memreg"
)

// Options of a mapping. The zero value maps for reading and writing, a file shared
// with everybody else who maps it.
type Options struct {
	// Lock keeps the pages in memory. It needs CAP_IPC_LOCK or a sufficient
	// RLIMIT_MEMLOCK.
	Lock bool
	// ReadOnly maps without the right to write; a region over it gets no LocalWrite.
	ReadOnly bool
	// Private keeps what is written from the file and from others. Files only;
	// anonymous mappings always are.
	Private bool
	// Guard lets every access that the adapter makes survive the loss of the
	// memory, as memreg.MemoryFault. Such memory has no local Bytes: it is slower,
	// and its region needs an IOVA (Addr, for instance) or is zero-based.
	Guard bool
}

// Mapping is mapped memory. It implements memreg.ReadOnlyMemory.
type Mapping struct {
	memreg.Memory
	readOnly bool
	file     bool

	mu   sync.Mutex
	data []byte // nil once closed
}

// Anonymous maps size bytes of zeros, starting on a page.
func Anonymous(size int, o Options) (*Mapping, error) {
	if size <= 0 {
		return nil, fmt.Errorf("mapping: anonymous: size %d is not positive", size)
	}
	data, err := unix.Mmap(-1, 0, size, o.prot(), unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mapping: anonymous: mmap of %d bytes: %w", size, err)
	}
	return newMapping(data, false, o)
}

// File maps size bytes of f from byte off, a multiple of the page size. The file
// must be a regular one that reaches to off+size, open for reading and, unless
// ReadOnly or Private, for writing. It may be closed afterwards.
func File(f *os.File, off int64, size int, o Options) (*Mapping, error) {
	if f == nil {
		return nil, errors.New("mapping: file is nil")
	}
	fail := func(err error) (*Mapping, error) { return nil, fmt.Errorf("mapping: %s: %w", f.Name(), err) }
	if err := checkRange(f, off, size); err != nil {
		return fail(err)
	}
	flags := unix.MAP_SHARED
	if o.Private {
		flags = unix.MAP_PRIVATE
	}
	// Not f.Fd, which would make the file blocking.
	conn, err := f.SyscallConn()
	if err != nil {
		return fail(err)
	}
	var data []byte
	var mapErr error
	err = conn.Control(func(fd uintptr) { data, mapErr = unix.Mmap(int(fd), off, size, o.prot(), flags) })
	switch {
	case err != nil:
		return fail(err)
	case errors.Is(mapErr, unix.EACCES):
		return fail(fmt.Errorf("mmap: %w (is it open for what is asked? a shared writable mapping needs O_RDWR)", mapErr))
	case mapErr != nil:
		return fail(fmt.Errorf("mmap of %d bytes at %d: %w", size, off, mapErr))
	}
	m, err := newMapping(data, true, o)
	if err != nil {
		return fail(err)
	}
	return m, nil
}

// checkRange checks what mmap would take silently, to crash later, or refuse
// with a bare EINVAL.
func checkRange(f *os.File, off int64, size int) error {
	if size <= 0 {
		return fmt.Errorf("size %d is not positive", size)
	}
	if page := int64(os.Getpagesize()); off < 0 || off%page != 0 {
		return fmt.Errorf("offset %d is not a multiple of the page size %d", off, page)
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("not a regular file (%v)", st.Mode().Type())
	}
	if int64(size) > math.MaxInt64-off || st.Size() < off+int64(size) {
		return fmt.Errorf("the file has %d bytes, too short for %d bytes from offset %d", st.Size(), size, off)
	}
	return nil
}

func (o *Options) prot() int {
	if o.ReadOnly {
		return unix.PROT_READ
	}
	return unix.PROT_READ | unix.PROT_WRITE
}

func newMapping(data []byte, file bool, o Options) (*Mapping, error) {
	if o.Lock {
		if err := unix.Mlock(data); err != nil {
			return nil, errors.Join(lockError(len(data), err), unix.Munmap(data))
		}
	}
	m := &Mapping{Memory: memreg.Local(data), readOnly: o.ReadOnly, file: file, data: data}
	if o.Guard {
		m.Memory = &guarded{data: data, local: m.Memory}
	}
	return m, nil
}

func lockError(size int, err error) error {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur != math.MaxUint64 {
		return fmt.Errorf("mapping: locking %d bytes: %w (RLIMIT_MEMLOCK is %d bytes; raise it or map without Lock)", size, err, l.Cur)
	}
	return fmt.Errorf("mapping: locking %d bytes: %w", size, err)
}

// ReadOnly reports whether the mapping may not be written.
func (m *Mapping) ReadOnly() bool { return m.readOnly }

// CopyIn writes src at off; memreg.NoAccess if the mapping is read-only.
func (m *Mapping) CopyIn(off uint64, src []byte) error {
	if m.readOnly {
		return memreg.NoAccess
	}
	return m.Memory.CopyIn(off, src)
}

// Store64 writes the word at off; memreg.NoAccess if the mapping is read-only.
func (m *Mapping) Store64(off, v uint64) error {
	if m.readOnly {
		return memreg.NoAccess
	}
	return m.Memory.Store64(off, v)
}

// CompareSwap64 compares and swaps the word at off; memreg.NoAccess if the mapping is read-only.
func (m *Mapping) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	if m.readOnly {
		return 0, memreg.NoAccess
	}
	return m.Memory.CompareSwap64(off, compare, swap)
}

// FetchAdd64 adds to the word at off; memreg.NoAccess if the mapping is read-only.
func (m *Mapping) FetchAdd64(off, add uint64) (uint64, error) {
	if m.readOnly {
		return 0, memreg.NoAccess
	}
	return m.Memory.FetchAdd64(off, add)
}

// Data is the mapped memory for the program's own use, nil once closed. Unlike
// Bytes it is there for a guarded mapping too, but touching it is not guarded.
func (m *Mapping) Data() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data
}

// Addr is the address of the first byte, a multiple of the page size; 0 once closed.
func (m *Mapping) Addr() uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data()))))
}

// Sync writes what changed to the file and waits until it is there (msync). It
// does nothing for an anonymous mapping, and fails with os.ErrClosed once closed.
func (m *Mapping) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return fmt.Errorf("mapping: sync: %w", os.ErrClosed)
	}
	if !m.file {
		return nil
	}
	if err := unix.Msync(m.data, unix.MS_SYNC); err != nil {
		return fmt.Errorf("mapping: msync: %w", err)
	}
	return nil
}

// Close unmaps the memory. Whoever still uses it crashes: deregister its regions
// first. Closing again does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	m.Memory = memreg.Local(nil)
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("mapping: munmap: %w", err)
	}
	return nil
}
