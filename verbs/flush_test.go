package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

const flushAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.FlushGlobal | verbs.FlushPersistent

// forDisk has a peer wait for each answer for seconds: a busy disk takes that
// long to keep a page.
var forDisk = verbs.WithConfig(verbs.ConnectConfig{Timeout: 20})

// mapFile has a file of s's be a region with the right to flush it.
func (s *side) mapFile(size int) (*verbs.MR, *os.File) {
	s.t.Helper()
	f, err := os.Create(filepath.Join(mappedDir(s.t), "file"))
	check(s.t, err)
	s.t.Cleanup(func() { f.Close() })
	check(s.t, f.Truncate(int64(size)))
	mr, err := s.pd.MapFile(f, 0, size, flushAccess)
	if err != nil && strings.Contains(err.Error(), "FlushPersistent needs memory that a file on a disk") {
		s.t.Skipf("%s is in memory (set TMPDIR to a disk): %v", f.Name(), err)
	}
	check(s.t, err)
	return mr, f
}

// What was flushed is in the file when the completion comes, and so is the
// pointer that a later ATOMIC WRITE has set.
func TestFlushToFile(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	a, b := newPair(t, size, forDisk)
	mr, f := b.mapFile(size)
	data := a.fill(3)
	for i := range 10 {
		at := 4096 + i*50000
		check(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(at, 40000)}, Remote: mr.RemoteAt(at)}))
		check(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.Persistence, Length: 40000, Remote: mr.RemoteAt(at)}))
		a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpAtomicWrite, Inline: fmt.Appendf(nil, "%08d", i), Remote: mr.RemoteAt(8)})
		if wc := a.waitOK(uint64(i)); wc.Opcode != verbs.WCAtomicWrite || wc.ByteLen != 8 {
			t.Errorf("completion %v", wc)
		}
		got := make([]byte, 40000)
		_, err := f.ReadAt(got, int64(at))
		check(t, err)
		if !bytes.Equal(got, data[at:at+40000]) {
			t.Errorf("round %d: the file does not have what was flushed", i)
		}
	}
	a.post(verbs.SendWR{ID: 99, Opcode: verbs.OpFlush, FlushType: verbs.Persistence | verbs.GlobalVisibility, FlushLevel: verbs.FlushRegion, Remote: mr.RemoteAt(0)})
	if wc := a.waitOK(99); wc.Opcode != verbs.WCFlush {
		t.Errorf("completion %v", wc)
	}
	word := make([]byte, 8)
	_, err := f.ReadAt(word, 8)
	check(t, err)
	if string(word) != "00000009" {
		t.Errorf("the file has %q", word)
	}
}

// A file that was truncated cannot be flushed beyond its end. The program at
// the other end learns that, and nothing crashes.
func TestFlushOfTruncatedFile(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	a, b := newPair(t, size, forDisk)
	mr, f := b.mapFile(size)
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, size)}, Remote: mr.RemoteAt(0)})
	a.waitOK(1)
	cut(t, f, size/2)
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpFlush, FlushType: verbs.Persistence, Length: size / 2, Remote: mr.RemoteAt(0)})
	a.waitOK(2)
	a.post(verbs.SendWR{ID: 3, Opcode: verbs.OpFlush, FlushType: verbs.Persistence, FlushLevel: verbs.FlushRegion, Remote: mr.RemoteAt(0)})
	if wc := a.wait(); wc.ID != 3 || wc.Status != verbs.StatusRemOpErr {
		t.Errorf("completion %v", wc)
	}
}

// The right to flush to stable storage is refused where there is none, in words
// that say what is needed.
func TestFlushPersistentIsRefused(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 4096)
	_, err := a.pd.RegisterMemory(make([]byte, 4096), flushAccess)
	if err == nil || !strings.Contains(err.Error(), "FlushPersistent needs memory that a file on a disk backs") {
		t.Errorf("Go memory: %v", err)
	}
	_, err = a.pd.AllocMemory(4096, flushAccess)
	if err == nil || !strings.Contains(err.Error(), "FlushPersistent needs") {
		t.Errorf("anonymous memory: %v", err)
	}
	if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpFlush}); !errors.Is(err, verbs.ErrFlush) {
		t.Errorf("a FLUSH of no type: %v", err)
	}
	if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: []byte("short")}); !errors.Is(err, verbs.ErrAtomicWrite) {
		t.Errorf("an ATOMIC WRITE of 5 bytes: %v", err)
	}
}

// A log in a file of the peer: an entry is written and flushed, and then the
// end of the log moves past it. It moves at once when the entry is on the disk,
// and not before. The program waits once.
func ExampleSendWR_flush() {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	devA, a, _ := open(linkA, "an entry of the log")
	devB, b, _ := open(linkB, "")
	defer devA.Close()
	defer devB.Close()
	ctx := context.Background()
	disk := verbs.WithConfig(verbs.ConnectConfig{Timeout: 20}) // 4.3 s an attempt
	must(a.qp.Connect(ctx, b.qp.Endpoint(), disk))
	must(b.qp.Connect(ctx, a.qp.Endpoint(), disk))

	f, err := os.CreateTemp("", "log")
	must(err)
	defer os.Remove(f.Name())
	must(f.Truncate(4096))
	access := verbs.LocalWrite | verbs.RemoteWrite | verbs.FlushPersistent
	kind := verbs.Persistence
	log, err := b.pd.MapFile(f, 0, 4096, access)
	if err != nil { // a file in memory, such as one of tmpfs, survives nothing
		kind = verbs.GlobalVisibility
		log, err = b.pd.MapFile(f, 0, 4096, access&^verbs.FlushPersistent|verbs.FlushGlobal)
	}
	must(err)

	entry := []verbs.SGE{a.mr.Slice(0, 19)}
	must(a.qp.PostSend(
		verbs.SendWR{Opcode: verbs.OpWrite, SGList: entry, Remote: log.RemoteAt(8)},
		verbs.SendWR{Opcode: verbs.OpFlush, FlushType: kind, Length: 19, Remote: log.RemoteAt(8)},
		verbs.SendWR{Opcode: verbs.OpAtomicWrite, Inline: []byte("end 0027"), Remote: log.RemoteAt(0), Signaled: true},
	))
	var wc [1]verbs.WC
	_, err = a.cq.Wait(ctx, wc[:])
	must(err)
	text := make([]byte, 27)
	_, err = f.ReadAt(text, 0)
	if err != io.EOF {
		must(err)
	}
	fmt.Println(wc[0].Opcode, wc[0].Status)
	fmt.Printf("%s\n", text)
	// Output:
	// ATOMIC_WRITE SUCCESS
	// end 0027an entry of the log
}
