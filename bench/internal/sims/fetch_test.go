package sims

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// repository makes a git repository with a file of each folder, and returns
// its commit.
func repository(t *testing.T, dir string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git: apt-get install git")
	}
	for name, text := range map[string]string{"sim/Makefile": "all:\n", "LICENSE": "free\n", "other/large": "not needed\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var commit []byte
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x"}, {"rev-parse", "HEAD"}} {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		commit = out
	}
	return string(bytes.TrimSpace(commit))
}

func TestFetch(t *testing.T) {
	t.Parallel()
	from, work := t.TempDir(), t.TempDir()
	s := HTSim()
	s.From, s.Commit = from, repository(t, from)
	dir, err := s.Fetch(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "sim", "Makefile")); err != nil || string(b) != "all:\n" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "sim", "Makefile")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v: want a program", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); !os.IsNotExist(err) {
		t.Errorf("the folder that is not needed any more: %v", err)
	}
	// What is there is used again, without the repository.
	s.From = filepath.Join(work, "gone")
	if again, err := s.Fetch(t.Context(), work); err != nil || again != dir {
		t.Errorf("%q, %v", again, err)
	}
}

// A peer that is missing is an error that says which, and what to do.
func TestFetchMissing(t *testing.T) {
	t.Parallel()
	from, work := t.TempDir(), t.TempDir()
	commit := repository(t, from)
	s := HPCC()
	s.From = filepath.Join(work, "gone")
	_, err := s.Fetch(t.Context(), work)
	wants(t, err, "hpcc cannot be cloned from")
	wants(t, err, "-hpcc none")
	s.From = "--upload-pack=touch hacked"
	_, err = s.Fetch(t.Context(), work)
	wants(t, err, "hpcc cannot be cloned from")
	s.From = from
	_, err = s.Fetch(t.Context(), work)
	wants(t, err, "has no commit "+s.Commit)
	s.Commit = commit // which has no folder simulation
	_, err = s.Fetch(t.Context(), work)
	wants(t, err, "hpcc: git archive")
	// Nothing of that is taken for a tree.
	s.paths = []string{"sim"}
	if _, err := s.Fetch(t.Context(), work); err != nil {
		t.Error(err)
	}
}

// An archive cannot write outside of its folder.
func TestUnpack(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]tar.Header{
		"escapes": {Name: "../file", Typeflag: tar.TypeReg, Mode: 0o644},
		"neither": {Name: "file", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		wants(t, unpack(&b, dir), name)
		if _, err := os.Lstat(filepath.Join(dir, "..", "file")); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNeed(t *testing.T) {
	t.Parallel()
	wants(t, need("htsim", "no-such-compiler", "no-such-make"), "htsim needs no-such-compiler, no-such-make, not found in PATH")
	_, err := Python(t.Context(), "no-such-python")
	wants(t, err, "no-such-python is none: say -python2 FILE, or -hpcc none")
}
