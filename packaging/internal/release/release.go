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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	made, err := c.build(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
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

// Check builds a release again, in another folder, and compares it with the one
// that Build has made. The error names the files that differ.
func Check(ctx context.Context, c Config) error {
	made, err := c.build(ctx)
	if err != nil {
		return err
	}
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
	describe := map[string][]byte{}
	for _, name := range commands {
		if describe[name], err = s.describe(ctx, name); err != nil {
			return nil, err
		}
	}
	r := &result{files: map[string][]byte{}}
	for _, p := range c.Platforms {
		fmt.Fprintf(c.Log, "building %s\n", p)
		if err := r.add(ctx, s, p, describe); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	r.files["SHA256SUMS"] = checksums(r.files)
	return r.files, nil
}

// add builds a platform.
func (r *result) add(ctx context.Context, s *source, p Platform, describe map[string][]byte) error {
	binaries, err := s.build(ctx, p)
	if err != nil {
		return err
	}
	version, err := versionOf(binaries[0])
	if err != nil {
		return err
	}
	if r.pages == nil {
		if r.pages, r.completions, err = s.shared(version, describe); err != nil {
			return err
		}
	}
	sbom, err := billOfMaterials(binaries, s.date)
	if err != nil {
		return err
	}
	folder := fmt.Sprintf("rocev2_%s_%s_%s", version, p.OS, p.Arch)
	r.files[folder+".cdx.json"] = sbom
	if err := r.archive(s, p, folder, binaries, sbom); err != nil || p.OS != "linux" {
		return err
	}
	list, err := s.installed(r, binaries, sbom)
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		name, text, err := s.systemPackage(format, p, version, list)
		if err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		r.files[name] = text
	}
	return nil
}

// archive makes the archive of a platform: programs, pages, completions.
func (r *result) archive(s *source, p Platform, folder string, binaries []string, sbom []byte) error {
	list := []file{{name: "rocev2.cdx.json", text: sbom, mode: 0o644}}
	for _, from := range binaries {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		list = append(list, file{name: filepath.Base(from), text: text, mode: 0o755})
	}
	for _, name := range []string{"README.md", "docs/install.md", exampleFile, "packaging/rocev2d.service", "packaging/system/rocev2.sysusers"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return err
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
		text, err := zipped(folder, list, s.date)
		r.files[folder+".zip"] = text
		return err
	}
	text, err := tarball(folder, list, s.date)
	r.files[folder+".tar.gz"] = text
	return err
}

// checksums is what sha256sum -c reads.
func checksums(files map[string][]byte) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return b.Bytes()
}
