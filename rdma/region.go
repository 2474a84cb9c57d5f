package rdma

import (
	"context"
	"fmt"
	"io"

	"github.com/gosoftroce/rocev2/verbs"
)

// RemoteRegion is memory that the peer exports. Each request is checked before
// anything is sent: a place outside of the region, or an operation that it does
// not allow, is refused and the connection goes on.
//
// Its methods may be called from any goroutine.
type RemoteRegion struct {
	c *Conn
	e dirEntry
}

// Region asks the peer for a region by its name. The error wraps
// ErrUnknownRegion, ErrPermission or ErrForeign.
func (c *Conn) Region(ctx context.Context, name string) (*RemoteRegion, error) {
	r := &RemoteRegion{c, dirEntry{name: name}}
	if err := checkName(name); err != nil {
		return nil, r.failed("region", err)
	}
	reply, err := c.core.ask(ctx, dirLookup, name)
	if err == nil {
		err = reply.status.err()
	}
	if err == nil && (len(reply.entries) != 1 || reply.entries[0].name != name) {
		err = protocolError("the directory has answered with %d other regions", len(reply.entries))
	}
	if err != nil {
		return nil, r.failed("region", err)
	}
	r.e = reply.entries[0]
	return r, nil
}

// Regions returns the regions that the peer exports to this side, by name.
func (c *Conn) Regions(ctx context.Context) ([]*RemoteRegion, error) {
	var all []*RemoteRegion
	last := ""
	for {
		reply, err := c.core.ask(ctx, dirList, last)
		if err == nil {
			err = reply.status.err()
		}
		for i := range reply.entries {
			if err == nil && reply.entries[i].name <= last {
				err = protocolError("the directory is not in order")
			}
			last = reply.entries[i].name
			all = append(all, &RemoteRegion{c, reply.entries[i]})
		}
		if err == nil && len(all) > maxRegions {
			err = protocolError("the directory has more than %d regions", maxRegions)
		}
		if err == nil && reply.more && len(reply.entries) == 0 {
			err = protocolError("the directory does not end")
		}
		if err != nil {
			return nil, c.failed("regions", err)
		}
		if !reply.more {
			return all, nil
		}
	}
}

func (s dirStatus) err() error {
	switch s {
	case dirOK:
		return nil
	case dirUnknown:
		return ErrUnknownRegion
	case dirRefused:
		return ErrPermission
	}
	return fmt.Errorf("the directory answers with status %d", s)
}

// Name returns the name of the region.
func (r *RemoteRegion) Name() string { return r.e.name }

// Size returns how many bytes the region has.
func (r *RemoteRegion) Size() int64 { return int64(r.e.size) }

// Writable reports whether the region can be written.
func (r *RemoteRegion) Writable() bool { return r.e.rights&rightWrite != 0 }

// Persistent reports whether Persist can be used.
func (r *RemoteRegion) Persistent() bool { return r.e.rights&rightPersist != 0 }

// Remote returns the memory, for requests of Conn.Go.
func (r *RemoteRegion) Remote() verbs.RemoteMemory {
	return verbs.RemoteMemory{Addr: r.e.addr, Length: r.e.size, RKey: verbs.Key(r.e.rkey)}
}

// at checks an access and returns its place.
func (r *RemoteRegion) at(off int64, n int, right uint8) (verbs.RemoteAddr, error) {
	at := verbs.RemoteAddr{Addr: r.e.addr + uint64(off), RKey: verbs.Key(r.e.rkey)}
	switch {
	case r.e.rights&right == 0 && right != rightPersist && r.e.rights&rightWrite == 0:
		return at, fmt.Errorf("%w: the region is read-only", ErrPermission)
	case r.e.rights&right == 0:
		return at, fmt.Errorf("%w: the region does not allow it", ErrPermission)
	case off < 0 || uint64(off) > r.e.size || uint64(n) > r.e.size-uint64(off):
		return at, fmt.Errorf("%w: %d bytes at offset %d of a region of %d bytes", ErrRange, n, off, r.e.size)
	case right == rightAtomic && at.Addr%8 != 0:
		return at, fmt.Errorf("%w: offset %d", ErrMisaligned, off)
	}
	return at, nil
}

// Read reads len(p) bytes at offset off. The error wraps ErrRange if the region
// ends before that.
func (r *RemoteRegion) Read(ctx context.Context, p []byte, off int64) error {
	at, err := r.at(off, len(p), rightRead)
	if err == nil && len(p) > 0 {
		err = r.c.core.transfer(ctx, verbs.OpRead, at, p)
	}
	return r.failed("read", err)
}

// Write writes p at offset off. When it returns, the peer has the data.
func (r *RemoteRegion) Write(ctx context.Context, p []byte, off int64) error {
	at, err := r.at(off, len(p), rightWrite)
	if err == nil && len(p) > 0 {
		err = r.c.core.transfer(ctx, verbs.OpWrite, at, p)
	}
	return r.failed("write", err)
}

