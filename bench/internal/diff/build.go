package diff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are those of the product that cells run; each is built beside the
// measuring program.
var programs = []string{"rocev2", "rocev2d"}

// Executable returns the build that an executable file is.
func Executable(file string) (Build, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return Build{}, err
	}
	if info, err := os.Stat(abs); err != nil {
		return Build{}, err
	} else if !info.Mode().IsRegular() {
		return Build{}, fmt.Errorf("%s is no executable file", file)
	}
	return Build{Name: file, Bin: abs}, nil
}

// WorkingTree builds what the tree of the current directory has, into dir, in
// that many layouts.
func WorkingTree(ctx context.Context, dir string, layouts int) (Build, error) {
	top, err := git(ctx, "", "rev-parse", "--show-toplevel")
	if err != nil {
		return Build{}, err
	}
	commit, err := git(ctx, top, "describe", "--always", "--dirty=+changes", "--abbrev=12", "--exclude=*")
	if err != nil {
		return Build{}, err
	}
	return build(ctx, "working tree, "+commit, top, dir, layouts)
}

// Commit builds a commit in a worktree of its own below dir, in that many
// layouts. The function that it returns removes the worktree.
func Commit(ctx context.Context, ref, dir string, layouts int) (Build, func(), error) {
	commit, err := git(ctx, "", "rev-parse", "--verify", "--short=12", "--end-of-options", ref+"^{commit}")
	if err != nil {
		return Build{}, nil, fmt.Errorf("%q is no executable file and no commit here: %w", ref, err)
	}
	tree := filepath.Join(dir, "tree")
	if _, err := git(ctx, "", "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return Build{}, nil, err
	}
	remove := func() {
		// Also after an interrupt.
		if _, err := git(context.WithoutCancel(ctx), "", "worktree", "remove", "--force", tree); err != nil {
			fmt.Fprintf(os.Stderr, "rocebench: %v: remove %s and run git worktree prune\n", err, tree)
		}
	}
	name := ref
	if name != commit {
		name += ", " + commit
	}
	b, err := build(ctx, name, tree, filepath.Join(dir, "bin"), layouts)
	if err != nil {
		remove()
		return Build{}, nil, err
	}
	return b, remove, nil
}

// build makes the measuring program of a tree, and the product's programs.
func build(ctx context.Context, name, top, to string, layouts int) (Build, error) {
	b := Build{Name: name, Bin: filepath.Join(to, "rocebench"), Dir: filepath.Join(top, "bench")}
	if err := compile(ctx, b.Dir, b.Bin, "./cmd/rocebench"); err != nil {
		return b, fmt.Errorf("%s: %w", name, err)
	}
	if layouts > 1 {
		for seed := 1; seed <= layouts; seed++ {
			bin := fmt.Sprintf("%s.%d", b.Bin, seed)
			if err := compile(ctx, b.Dir, bin, "./cmd/rocebench", fmt.Sprintf("-ldflags=-randlayout=%d", seed)); err != nil {
				return b, fmt.Errorf("%s: %w", name, err)
			}
			b.Layouts = append(b.Layouts, bin)
		}
	}
	for _, p := range programs {
		if err := compile(ctx, top, filepath.Join(to, p), "./cmd/"+p); err != nil {
			return b, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b, nil
}

func compile(ctx context.Context, dir, to, what string, flags ...string) error {
	args := append(append([]string{"build", "-o", to}, flags...), what)
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is packaged
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", what, err, out)
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
