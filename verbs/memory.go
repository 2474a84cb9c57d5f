package verbs

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/memreg/mapping"
)

// PD is a protection domain: queue pairs reach only the regions of their own.
type PD struct {
	dev  *Device
	core *hca.PD
}

// AllocPD makes a protection domain. The error wraps ErrClosed or
// ErrNoResources.
func (d *Device) AllocPD() (*PD, error) {
	core, err := d.context.AllocPD()
	if err != nil {
		return nil, fmt.Errorf("verbs: allocate a protection domain: %w", err)
	}
	return &PD{dev: d, core: core}, nil
}

// Device returns the device of the domain.
func (pd *PD) Device() *Device { return pd.dev }

// Close deregisters what is registered in the domain and frees it. Queue pairs
// of the domain live on and reach no memory, and shared receive queues raise
// EventSRQError.
func (pd *PD) Close() error { return closed("protection domain", pd.core.Close()) }

// MR is a registered memory region.
type MR struct {
	core *hca.MR
	data atomic.Pointer[[]byte] // nil if the program cannot have it
}

func newMR(core *hca.MR, data []byte) *MR {
	mr := &MR{core: core}
	if data != nil {
		mr.data.Store(&data)
	}
	return mr
}

// region returns the region as it is now: Reregister replaces it.
func (mr *MR) region() *memreg.Region { return mr.core.Region() }

// RegOption adjusts a registration.
type RegOption func(*regConfig)

type regConfig struct{ options memreg.Options }

// WithIOVA lets the wire address of the region's first byte be addr. Without
// it, it is the real address of the memory.
func WithIOVA(addr uint64) RegOption {
	return func(c *regConfig) { c.options.Base, c.options.IOVA = memreg.BaseIOVA, addr }
}

// ZeroBased lets wire addresses of the region start at 0.
func ZeroBased() RegOption {
	return func(c *regConfig) { c.options.Base, c.options.IOVA = memreg.BaseZero, 0 }
}

// WithRKey lets the region have the rkey that is given: a peer was told it
// before there was a region. The key must be random, and others must not be
// able to guess it. The registration fails with ErrNoResources if it is in use,
// or was lately.
func WithRKey(k Key) RegOption { return func(c *regConfig) { c.options.Key = k } }

func applyOptions(o *memreg.Options, opts []RegOption) {
	c := regConfig{*o}
	for _, f := range opts {
		f(&c)
	}
	*o = c.options
}

// RegisterMemory registers Go memory. buf stays in place and alive as long as
// the region is registered. The error wraps ErrClosed or ErrNoResources, or
// says which right or option is not possible.
func (pd *PD) RegisterMemory(buf []byte, access Access, opts ...RegOption) (*MR, error) {
	return pd.register("memory", memreg.Local(buf), access, opts, nil)
}

// AllocMemory registers size bytes of fresh, zeroed, page-aligned memory
// outside the Go heap. It is given back when the region is closed.
func (pd *PD) AllocMemory(size int, access Access, opts ...RegOption) (*MR, error) {
	m, err := mapping.Anonymous(size, mapping.Options{Reserve: access&OnDemand != 0})
	if err != nil {
		return nil, fmt.Errorf("verbs: allocate memory: %w", err)
	}
	return pd.registerMapping("memory", m, access, opts)
}

// MapFile registers size bytes of a file from offset off (a multiple of the
// page size), mapped shared: what is written to the region is written to the
// file. The mapping ends when the region is closed; f may be closed before. A
// transfer into a part that was cut off the file meanwhile fails with an error,
// no crash. A transfer that needs a page which is not in memory waits for it,
// and others do not; how long it may take is for the peer's retries to say.
// Closing the region waits for such a page, too.
//
// With FlushPersistent the peer may have what it wrote brought to the disk:
// OpFlush then completes after msync(2), with the data and what is needed to
// read it. If that fails, or the file has become shorter, it fails with
// StatusRemOpErr, which ends the connection. A busy disk takes seconds: the
// peer's Timeout and RetryCount must last as long. Bytes after the end of the
// file in its last page belong to no file.
func (pd *PD) MapFile(f *os.File, off int64, size int, access Access, opts ...RegOption) (*MR, error) {
	m, err := mapping.File(f, off, size, mapping.Options{
		ReadOnly: access&(LocalWrite|RemoteWrite|RemoteAtomic) == 0,
		Guard:    true,
	})
	if err != nil {
		return nil, fmt.Errorf("verbs: map memory: %w", err)
	}
	return pd.registerMapping(f.Name(), m, access, opts)
}

