package verbs

import (
	"fmt"
	"os"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/memreg/mapping"
)

// PD is a protection domain: queue pairs reach only the regions of their own.
type PD struct {
	dev  *Device
	core *hca.PD
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	core, err := d.owner.AllocPD()
	if err != nil {
		return nil, fmt.Errorf("verbs: allocate a protection domain: %w", err)
	}
	return &PD{dev: d, core: core}, nil
}

// Device returns the device of the domain.
func (pd *PD) Device() *Device { return pd.dev }

// Close deregisters what is registered in the domain and frees it.
func (pd *PD) Close() error { return pd.core.Close() }

// MR is a registered memory region.
type MR struct {
	core   *hca.MR
	region *memreg.Region
	data   []byte
}

// RegOption adjusts a registration.
type RegOption func(*memreg.Options)

// WithIOVA lets the wire address of the region's first byte be addr. Without
// it, it is the real address of the memory.
func WithIOVA(addr uint64) RegOption {
	return func(o *memreg.Options) { o.Base, o.IOVA = memreg.BaseIOVA, addr }
}

// ZeroBased lets wire addresses of the region start at 0.
func ZeroBased() RegOption {
	return func(o *memreg.Options) { o.Base = memreg.BaseZero }
}

// RegisterMemory registers Go memory. buf stays in place and alive as long as
// the region is registered.
func (pd *PD) RegisterMemory(buf []byte, access Access, opts ...RegOption) (*MR, error) {
	return pd.register(memreg.Local(buf), access, opts, nil)
}

// AllocMemory registers size bytes of fresh, zeroed, page-aligned memory
// outside the Go heap. It is given back when the region is closed.
func (pd *PD) AllocMemory(size int, access Access, opts ...RegOption) (*MR, error) {
	m, err := mapping.Anonymous(size, mapping.Options{})
	if err != nil {
		return nil, fmt.Errorf("verbs: allocate memory: %w", err)
	}
	return pd.registerMapping(m, access, opts)
}

// MapFile registers size bytes of a file from offset off (a multiple of the
// page size), mapped shared: what is written to the region is written to the
// file. The mapping ends when the region is closed; f may be closed before.
// A transfer into a part that was cut off the file meanwhile fails with an
// error, no crash.
func (pd *PD) MapFile(f *os.File, off int64, size int, access Access, opts ...RegOption) (*MR, error) {
	m, err := mapping.File(f, off, size, mapping.Options{
		ReadOnly: access&(LocalWrite|RemoteWrite|RemoteAtomic) == 0,
		Guard:    true,
	})
	if err != nil {
		return nil, fmt.Errorf("verbs: map memory: %w", err)
	}
	return pd.registerMapping(m, access, opts)
}

func (pd *PD) registerMapping(m *mapping.Mapping, access Access, opts []RegOption) (*MR, error) {
	data := m.Data()
	atRealAddress := WithIOVA(m.Addr())
	mr, err := pd.register(m, access, append([]RegOption{atRealAddress}, opts...), m.Close)
	if err != nil {
		return nil, err
	}
	mr.data = data
	return mr, nil
}

func (pd *PD) register(m memreg.Memory, access Access, opts []RegOption, free func() error) (*MR, error) {
	o := memreg.Options{Access: access}
	for _, f := range opts {
		f(&o)
	}
	core, err := pd.core.Register(m, o, free)
	if err != nil {
		return nil, fmt.Errorf("verbs: register %d bytes of memory: %w", m.Len(), err)
	}
	return &MR{core: core, region: core.Region(), data: m.Bytes()}, nil
}

// Bytes returns the region's memory. Memory from AllocMemory or MapFile must
// not be touched any more after Close.
func (mr *MR) Bytes() []byte { return mr.data }

// Len returns the region's length in bytes.
func (mr *MR) Len() int { return int(mr.region.Len()) }

// Addr returns the wire address of the region's first byte.
func (mr *MR) Addr() uint64 { return mr.region.Addr() }

// Access returns the rights that the region was registered with.
func (mr *MR) Access() Access { return mr.region.Access() }

// LKey returns the key for the owner's own work requests.
func (mr *MR) LKey() Key { return mr.region.LKey() }

// RKey returns the key for the peer.
func (mr *MR) RKey() Key { return mr.region.RKey() }

// Slice returns a scatter/gather entry for n bytes from offset off. A range
// outside the region is found when the work request is executed.
func (mr *MR) Slice(off, n int) SGE {
	return SGE{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
}

// All returns a scatter/gather entry for the whole region (at most 4 GiB - 1).
func (mr *MR) All() SGE { return mr.Slice(0, int(min(mr.region.Len(), 1<<32-1))) }

// Invalidatable lets a peer end the region's rkey with a SendWithInv that names
// it: when the receive completes, with WC.WithInv, nobody reaches the region
// through that key any more. Local use goes on. Regions that are not registered
// for it refuse, which ends the connection.
func Invalidatable() RegOption {
	return func(o *memreg.Options) { o.Invalidatable = true }
}

// RemoteMemory is what a peer must know to reach a region. It is a plain value
// to be sent to the peer.
type RemoteMemory struct {
	Addr   uint64 `json:"addr"`
	Length uint64 `json:"length"`
	RKey   Key    `json:"rkey"`
}

// At returns the address off bytes into the memory.
func (m RemoteMemory) At(off uint64) RemoteAddr { return RemoteAddr{Addr: m.Addr + off, RKey: m.RKey} }

// Remote returns what a peer must know to reach the region.
func (mr *MR) Remote() RemoteMemory {
	return RemoteMemory{Addr: mr.Addr(), Length: mr.region.Len(), RKey: mr.RKey()}
}

// RemoteAt returns the address that a peer uses for the byte at off.
func (mr *MR) RemoteAt(off int) RemoteAddr {
	return RemoteAddr{Addr: mr.Addr() + uint64(off), RKey: mr.RKey()}
}

// Load64 loads the aligned 64-bit word at off atomically, also towards remote
// atomics and remote writes of that word.
func (mr *MR) Load64(off int) (uint64, error) { return fault(mr.region.Load64(uint64(off))) }

// Store64 stores the aligned 64-bit word at off atomically.
func (mr *MR) Store64(off int, v uint64) error { return noFault(mr.region.Store64(uint64(off), v)) }

// CompareSwap64 sets the aligned 64-bit word at off to swap if it equals
// compare, atomically, and returns what it was.
func (mr *MR) CompareSwap64(off int, compare, swap uint64) (uint64, error) {
	return fault(mr.region.CompareSwap64(uint64(off), compare, swap))
}

// FetchAdd64 adds to the aligned 64-bit word at off atomically and returns
// what it was.
func (mr *MR) FetchAdd64(off int, add uint64) (uint64, error) {
	return fault(mr.region.FetchAdd64(uint64(off), add))
}

// Close deregisters the region. Its keys are dead at once; when Close returns,
// no transfer touches the memory any more.
func (mr *MR) Close() error { return mr.core.Close() }

func fault(v uint64, f memreg.Fault) (uint64, error) { return v, noFault(f) }

func noFault(f memreg.Fault) error {
	if f == memreg.None {
		return nil
	}
	return fmt.Errorf("verbs: atomic access to memory: %w", f)
}
