package sims

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Source is where the code of a simulator comes from.
type Source struct {
	Name   string
	From   string   // address or directory of a git repository
	Commit string   // that this package is written for
	paths  []string // of the repository, that are needed
}

// HTSim is the source of htsim (BSD 2-clause license).
func HTSim() Source {
	return Source{"htsim", "https://github.com/Broadcom/csg-htsim", "841d9e7be46bb968eece766aa4b6c044c7799f67", []string{"sim", "LICENSE"}}
}

// HPCC is the source of the ns-3 of the HPCC paper (GPL 2).
func HPCC() Source {
	return Source{"hpcc", "https://github.com/alibaba-edu/High-Precision-Congestion-Control", "9f4be2a9ead8a90e8bf732c66bd758c00e58e5be", []string{"simulation"}}
}

// fetched is the file in a tree that says that the tree is whole.
const fetched = ".fetched"

// Fetch has the files of the pinned commit in a directory below work, and
// returns the directory. One that is there is used again.
func (s Source) Fetch(ctx context.Context, work string) (string, error) {
	dir := filepath.Join(work, s.Name+"-"+s.Commit[:12])
	if _, err := os.Stat(filepath.Join(dir, fetched)); err == nil {
		return dir, nil
	}
	clone := filepath.Join(work, s.Name+".git")
	for _, old := range []string{dir, clone} {
		if err := os.RemoveAll(old); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := tell(exec.CommandContext(ctx, "git", "clone", "--quiet", "--bare", "--", s.From, clone)); err != nil {
		return "", fmt.Errorf("%s cannot be cloned from %q: %w\nSay -%s ADDRESS or -%s DIRECTORY of a git repository that has it, or -%s none", s.Name, s.From, err, s.Name, s.Name, s.Name)
	}
	defer os.RemoveAll(clone)
	if err := tell(exec.CommandContext(ctx, "git", "-C", clone, "cat-file", "-e", s.Commit+"^{commit}")); err != nil {
		return "", fmt.Errorf("%s: %q has no commit %s, for which this command is written", s.Name, s.From, s.Commit)
	}
	if err := s.extract(ctx, clone, dir); err != nil {
		return "", fmt.Errorf("%s: %w", s.Name, err)
	}
	return dir, os.WriteFile(filepath.Join(dir, fetched), []byte(s.From+" "+s.Commit+"\n"), 0o644)
}

// extract writes the files of the commit to a directory. It takes no work tree
// of git, because only some folders are needed.
func (s Source) extract(ctx context.Context, clone, dir string) error {
	c := exec.CommandContext(ctx, "git", append([]string{"-C", clone, "archive", "--format=tar", s.Commit, "--"}, s.paths...)...)
	var told strings.Builder
	c.Stderr = &told
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	unpacked := unpack(out, dir)
	io.Copy(io.Discard, out) // so that git can end
	if err := c.Wait(); err != nil {
		return fmt.Errorf("git archive: %w: %s", err, lastLines(told.String()))
	}
	return unpacked
}

// unpack writes the files of an archive below a directory, and nowhere else.
func unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		name := strings.TrimSuffix(h.Name, "/")
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = errors.Join(root.MkdirAll(filepath.Dir(name), 0o755), write(root, name, h.FileInfo().Mode().Perm(), t))
		case tar.TypeXGlobalHeader: // the commit
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, name string, mode os.FileMode, from io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// tell runs a command. The error says what the command said last.
func tell(c *exec.Cmd) error {
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(string(out)))
	}
	return nil
}

// lastLines returns the last three lines of what a program said.
func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-3):], "\n"))
}

// need says which of some programs are not installed.
func need(what string, programs ...string) error {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s needs %s, not found in PATH", what, strings.Join(missing, ", "))
	}
	return nil
}