func (pd *PD) registerMapping(what string, m *mapping.Mapping, access Access, opts []RegOption) (*MR, error) {
	data := m.Data()
	atRealAddress := WithIOVA(m.Addr())
	mr, err := pd.register(what, m, access, append([]RegOption{atRealAddress}, opts...), m.Close)
	if err != nil {
		return nil, err
	}
	mr.data.Store(&data)
	return mr, nil
}

func (pd *PD) register(what string, m memreg.Memory, access Access, opts []RegOption, free func() error) (*MR, error) {
	o := memreg.Options{Access: access}
	applyOptions(&o, opts)
	data, n := m.Bytes(), m.Len() // m may be freed by a failure, or when the domain is closed
	core, err := pd.core.Register(m, o, free)
	if err != nil {
		return nil, fmt.Errorf("verbs: register %d bytes of %s: %w", n, what, err)
	}
	return newMR(core, data), nil
}

// Bytes returns the region's memory. Memory from AllocMemory or MapFile must
// not be touched any more after Close.
func (mr *MR) Bytes() []byte {
	if b := mr.data.Load(); b != nil {
		return *b
	}
	return nil
}

// Len returns the region's length in bytes.
func (mr *MR) Len() int { return int(mr.region().Len()) }

// Addr returns the wire address of the region's first byte.
func (mr *MR) Addr() uint64 { return mr.region().Addr() }

// Access returns the rights that the region was registered with.
func (mr *MR) Access() Access { return mr.region().Access() }

// LKey returns the key for the owner's own work requests.
func (mr *MR) LKey() Key { return mr.region().LKey() }

// RKey returns the key for the peer.
func (mr *MR) RKey() Key { return mr.region().RKey() }

// Slice returns a scatter/gather entry for n bytes from offset off. off and n
// may come from anywhere: an entry for a range that is not inside the region,
// or of more than the 4 GiB - 1 bytes that one entry can have, stands for no
// memory. [SGE.Err] says why, and PostSend and PostRecv refuse it with the same
// error, which wraps ErrRange, before anything is sent.
func (mr *MR) Slice(off, n int) SGE { return SGE(mr.region().Slice(off, n)) }

// All returns a scatter/gather entry for the whole region. One of 4 GiB or more
// does not fit into an entry; see Slice.
func (mr *MR) All() SGE { return SGE(mr.region().All()) }

// Invalidatable lets a peer end the region's rkey with an OpSendInv that names
// it: when the receive completes, with [WC.WithInv], the region can no longer
// be reached through that key. Local use goes on. Regions that are not
// registered for it refuse, which ends the connection.
func Invalidatable() RegOption {
	return func(c *regConfig) { c.options.Invalidatable = true }
}

// RemoteMemory is what a peer must know to reach a region. It is a plain value
// to be sent to the peer.
type RemoteMemory struct {
	Addr   uint64 `json:"addr"`   // wire address of the first byte
	Length uint64 `json:"length"` // bytes; 0 if it is not known
	RKey   Key    `json:"rkey"`   // of the region
}

// At returns the address off bytes into the memory. An offset beyond the memory
// has none: PostSend refuses what At returns for it, with ErrRemote. If Length
// is 0, the length is not known and not checked.
func (m RemoteMemory) At(off uint64) RemoteAddr {
	if m.Length != 0 && off > m.Length || off > math.MaxUint64-m.Addr {
		return RemoteAddr(ib.OutsideRemote)
	}
	return RemoteAddr{Addr: m.Addr + off, RKey: m.RKey}
}

// Slice returns n bytes, at least one, from offset off of the memory: a part to
// give to another peer, or to keep a transfer within. The error wraps ErrRange.
func (m RemoteMemory) Slice(off, n uint64) (RemoteMemory, error) {
	switch {
	case m.Length == 0:
		return RemoteMemory{}, fmt.Errorf("verbs: slice of remote memory of unknown length (0): %w", ErrRange)
	case n == 0 || off > m.Length || n > m.Length-off:
		return RemoteMemory{}, fmt.Errorf("verbs: %d bytes at offset %d of the %d bytes of remote memory: %w", n, off, m.Length, ErrRange)
	}
	return RemoteMemory{Addr: m.Addr + off, Length: n, RKey: m.RKey}, nil
}

// Remote returns what a peer must know to reach the region.
func (mr *MR) Remote() RemoteMemory {
	return RemoteMemory{Addr: mr.Addr(), Length: mr.region().Len(), RKey: mr.RKey()}
}

// RemoteAt returns the address that a peer uses for the byte at off. A place
// outside the region has none, see [RemoteMemory.At].
func (mr *MR) RemoteAt(off int) RemoteAddr {
	if off < 0 {
		return RemoteAddr(ib.OutsideRemote)
	}
	return mr.Remote().At(uint64(off))
}

