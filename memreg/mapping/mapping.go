// Package mapping makes page-aligned memory for memory regions: anonymous, or
// backed by a file. A Mapping is a memreg.Memory; the region that stands on it
// is deregistered before the Mapping is closed.
//
// A file that is truncated under a mapping takes the process down with SIGBUS
// when the lost part is touched. Options.Guard turns that into a memory fault,
// for files that others may change, and lets a goroutine that holds a lock ask
// for pages before it touches them.
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

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// Options of a mapping. The zero value maps for reading and writing, and a file
// is shared with all processes that map it.
type Options struct {
	// Lock keeps the pages in memory. It needs CAP_IPC_LOCK or a sufficient
	// RLIMIT_MEMLOCK.
	Lock bool
	// ReadOnly maps without the right to write; a region over it gets no
	// LocalWrite.
	ReadOnly bool
	// Private keeps what is written from the file and from others. Files
	// only; anonymous mappings always are.
	Private bool
	// Reserve takes addresses and no memory: pages are there when they are
	// touched, and there may be more of them than the machine has memory.
	// Anonymous mappings on Unix only; elsewhere it is as without.
	Reserve bool
	// Guard lets every access that the adapter makes survive the loss of
	// the memory, as ib.FaultMemory. Such memory has no local Bytes: it is
	// slower, and its region needs an IOVA (Addr, for instance) or is
	// zero-based.
	//
	// Pages that are not in memory are fetched before the adapter touches
	// them, which holds up no more than the queue pairs that need them, see
	// memreg.PagedMemory. A page that was found in memory is taken to be
	// there for 50 ms. On other file systems than the usual ones of a
	// machine's own disks and memory, a page is also fetched to be written,
	// which holds for 2 s or until Sync; so a WRITE to a page that was not
	// written lately costs the peer a retransmission there. Where the
	// system does not say what is in memory (not on Linux, or of a file of
	// another user that is not open for writing), all pages are fetched,
	// and taken to be there for 2 s.
	//
	// What is left is an access that waits with a shard of the device
	// locked: to a page that the system takes away in that time, which Lock
	// excludes, or a write that the file system makes wait though the page
	// is in memory, because that is being written to the disk or the
	// journal is.
	Guard bool
}

// Mapping is mapped memory. It implements memreg.ReadOnlyMemory,
// memreg.PagedMemory and memreg.PersistentMemory.
type Mapping struct {
	memreg.Memory
	readOnly bool

	mu    sync.Mutex
	pages pages // data is nil once closed
}

// pages is memory as the system gives it.
type pages struct {
	data []byte
	residence
	flush   func(data []byte) error // whole pages to the file; nil for anonymous memory
	keeps   bool                    // what is flushed outlives the machine's power
	release func() error
}

// Anonymous maps size bytes of zeros, starting on a page.
func Anonymous(size int, o Options) (*Mapping, error) {
	if size <= 0 {
		return nil, fmt.Errorf("mapping: anonymous: size %d is not positive", size)
	}
	p, err := mapAnonymous(size, &o)
	if err != nil {
		return nil, fmt.Errorf("mapping: anonymous: %w", err)
	}
	p.residence = anonymousResidence
	return newMapping(p, o)
}

// File maps size bytes of f from byte off, a multiple of the page size. The
// file must be a regular one that reaches to off+size, open for reading and,
// unless ReadOnly or Private, for writing. It may be closed afterwards.
func File(f *os.File, off int64, size int, o Options) (*Mapping, error) {
	if f == nil {
		return nil, errors.New("mapping: file is nil")
	}
	fail := func(err error) (*Mapping, error) { return nil, fmt.Errorf("mapping: %s: %w", f.Name(), err) }
	st, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if err := checkRange(st, off, size); err != nil {
		return fail(err)
	}
	// Not f.Fd, which would make the file blocking.
	conn, err := f.SyscallConn()
	if err != nil {
		return fail(err)
	}
	var p pages
	var mapErr error
	if err := conn.Control(func(fd uintptr) {
		if p, mapErr = mapFile(fd, off, size, &o); mapErr == nil {
			p.residence = residenceOf(fd, st, &o)
			p.keeps = !o.ReadOnly && !o.Private && onDisk(fd)
		}
	}); err != nil {
		return fail(err)
	}
	if mapErr != nil {
		return fail(mapErr)
	}
	m, err := newMapping(p, o)
	if err != nil {
		return fail(err)
	}
	return m, nil
}

// checkRange checks what mmap would take silently, to crash later, or refuse
// with a bare EINVAL.
func checkRange(st os.FileInfo, off int64, size int) error {
	if size <= 0 {
		return fmt.Errorf("size %d is not positive", size)
	}
	if unit := int64(os.Getpagesize()); off < 0 || off%unit != 0 {
		return fmt.Errorf("offset %d is not a multiple of the page size %d", off, unit)
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("not a regular file (%v)", st.Mode().Type())
	}
	if int64(size) > math.MaxInt64-off || st.Size() < off+int64(size) {
		return fmt.Errorf("the file has %d bytes, too short for %d bytes from offset %d", st.Size(), size, off)
	}
	return nil
}

