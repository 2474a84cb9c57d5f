package world_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// A file can be the memory of a program: its pages are fetched, and flushed to
// the disk, in no time.
func TestMappedFile(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(size))
	w := newWorld(t, world.Config{Network: star(2)})
	a, b := boxesOf(simulated{w})
	inMemory := false
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, data)
		if err != nil {
			return err
		}
		theirs, err := s.meet(ctx, a)
		if err != nil {
			return err
		}
		err = s.qp.PostSend(
			verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, size)}, Remote: theirs.At(0)},
			verbs.SendWR{Opcode: verbs.OpFlush, FlushType: verbs.Persistence, Length: size, Remote: theirs.At(0), Signaled: true})
		if err != nil {
			return err
		}
		err = s.await(ctx, 1)
		a.theirs.Put(card{})
		return err
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, make([]byte, 1))
		if err != nil {
			return err
		}
		s.mr, err = s.pd.MapFile(f, 0, size, verbs.LocalWrite|verbs.RemoteWrite|verbs.FlushPersistent)
		if err != nil && strings.Contains(err.Error(), "memory that a file on a disk") {
			inMemory = true
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := s.meet(ctx, b); err != nil {
			return err
		}
		if _, err := b.mine.Take(ctx); err != nil {
			return err
		}
		return s.mr.Close()
	}))
	err = w.Run()
	if inMemory {
		t.Skipf("%s is in memory (set TMPDIR to a disk)", f.Name())
	}
	must(t, err)
	got, err := os.ReadFile(f.Name())
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Error("the file does not have what was written")
	}
}
