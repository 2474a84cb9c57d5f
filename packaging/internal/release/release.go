// Package release builds what a release has: static programs in archives, and
// packages of Debian and Fedora, with manual pages, completions, bills of
// materials and checksums. The same commit gives the same bytes.
package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Config says what to build, and where.
type Config struct {
	Repository string
	Out        string // the folder; it is made
	Platforms  []Platform
	Changes    bool // take the files of the working tree, not those of the commit
	Cold       bool // build with a cache of its own, in which nothing is yet
	Log        io.Writer
}

// result is what a build has made so far: files of the release by name.
type result struct {
	files       map[string][]byte
	pages       map[string][]byte
	completions map[string]map[string][]byte // by program and shell
}

// Build builds a release into the folder, and returns the names of its files.
func Build(ctx context.Context, c Config) ([]string, error) {
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // said before the build, not after
		return nil, err
	}
	made, err := c.build(ctx)
	if err != nil {
		return nil, err
	}
	if err := removeOld(c.Out); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(made))
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(c.Out, name), made[name], 0o644); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// removeOld removes the files of an earlier release from a folder, so that they
// are not taken for those of this one.
func removeOld(dir string) error {
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(sums)) {
		if f := strings.Fields(line); len(f) == 2 && filepath.Base(f[1]) == f[1] {
			if err := os.Remove(filepath.Join(dir, f[1])); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return err
}

// Check builds a release again, in another folder, and compares it with the one
// that Build has made, of these or of more platforms. The error names the files
// that differ.
func Check(ctx context.Context, c Config) error {
	made, err := c.build(ctx)
	if err != nil {
		return err
	}
	delete(made, sumsFile) // of as many platforms
	var differ []error
	for _, name := range slices.Sorted(maps.Keys(made)) {
		first, err := os.ReadFile(filepath.Join(c.Out, name))
		if err != nil {
			return err
		}
		if !bytes.Equal(first, made[name]) {
			differ = append(differ, fmt.Errorf("%s: the second build has %d bytes with the SHA-256 %x, the first %d with %x",
				name, len(made[name]), sha256.Sum256(made[name]), len(first), sha256.Sum256(first)))
		}
	}
	return errors.Join(differ...)
}

func (c *Config) build(ctx context.Context) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "rocev2-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := clone(ctx, c.Repository, filepath.Join(dir, "src"), c.Changes, c.Log)
	if err != nil {
		return nil, err
	}
	if c.Cold {
		s.cache = filepath.Join(dir, "cache")
	}
	r := &result{files: map[string][]byte{}}
	for _, p := range c.Platforms {
		fmt.Fprintf(c.Log, "building %s\n", p)
		if err := r.add(ctx, s, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	r.files[sumsFile] = checksums(r.files)
	return r.files, nil
}

// add builds a platform.
func (r *result) add(ctx context.Context, s *source, p Platform) error {
	binaries, err := s.build(ctx, p)
	if err != nil {
		return err
	}
	version, err := versionOf(binaries[0])
	if err != nil {
		return err
	}
	if r.pages == nil {
		describe, err := s.describe(ctx, p, binaries)
		if err != nil {
			return err
		}
		if r.pages, r.completions, err = s.shared(version, describe); err != nil {
			return err
		}
	}
	sbom, err := billOfMaterials(binaries, s.date)
	if err != nil {
		return err
	}
	copyright, err := s.copyright(ctx, binaries)
	if err != nil {
		return err
	}
	folder := fmt.Sprintf("rocev2_%s_%s_%s", version, p.OS, p.Arch)
	r.files[folder+".cdx.json"] = sbom
	packers := []packer{func() (string, []byte, error) { return r.archive(s, p, folder, binaries, sbom, copyright) }}
	if p.OS == "linux" {
		list, err := s.installed(r, version, binaries, sbom, copyright)
		if err != nil {
			return err
		}
		for _, format := range []string{"deb", "rpm"} {
			packers = append(packers, func() (string, []byte, error) { return s.systemPackage(format, p, version, list) })
		}
	}
	return r.pack(packers)
}

// packer makes a file of the release.
type packer func() (name string, text []byte, err error)

// pack has packers make their files at the same time: each compresses all.
func (r *result) pack(packers []packer) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
	)
	for _, f := range packers {
		wg.Go(func() {
			name, text, err := f()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			r.files[name] = text
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// archive makes the archive of a platform: programs, pages, completions.
func (r *result) archive(s *source, p Platform, folder string, binaries []string, sbom, copyright []byte) (name string, text []byte, err error) {
	list := []file{{name: "rocev2.cdx.json", text: sbom, mode: 0o644}, {name: "copyright", text: copyright, mode: 0o644}}
	for _, from := range binaries {
		text, err := os.ReadFile(from)
		if err != nil {
			return "", nil, err
		}
		list = append(list, file{name: filepath.Base(from), text: text, mode: 0o755})
	}
	for _, name := range []string{"README.md", "docs/install.md", exampleFile, "packaging/rocev2d.service", "packaging/system/rocev2.sysusers"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return "", nil, err
		}
		list = append(list, file{name: filepath.Base(name), text: text, mode: 0o644})
	}
	for name, text := range r.pages {
		list = append(list, file{name: "man/man" + section(name) + "/" + name, text: text, mode: 0o644})
	}
	for program, shells := range r.completions {
		for shell, text := range shells {
			list = append(list, file{name: "completions/" + shell + "/" + program, text: text, mode: 0o644})
		}
	}
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.name, b.name) })
	if p.OS == "windows" {
		text, err = zipped(folder, list, s.date)
		return folder + ".zip", text, err
	}
	text, err = tarball(folder, list, s.date)
	return folder + ".tar.gz", text, err
}

const sumsFile = "SHA256SUMS"

// checksums is what sha256sum -c reads.
func checksums(files map[string][]byte) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return b.Bytes()
}
