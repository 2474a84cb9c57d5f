//go:build unix

package tlsfiles

import (
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeFile is a file of a user with rights.
type fakeFile struct {
	mode fs.FileMode
	uid  uint32
}

func (f fakeFile) Name() string       { return "file" }
func (f fakeFile) Size() int64        { return 0 }
func (f fakeFile) Mode() fs.FileMode  { return f.mode }
func (f fakeFile) ModTime() time.Time { return time.Time{} }
func (f fakeFile) IsDir() bool        { return false }
func (f fakeFile) Sys() any           { return &syscall.Stat_t{Uid: f.uid} }

// TestPrivate has files of this user and of another one, with all rights.
func TestPrivate(t *testing.T) {
	t.Parallel()
	me := uint32(syscall.Geteuid())
	for _, c := range []struct {
		mode         fs.FileMode
		mine, others bool // whether it is private
	}{
		{0o600, true, true}, {0o400, true, true}, {0o700, true, true},
		{0o640, false, true}, {0o440, false, true},
		{0o660, false, false}, {0o644, false, false}, {0o604, false, false}, {0o602, false, false}, {0o620, false, false},
	} {
		for uid, want := range map[uint32]bool{me: c.mine, me + 1: c.others} {
			if got := mayNot(fakeFile{c.mode, uid}) == 0; got != want {
				t.Errorf("mode %04o of user %d, and this one is %d: private %t, want %t", c.mode, uid, me, got, want)
			}
		}
	}
}

// TestPipes has a pipe without a writer in place of each file.
func TestPipes(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Files{{Cert: pipe, Key: pipe, CA: pipe}, {PSK: pipe}} {
		if _, err := f.Server(); err == nil || strings.Count(err.Error(), "is a pipe") != strings.Count(err.Error(), "\n")+1 {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
