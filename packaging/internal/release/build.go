package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Platform is a system and a processor.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Usual are the platforms of a release.
var Usual = []Platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"freebsd", "amd64"}, {"openbsd", "amd64"},
}

// ParsePlatform takes what Go's tools call a platform apart.
func ParsePlatform(s string) (Platform, error) {
	system, arch, ok := strings.Cut(s, "/")
	if !ok || system == "" || arch == "" {
		return Platform{}, fmt.Errorf("%q is not a platform such as linux/amd64", s)
	}
	return Platform{system, arch}, nil
}

// commands are the programs of a release.
var commands = []string{"rocev2", "rocev2d"}

// source is a clone of the repository, in which everything is built: no file of
// the working tree can get into a release.
type source struct {
	dir   string
	cache string // of the Go command; "" is that of the user
	log   io.Writer
	date  time.Time // of the commit
}

// clone makes a source of a repository's commit HEAD. With changes it takes the
// files of the working tree instead, and the version says so.
func clone(ctx context.Context, repository, dir string, changes bool, log io.Writer) (*source, error) {
	s := &source{dir: dir, log: log}
	if err := s.git(ctx, repository, "clone", "--quiet", "--shared", "--no-checkout", repository, dir); err != nil {
		return nil, err
	}
	head, err := output(ctx, repository, "git", "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	if err := s.git(ctx, dir, "checkout", "--quiet", "--detach", strings.TrimSpace(head)); err != nil {
		return nil, err
	}
	if changes {
		if err := copyChanges(ctx, repository, dir); err != nil {
			return nil, err
		}
	} else if changed, err := output(ctx, repository, "git", "status", "--porcelain"); err == nil && changed != "" {
		fmt.Fprintf(log, "NOTE: the working tree has changes; the release is of the commit %s, without them\n", strings.TrimSpace(head)[:12])
	}
	date, err := output(ctx, dir, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	var seconds int64
	if _, err := fmt.Sscan(date, &seconds); err != nil {
		return nil, fmt.Errorf("the date of the commit: %w", err)
	}
	s.date = time.Unix(seconds, 0).UTC()
	return s, nil
}

// copyChanges copies what the working tree has and git does not ignore.
func copyChanges(ctx context.Context, from, to string) error {
	list, err := output(ctx, from, "git", "ls-files", "-z", "--modified", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			os.Remove(filepath.Join(to, name))
			continue
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) git(ctx context.Context, dir string, args ...string) error {
	_, err := output(ctx, dir, "git", args...)
	return err
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out), nil
}

// fetching are the settings of Go that say where modules and toolchains come
// from and are kept. What is built does not depend on them: go.sum has the
// checksums.
var fetching = []string{"GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH", "GOTOOLCHAIN", "GOPATH", "GOMODCACHE", "GOCACHE", "GOTMPDIR"}

// environment is that of the user without the settings of Go that change what
// is built. An empty variable does not do that alone: "go env -w" may have
// stored another value.
func environment(ctx context.Context) ([]string, error) {
	text, err := output(ctx, ".", "go", append([]string{"env", "-json"}, fetching...)...)
	if err != nil {
		return nil, err
	}
	var kept map[string]string
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	env := append(os.Environ(), "GOENV=off", "GOWORK=off")
	for _, name := range []string{"GOFLAGS", "GOOS", "GOARCH", "GO386", "GOAMD64", "GOARM", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "GODEBUG"} {
		env = append(env, name+"=")
	}
	for name, value := range kept {
		env = append(env, name+"="+value)
	}
	return env, nil
}

// run runs a command in the source with additions to the environment, where the
// settings of the user's Go do not count.
func (s *source) run(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	base, err := environment(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Env = base
	if s.cache != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+s.cache)
	}
	cmd.Env = append(cmd.Env, env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s (%s): %w\n%s%s", name, strings.Join(args, " "), strings.Join(env, " "), err, out.Bytes(), stderr.Bytes())
	}
	return out.Bytes(), nil
}