// ReadAt copies the bytes at off to p, as io.ReaderAt asks: at the end of the
// region it copies what there is and returns io.EOF. It reads every kind of
// memory, also that of a file that was truncated, where it returns an error.
// After Close the error is ErrClosed.
//
// Like Bytes it is not synchronised with what the peer writes: a completion
// says when the peer has done so.
func (mr *MR) ReadAt(p []byte, off int64) (int, error) {
	n, err := mr.inside("read", len(p), off, io.EOF)
	if n > 0 {
		if f := mr.region().CopyOut(p[:n], uint64(off)); f != ib.FaultNone {
			return 0, noFault("read", f)
		}
	}
	return n, err
}

// WriteAt copies p to the region's bytes at off, as io.WriterAt asks. What does
// not fit is not written, and the error then wraps io.ErrShortWrite. The rights
// of the region do not matter, because they are for the device and the peer;
// only memory that is mapped for reading refuses. Otherwise it is as ReadAt.
func (mr *MR) WriteAt(p []byte, off int64) (int, error) {
	n, err := mr.inside("write", len(p), off, io.ErrShortWrite)
	if n > 0 {
		if f := mr.region().CopyIn(uint64(off), p[:n]); f != ib.FaultNone {
			return 0, noFault("write", f)
		}
	}
	return n, err
}

// inside returns how many of n bytes at off are in the region, and the error if
// they are not all.
func (mr *MR) inside(doing string, n int, off int64, short error) (int, error) {
	size := mr.region().Len()
	switch {
	case off < 0:
		return 0, fmt.Errorf("verbs: %s memory: negative offset %d", doing, off)
	case n == 0:
		return 0, nil
	case !mr.region().Alive():
		return 0, fmt.Errorf("verbs: %s memory: %w", doing, ErrClosed)
	case uint64(off) < size && uint64(n) <= size-uint64(off):
		return n, nil
	}
	if short != io.EOF { // which stays as it is: callers compare
		short = fmt.Errorf("verbs: %s %d bytes at offset %d of a region of %d: %w", doing, n, off, size, short)
	}
	return int(size - min(size, uint64(off))), short
}

// Load64 loads the aligned 64-bit word at off atomically, also towards remote
// atomics and remote writes of that word. off is in bytes. The error wraps
// ErrClosed after Close, and ErrRange where the word is not inside the region.
func (mr *MR) Load64(off int) (uint64, error) {
	v, f := mr.region().Load64(uint64(off))
	return v, mr.atomicFault(off, f)
}

// Store64 stores the aligned 64-bit word at off atomically.
func (mr *MR) Store64(off int, v uint64) error {
	return mr.atomicFault(off, mr.region().Store64(uint64(off), v))
}

// CompareSwap64 sets the aligned 64-bit word at off to swap if it equals
// compare, atomically, and returns what it was.
func (mr *MR) CompareSwap64(off int, compare, swap uint64) (uint64, error) {
	v, f := mr.region().CompareSwap64(uint64(off), compare, swap)
	return v, mr.atomicFault(off, f)
}

// FetchAdd64 adds to the aligned 64-bit word at off atomically and returns
// what it was.
func (mr *MR) FetchAdd64(off int, add uint64) (uint64, error) {
	v, f := mr.region().FetchAdd64(uint64(off), add)
	return v, mr.atomicFault(off, f)
}

// Close deregisters the region. Its keys are dead at once; when Close returns,
// no transfer touches the memory any more. While a memory window is bound to
// the region that is refused with ErrInUse, and the region stays as it is.
func (mr *MR) Close() error { return closed("memory region", mr.core.Close()) }

// closed makes the error of a Close that of this package.
func closed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("verbs: close %s: %w", what, err)
}

// atomicFault makes an error of a fault of the 64-bit word at off.
func (mr *MR) atomicFault(off int, f ib.Fault) error {
	if f == ib.FaultNone {
		return nil
	}
	err := noFault("atomic access to", f)
	switch f {
	case ib.FaultOutOfBounds:
		err = fmt.Errorf("%w: %w: 8 bytes at offset %d of %d", err, ErrRange, off, mr.Len())
	case ib.FaultMisaligned:
		err = fmt.Errorf("%w: the word at offset %d must be at a multiple of 8, in memory and on the wire", err, off)
	}
	return err
}

func noFault(doing string, f ib.Fault) error {
	switch f {
	case ib.FaultNone:
		return nil
	case ib.FaultGone:
		return fmt.Errorf("verbs: %s memory: %w", doing, ErrClosed)
	case ib.FaultNoAccess:
		return fmt.Errorf("verbs: %s memory: %w: it is mapped for reading only", doing, f)
	case ib.FaultMemory:
		return fmt.Errorf("verbs: %s memory: %w: its file has become shorter, or cannot be read", doing, f)
	}
	return fmt.Errorf("verbs: %s memory: %w", doing, f)
}
