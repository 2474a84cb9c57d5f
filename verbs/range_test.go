package verbs_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// far is a length that 32 bits do not hold, where int is longer.
func far() int { return int(min(int64(1)<<32, math.MaxInt)) }

// An entry for a range that is not inside the region is refused when it is
// posted, whatever the numbers are, and the connection goes on.
func TestSliceOutsideRegion(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	for _, c := range []struct {
		name   string
		off, n int
		want   string
	}{
		{"longer than 32 bits", 0, far(), "beyond the region"},
		{"negative length", 0, -1, "length is negative"},
		{"negative length that wraps to a small one", 0, -far() + 8, "length is negative"},
		{"negative offset", -8, 8, "offset is negative"},
		{"behind", 4096, 1, "beyond the region"},
		{"across the end", 4090, 8, "beyond the region"},
		{"sum that wraps", math.MaxInt, math.MaxInt, "beyond the region"},
	} {
		e := a.mr.Slice(c.off, c.n)
		if err := e.Err(); !errors.Is(err, verbs.ErrRange) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: entry with the error %v", c.name, err)
		}
		list := []verbs.SGE{a.mr.Slice(0, 8), e}
		send := a.qp.PostSend(verbs.SendWR{ID: 7, Opcode: verbs.OpWrite, SGList: list, Remote: b.mr.RemoteAt(0), Signaled: true})
		read := a.qp.PostSend(verbs.SendWR{ID: 7, Opcode: verbs.OpRead, SGList: list[1:], Remote: b.mr.RemoteAt(0), Signaled: true})
		recv := a.qp.PostRecv(verbs.RecvWR{ID: 7, SGList: list[1:]})
		both := a.qp.PostRecv(verbs.RecvWR{ID: 7, SGList: list})
		for _, err := range []error{send, read, recv, both} {
			var post *verbs.PostError
			if !errors.Is(err, verbs.ErrRange) || !errors.As(err, &post) || post.ID != 7 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: posting gives %v", c.name, err)
			}
		}
		if !strings.Contains(send.Error(), "entry 1") {
			t.Errorf("%s: %v does not say which entry", c.name, send)
		}
	}
	for _, e := range []verbs.SGE{a.mr.All(), a.mr.Slice(0, 4096), a.mr.Slice(4096, 0), a.mr.Slice(0, 0)} {
		check(t, e.Err())
		a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{e}, Remote: b.mr.RemoteAt(0)})
		a.waitOK(1)
	}
}

// A place outside of the peer's memory is refused before the peer is asked,
// which would end the connection.
func TestRemoteOutsideMemory(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096)
	m := b.mr.Remote()
	for name, r := range map[string]verbs.RemoteAddr{
		"negative":     b.mr.RemoteAt(-1),
		"behind":       b.mr.RemoteAt(4097),
		"behind, peer": m.At(4097),
		"wraps":        m.At(math.MaxUint64),
		"wraps, length unknown": verbs.RemoteMemory{Addr: m.Addr, RKey: m.RKey}.
			At(math.MaxUint64),
	} {
		for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpFetchAdd} {
			wr := verbs.SendWR{Opcode: op, SGList: []verbs.SGE{a.mr.Slice(0, 8)}, Remote: r}
			if err := a.qp.PostSend(wr); !errors.Is(err, verbs.ErrRemote) {
				t.Errorf("%v, %s: %v", op, name, err)
			}
		}
	}
	part, err := m.Slice(4000, 96)
	check(t, err)
	if part != (verbs.RemoteMemory{Addr: m.Addr + 4000, Length: 96, RKey: m.RKey}) || part.At(96) != b.mr.RemoteAt(4096) {
		t.Errorf("part %+v of %+v", part, m)
	}
	for _, c := range [][2]uint64{{4096, 1}, {0, 4097}, {4000, 97}, {0, 0}, {1, math.MaxUint64}, {math.MaxUint64, 2}} {
		if _, err := m.Slice(c[0], c[1]); !errors.Is(err, verbs.ErrRange) {
			t.Errorf("Slice(%d, %d): %v", c[0], c[1], err)
		}
	}
	if _, err := (verbs.RemoteMemory{Addr: 8}).Slice(0, 1); !errors.Is(err, verbs.ErrRange) {
		t.Errorf("a slice of memory of unknown length: %v", err)
	}
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("fits"), Remote: part.At(0)})
	a.waitOK(1)
	if got := string(b.mr.Bytes()[4000:4004]); got != "fits" {
		t.Errorf("%q", got)
	}
}

// ReadAt and WriteAt are what io.ReaderAt and io.WriterAt ask for, on every
// kind of memory.
func TestReadAtWriteAt(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	path := filepath.Join(mappedDir(t), "memory")
	check(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	defer file.Close()
	mapped, err := a.pd.MapFile(file, 0, 8192, allAccess)
	check(t, err)
	sealed, err := a.pd.MapFile(file, 0, 8192, verbs.RemoteRead)
	check(t, err)
	heap, err := a.pd.RegisterMemory(make([]byte, 8192), verbs.RemoteRead) // no right that the owner needs
	check(t, err)
	for name, mr := range map[string]*verbs.MR{"heap": heap, "file": mapped} {
		want := bytes.Repeat([]byte("0123456789abcdef"), 512)
		if n, err := mr.WriteAt(want, 0); n != len(want) || err != nil {
			t.Errorf("%s: wrote %d (%v)", name, n, err)
		}
		got, err := io.ReadAll(io.NewSectionReader(mr, 0, 1<<20))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: read %d bytes (%v)", name, len(got), err)
		}
		p := make([]byte, 16)
		for _, c := range []struct {
			off int64
			n   int
			err error
		}{{0, 16, nil}, {8176, 16, nil}, {8180, 12, io.EOF}, {8192, 0, io.EOF}, {math.MaxInt64, 0, io.EOF}} {
			if n, err := mr.ReadAt(p, c.off); n != c.n || err != c.err {
				t.Errorf("%s: ReadAt %d gives %d, %v", name, c.off, n, err)
			}
			n, err := mr.WriteAt(p[:], c.off)
			if n != c.n || (err == nil) != (c.err == nil) || err != nil && !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("%s: WriteAt %d gives %d, %v", name, c.off, n, err)
			}
		}
		_, rerr := mr.ReadAt(p, -1)
		_, werr := mr.WriteAt(p, -1)
		_, empty := mr.ReadAt(nil, 5)
		if rerr == nil || werr == nil || empty != nil {
			t.Errorf("%s: at -1 %v and %v, of nothing %v", name, rerr, werr, empty)
		}
	}
	if n, err := sealed.WriteAt([]byte("x"), 0); n != 0 || err == nil || !strings.Contains(err.Error(), "for reading only") {
		t.Errorf("memory that is mapped for reading took %d bytes (%v)", n, err)
	}
	cut(t, file, 4096)
	if n, err := mapped.ReadAt(make([]byte, 8), 4096); n != 0 || err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("memory that was cut off gave %d bytes (%v)", n, err)
	}
	check(t, mapped.Close())
	_, rerr := mapped.ReadAt(make([]byte, 8), 0)
	_, werr := mapped.WriteAt(make([]byte, 8), 0)
	_, lerr := mapped.Load64(0)
	for _, err := range []error{rerr, werr, lerr} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}