// crossCompilers are the C compilers of Debian's cross toolchains.
var crossCompilers = map[string]struct{ cc, debian string }{
	"amd64": {"x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu"},
	"arm64": {"aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"},
}

// compilerFor finds a C compiler that makes programs for a processor, or says
// what is missing.
func compilerFor(arch string) (cc, missing string) {
	if arch == runtime.GOARCH && runtime.GOOS == "linux" {
		for _, name := range []string{os.Getenv("CC"), "cc"} {
			if name == "" {
				continue
			}
			if _, err := exec.LookPath(name); err == nil {
				return name, ""
			}
		}
	}
	known, ok := crossCompilers[arch]
	if !ok {
		return "", "no C compiler for " + arch + " is known here"
	}
	if _, err := exec.LookPath(known.cc); err != nil {
		return "", "there is no " + known.cc + " (on Debian: apt-get install " + known.debian + " libc6-dev-" + arch + "-cross)"
	}
	return known.cc, ""
}

// libraries builds the preload library and the adapter for a processor into the
// folder that the tools take them from, and nothing else is there after it.
func (s *source) libraries(ctx context.Context, p Platform) error {
	folder := filepath.Join(s.dir, "programs", "preload")
	old, err := filepath.Glob(filepath.Join(folder, "*.so.gz"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if p.OS != "linux" {
		return nil
	}
	cc, missing := compilerFor(p.Arch)
	if missing != "" {
		fmt.Fprintf(s.log, "SKIPPED: the tools for %s carry no preload library: %s\n", p, missing)
		return nil
	}
	maker, built := filepath.Join(s.dir, "..", "mkpreload"), filepath.Join(s.dir, "..", "libraries-"+p.Arch)
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	if _, err := s.run(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", maker, "./programs/mkpreload"); err != nil {
		return err
	}
	if _, err := s.run(ctx, []string{"GOOS=linux", "GOARCH=" + p.Arch, "CC=" + cc}, maker, built); err != nil {
		return err
	}
	libs, err := filepath.Glob(filepath.Join(built, "*.so"))
	if err != nil {
		return err
	}
	for _, lib := range libs {
		text, err := os.ReadFile(lib)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(lib), ".so") + "-" + p.Arch + ".so.gz"
		if err := os.WriteFile(filepath.Join(folder, name), packed(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// packed is a text compressed, without a time and a name.
func packed(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level exists
	_, _ = w.Write(text)                                  // a buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// program is the file name of a command on a system.
func (p Platform) program(name string) string {
	if p.OS == "windows" {
		return name + ".exe"
	}
	return name
}

// build builds the commands, static, and returns their files.
func (s *source) build(ctx context.Context, p Platform) (files []string, err error) {
	if err := s.libraries(ctx, p); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, "..", "bin-"+p.OS+"-"+p.Arch)
	args := []string{"build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", dir + "/"}
	for _, name := range commands {
		args = append(args, "./cmd/"+name)
		files = append(files, filepath.Join(dir, p.program(name)))
	}
	_, err = s.run(ctx, []string{"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Arch}, "go", args...)
	return files, err
}

// describe has the commands describe themselves: those that are built, if this
// machine runs programs of the platform.
func (s *source) describe(ctx context.Context, p Platform, binaries []string) (map[string][]byte, error) {
	said := map[string][]byte{}
	for i, name := range commands {
		program := []string{"go", "run", "./cmd/" + name, "describe"}
		if p.OS == runtime.GOOS && p.Arch == runtime.GOARCH {
			program = []string{binaries[i], "describe"}
		}
		out, err := s.run(ctx, []string{"CGO_ENABLED=0"}, program[0], program[1:]...)
		if err != nil {
			return nil, err
		}
		said[name] = out
	}
	return said, nil
}

// versionOf returns the version of the module that a program was built from,
// without the "v".
func versionOf(file string) (string, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", err
	}
	version := strings.TrimPrefix(info.Main.Version, "v")
	if version == "" || version == "(devel)" {
		return "", fmt.Errorf("%s has no version: it was built without git", file)
	}
	return version, nil
}
