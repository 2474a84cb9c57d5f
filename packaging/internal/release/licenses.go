package release

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// license is the SPDX identifier of the license of this repository, and "NONE"
// while it states none.
const license = "NONE"

const noLicense = `The repository of rocev2 states no license for its own code. Ask its authors
before you copy, change or distribute it: ` + homepage + `
`

// ownLicense is what the repository says about its own code.
func (s *source) ownLicense() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "LICENSE"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && license == "NONE":
		return []byte(noLicense), nil
	case err == nil && license == "NONE":
		return nil, errors.New("the repository has a LICENSE, and the packages say that it has none: " +
			"write its SPDX identifier into packaging/internal/release/licenses.go")
	}
	return text, err
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|copyright|notice|patents)`)

// copyright is the file of that name: what the repository says about its own
// code, and the licenses of Go and of all modules that are in the programs.
// Most of them must be with the programs.
func (s *source) copyright(ctx context.Context, binaries []string) ([]byte, error) {
	own, err := s.ownLicense()
	if err != nil {
		return nil, err
	}
	folders, err := s.moduleFolders(ctx, binaries)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(own)
	b.WriteString("\nThe programs have parts of Go and of these modules, with these licenses:\n")
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(folders[name])
		if err != nil {
			return nil, err
		}
		found := false
		for _, e := range entries {
			if !licenseFile.MatchString(e.Name()) || e.IsDir() {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folders[name], e.Name()))
			if err != nil {
				return nil, err
			}
			found = true
			fmt.Fprintf(&b, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("-", 78), name, e.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return nil, fmt.Errorf("the module %s has no license", name)
		}
	}
	return b.Bytes(), nil
}

// moduleFolders returns the folders of Go and of the modules of programs, by
// name and version.
func (s *source) moduleFolders(ctx context.Context, binaries []string) (map[string]string, error) {
	folders := map[string]string{}
	for _, file := range binaries {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			folders[m.Path] = ""
		}
	}
	args := append([]string{"list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}"}, slices.Sorted(maps.Keys(folders))...)
	out, err := s.run(ctx, nil, "go", args...)
	if err != nil {
		return nil, err
	}
	clear(folders)
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 {
			folders[f[0]+" "+f[1]] = f[2]
		}
	}
	root, err := s.run(ctx, nil, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(root)), "\n")
	folders["Go "+strings.TrimPrefix(version, "go")] = dir
	return folders, nil
}