// ReadAt is Read as io.ReaderAt has it: at the end of the region it reads what
// there is and returns io.EOF.
func (r *RemoteRegion) ReadAt(p []byte, off int64) (int, error) {
	n := len(p)
	if off >= 0 {
		n = int(min(int64(n), max(r.Size()-off, 0)))
	}
	if err := r.Read(context.Background(), p[:n], min(off, r.Size())); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt is Write as io.WriterAt has it. What does not fit is refused as a
// whole.
func (r *RemoteRegion) WriteAt(p []byte, off int64) (int, error) {
	if err := r.Write(context.Background(), p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CompareSwap sets the 8 bytes at off to swap if they are compare, in one step,
// and returns what they were. They have the byte order of the machines, and off
// is a multiple of 8.
func (r *RemoteRegion) CompareSwap(ctx context.Context, off int64, compare, swap uint64) (uint64, error) {
	at, err := r.at(off, 8, rightAtomic)
	if err != nil {
		return 0, r.failed("compare and swap", err)
	}
	return r.c.CompareSwap(ctx, at, compare, swap)
}

// FetchAdd adds to the 8 bytes at off, in one step, and returns what they were.
// It is otherwise as CompareSwap.
func (r *RemoteRegion) FetchAdd(ctx context.Context, off int64, add uint64) (uint64, error) {
	at, err := r.at(off, 8, rightAtomic)
	if err != nil {
		return 0, r.failed("fetch and add", err)
	}
	return r.c.FetchAdd(ctx, at, add)
}

// Persist returns when the n bytes at off, as this side has written them, are
// on stable storage of the peer.
func (r *RemoteRegion) Persist(ctx context.Context, off int64, n int) error {
	at, err := r.at(off, n, rightPersist)
	if err != nil {
		return r.failed("persist", err)
	}
	for n > 0 && err == nil {
		part := min(n, persistBytes)
		op := r.c.Go(verbs.SendWR{
			Opcode: verbs.OpFlush, Remote: at, Length: uint32(part),
			FlushType: verbs.Persistence, FlushLevel: verbs.FlushRange,
		})
		err = op.Wait(ctx)
		n, at.Addr = n-part, at.Addr+uint64(part)
	}
	return err
}

// persistBytes is how much one request brings to the disk at most: the length
// of a request has 32 bits.
const persistBytes = 1 << 30

// chunkBytes is how much of a region CopyTo has under way in one piece. There
// are some pieces, so that the writer and the network work at the same time.
const (
	chunkBytes  = 1 << 20
	chunksAhead = 6
)

// CopyTo reads n bytes at off and writes them to w. progress, if not nil, is
// called with the number of bytes that w has got.
func (r *RemoteRegion) CopyTo(ctx context.Context, w io.Writer, off, n int64, progress func(int64)) (int64, error) {
	at, err := r.at(off, 0, rightRead)
	if err == nil && (n < 0 || n > r.Size()-off) {
		err = fmt.Errorf("%w: %d bytes at offset %d of a region of %d bytes", ErrRange, n, off, r.e.size)
	}
	if err != nil {
		return 0, r.failed("read", err)
	}
	// The memory is the call's: w may have it while the hub is closed.
	chunks, err := r.c.core.hub.newSlab(chunkBytes * chunksAhead)
	if err != nil {
		return 0, r.failed("read", err)
	}
	defer chunks.close()
	var ops [chunksAhead]*Op
	// Nothing may be under way when the memory goes.
	defer func() { r.c.quiesce(ops[:]) }()
	var asked, done int64
	for i := 0; done < n; i++ {
		for ; asked < n && asked-done < chunkBytes*chunksAhead; asked += chunkBytes {
			slot := int(asked / chunkBytes % chunksAhead)
			at := verbs.RemoteAddr{Addr: at.Addr + uint64(asked), RKey: at.RKey}
			ops[slot] = r.c.Go(verbs.SendWR{
				Opcode: verbs.OpRead, Remote: at,
				SGList: []verbs.SGE{chunks.mr.Slice(slot*chunkBytes, int(min(chunkBytes, n-asked)))},
			})
		}
		slot := i % chunksAhead
		if err := ops[slot].Wait(ctx); err != nil {
			return done, r.failed("read", err)
		}
		part := chunks.memory.Data()[slot*chunkBytes:][:min(chunkBytes, n-done)]
		if _, err := w.Write(part); err != nil {
			return done, err
		}
		if done += int64(len(part)); progress != nil {
			progress(done)
		}
	}
	return done, nil
}

func (r *RemoteRegion) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Name: r.e.name, Remote: r.c.core.link.RemoteAddr(), Err: err}
}