func newMapping(p pages, o Options) (*Mapping, error) {
	if o.Lock {
		if err := lock(p.data); err != nil {
			return nil, errors.Join(lockError(len(p.data), err), p.release())
		}
	}
	m := &Mapping{Memory: memreg.Local(p.data), readOnly: o.ReadOnly, pages: p}
	if o.Guard {
		m.Memory = &guarded{memreg.Guarded(p.data), newPresence(p.data, p.residence)}
	}
	return m, nil
}

func lockError(size int, err error) error {
	return fmt.Errorf("mapping: locking %d bytes: %w%s", size, err, lockHint())
}

// ReadOnly reports whether the mapping may not be written.
func (m *Mapping) ReadOnly() bool { return m.readOnly }

// CopyIn writes src at off; ib.FaultNoAccess if the mapping is read-only.
func (m *Mapping) CopyIn(off uint64, src []byte) error {
	if m.readOnly {
		return ib.FaultNoAccess
	}
	return m.Memory.CopyIn(off, src)
}

// Store64 writes the word at off; ib.FaultNoAccess if the mapping is read-only.
func (m *Mapping) Store64(off, v uint64) error {
	if m.readOnly {
		return ib.FaultNoAccess
	}
	return m.Memory.Store64(off, v)
}

// CompareSwap64 compares and swaps the word at off; ib.FaultNoAccess if the
// mapping is read-only.
func (m *Mapping) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	if m.readOnly {
		return 0, ib.FaultNoAccess
	}
	return m.Memory.CompareSwap64(off, compare, swap)
}

// FetchAdd64 adds to the word at off; ib.FaultNoAccess if the mapping is
// read-only.
func (m *Mapping) FetchAdd64(off, add uint64) (uint64, error) {
	if m.readOnly {
		return 0, ib.FaultNoAccess
	}
	return m.Memory.FetchAdd64(off, add)
}

// Present reports whether n bytes at off can be touched without waiting for a
// page. It is true of memory that is not guarded.
func (m *Mapping) Present(off, n uint64, write bool) bool {
	g, ok := m.Memory.(*guarded)
	return !ok || g.pages.present(off, n, write)
}

// Fetch brings n bytes at off into memory, if it is guarded, and waits for
// them.
func (m *Mapping) Fetch(off, n uint64, write bool) {
	if g, ok := m.Memory.(*guarded); ok {
		g.pages.fetch(off, n, write)
	}
}

// Data is the mapped memory for the program's own use, nil once closed. Unlike
// Bytes it is there for a guarded mapping too, but touching it is not guarded.
func (m *Mapping) Data() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pages.data
}

// Addr is the address of the first byte, a multiple of the page size; 0 once
// closed.
func (m *Mapping) Addr() uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data()))))
}

// Sync writes what changed to the file and waits until it is there. It does
// nothing for an anonymous mapping, and fails with os.ErrClosed once closed.
func (m *Mapping) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.pages.data == nil:
		return fmt.Errorf("mapping: sync: %w", os.ErrClosed)
	case m.pages.flush == nil:
		return nil
	}
	if g, ok := m.Memory.(*guarded); ok {
		g.pages.flushed()
		defer g.pages.flushed()
	}
	if err := m.pages.flush(m.pages.data); err != nil {
		return fmt.Errorf("mapping: sync: %w", err)
	}
	return nil
}

// Persistent reports whether Persist can do what it says: the mapping is of a
// file, shared and for writing, and the file is not in memory itself, as those
// of tmpfs are.
func (m *Mapping) Persistent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pages.keeps
}

// Persist brings n bytes at off to stable storage, and waits until they are
// there. It fails if the file does not reach so far any more: what was cut off
// is lost. The mapping must not be closed meanwhile.
func (m *Mapping) Persist(off, n uint64) error {
	m.mu.Lock()
	p, memory := m.pages, m.Memory
	m.mu.Unlock()
	size, page := uint64(len(p.data)), uint64(os.Getpagesize())
	switch {
	case p.data == nil:
		return fmt.Errorf("mapping: persist: %w", os.ErrClosed)
	case !p.keeps:
		return fmt.Errorf("mapping: persist: %w", errors.ErrUnsupported)
	case off > size || n > size-off:
		return fmt.Errorf("mapping: persist: %w", ib.FaultOutOfBounds)
	case n == 0:
		return nil
	}
	end := min((off+n+page-1)/page*page, size)
	part := p.data[off/page*page : end]
	if g, ok := memory.(*guarded); ok {
		g.pages.flushed()
		defer g.pages.flushed()
	}
	if err := p.flush(part); err != nil {
		return fmt.Errorf("mapping: persist: %w", err)
	}
	// The system writes what there is of a file that was truncated, and
	// reports success.
	if err := populate(part[(len(part)-1)/int(page)*int(page):], false); err != nil {
		return fmt.Errorf("mapping: persist: the file has become shorter: %w", err)
	}
	return nil
}

// Close unmaps the memory. An access to it after that crashes: deregister its
// regions first. Closing again does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages.data == nil {
		return nil
	}
	release := m.pages.release
	m.pages = pages{}
	m.Memory = memreg.Local(nil)
	if err := release(); err != nil {
		return fmt.Errorf("mapping: close: %w", err)
	}
	return nil
}
