package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// Region is memory that a listener exports under a name. Clients find it with
// Conn.Region, and then read and write it one-sidedly: the program that exports
// it does nothing, and does not learn of it.
type Region struct {
	// Size is how many bytes the region has. 0 means those of Memory, or
	// of File from Offset on.
	Size int

	// Memory is the memory itself. It stays in place and alive while it is
	// exported. Without Memory and File the region is fresh zeroed memory.
	Memory []byte

	// File is mapped from Offset on, a multiple of the page size: what
	// clients write is written to the file. It may be closed when it is
	// exported.
	File   *os.File
	Offset int64

	// Writable lets clients write, and do atomics. Otherwise they read.
	Writable bool

	// Persistent lets clients have what they wrote brought to the disk, see
	// RemoteRegion.Persist. It needs File, on a file system that is not in
	// memory, and Writable.
	Persistent bool

	// Allow says which clients may have the region: those with an address
	// in one of these, and those of AllowNames. None of both means all
	// clients.
	//
	// Others do not learn the key of the region. A client can pass a key on
	// to another client of the same listener: where that matters, give
	// each a listener of its own. A client whose connection is not secured
	// reaches no region that is Secured with a key that was passed on.
	Allow []netip.Prefix

	// AllowNames says which clients may have the region by a name that
	// their certificate has. The region is Secured then.
	AllowNames []secure.Name

	// Secured lets clients alone have the region whose connection is
	// secured: see ListenConfig.TLS, which the listener needs then.
	Secured bool
}

// ErrExported: the listener exports a region of that name already.
var ErrExported = errors.New("a region of that name is exported already")

// maxRegions is how many regions a listener has at most.
const maxRegions = 1 << 16

// directory has the regions that a listener exports.
type directory struct {
	asked func(client netip.Addr, name string, granted bool) // or nil
	some  atomic.Bool                                        // there are regions

	mu      sync.RWMutex
	pd      *verbs.PD
	regions []*exported // by name
}

type exported struct {
	entry dirEntry
	allow []netip.Prefix
	names []secure.Name
	mr    *verbs.MR
}

// checkName says what is wrong with the name of a region.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a region needs a name")
	case len(name) > maxName:
		return fmt.Errorf("the name of a region has at most %d bytes, not %d", maxName, len(name))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the name %q of a region has characters that cannot be printed", name)
	}
	return nil
}

func byName(e *exported, name string) int { return strings.Compare(e.entry.name, name) }

func (d *directory) export(name string, r Region) (*verbs.MR, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i, found := slices.BinarySearchFunc(d.regions, name, byName)
	if found {
		return nil, ErrExported
	}
	if len(d.regions) == maxRegions {
		return nil, fmt.Errorf("there are %d regions already, as many as a listener can have", maxRegions)
	}
	mr, rights, err := r.register(d.pd)
	if err != nil {
		return nil, err
	}
	m := mr.Remote()
	d.regions = slices.Insert(d.regions, i, &exported{
		entry: dirEntry{addr: m.Addr, size: m.Length, rkey: uint32(m.RKey), rights: rights, name: name},
		allow: plainPrefixes(r.Allow), names: slices.Clone(r.AllowNames), mr: mr,
	})
	d.some.Store(true)
	return mr, nil
}

func (d *directory) unexport(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, found := slices.BinarySearchFunc(d.regions, name, byName)
	if !found {
		return ErrUnknownRegion
	}
	if err := d.regions[i].mr.Close(); err != nil {
		return err
	}
	d.regions = slices.Delete(d.regions, i, i+1)
	d.some.Store(len(d.regions) > 0)
	return nil
}

// register registers the memory that a region is of.
func (r *Region) register(pd *verbs.PD) (*verbs.MR, uint8, error) {
	access, rights := verbs.RemoteRead, rightRead
	if r.Writable {
		access |= verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteAtomic | verbs.FlushGlobal
		rights |= rightWrite | rightAtomic
	}
	if r.Persistent {
		if r.File == nil || !r.Writable {
			return nil, 0, errors.New("a persistent region is of a file, and writable")
		}
		access |= verbs.FlushPersistent
		rights |= rightPersist
	}
	size := r.Size
	switch {
	case r.Size < 0 || r.Offset < 0:
		return nil, 0, fmt.Errorf("size %d, offset %d: they cannot be negative", r.Size, r.Offset)
	case r.Memory != nil && r.File != nil:
		return nil, 0, errors.New("a region is of Memory or of File, not of both")
	case r.Memory != nil:
		if size > len(r.Memory) {
			return nil, 0, fmt.Errorf("size %d of a region with %d bytes of memory", size, len(r.Memory))
		}
		if size == 0 {
			size = len(r.Memory)
		}
		mr, err := pd.RegisterMemory(r.Memory[:size], access)
		return mr, rights, err
	case r.File != nil:
		if size == 0 {
			st, err := r.File.Stat()
			if err != nil {
				return nil, 0, err
			}
			size = int(st.Size() - r.Offset)
		}
		if size <= 0 {
			return nil, 0, fmt.Errorf("%s has no bytes at offset %d: give the region a size", r.File.Name(), r.Offset)
		}
		mr, err := pd.MapFile(r.File, r.Offset, size, access)
		return mr, rights, err
	case size == 0:
		return nil, 0, errors.New("a region of fresh memory needs a size")
	}
	mr, err := pd.AllocMemory(size, access|verbs.OnDemand)
	return mr, rights, err
}

// plainPrefixes returns prefixes with those of IPv4 in their IPv6 form as IPv4:
// that is what addresses of clients are.
func plainPrefixes(list []netip.Prefix) (plain []netip.Prefix) {
	for _, p := range list {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		plain = append(plain, p)
	}
	return plain
}

// asker is a client as access lists see it.
type asker struct {
	addr  netip.Addr
	names []secure.Name
}

func (e *exported) allows(a asker) bool {
	addr := a.addr.WithZone("") // a prefix has none
	return len(e.allow)+len(e.names) == 0 ||
		slices.ContainsFunc(e.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) ||
		slices.ContainsFunc(e.names, func(n secure.Name) bool { return slices.Contains(a.names, n) })
}

// answer answers a request of a client.
func (d *directory) answer(client asker, req dirRequest, reply *dirReply) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	i, found := slices.BinarySearchFunc(d.regions, req.name, byName)
	switch req.op {
	case dirLookup:
		switch {
		case !found:
			reply.status = dirUnknown
		case !d.regions[i].allows(client):
			reply.status = dirRefused
		default:
			reply.status = dirOK
			reply.entries = []dirEntry{d.regions[i].entry}
		}
		if d.asked != nil {
			d.asked(client.addr, req.name, reply.status == dirOK)
		}
	case dirList:
		if found {
			i++
		}
		reply.status = dirOK
		for room := dirReplyMax; i < len(d.regions) && room > 0; i++ {
			if e := d.regions[i]; e.allows(client) {
				reply.entries = append(reply.entries, e.entry)
				room -= dirEntryHeader
			}
		}
		reply.more = i < len(d.regions)
	default:
		reply.status = dirBad
	}
}
