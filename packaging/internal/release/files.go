package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/packaging/internal/manual"
)

// file is a file of an archive or of a package.
type file struct {
	name   string // in an archive below its folder; in a package from the root
	text   []byte
	mode   os.FileMode
	config bool // of the administrator, in a package
	only   string
}

// shared makes what is the same on all platforms.
func (s *source) shared(version string, describe map[string][]byte) (pages map[string][]byte, completions map[string]map[string][]byte, err error) {
	h := manual.Header{Version: version, Date: s.date}
	pages = map[string][]byte{}
	completions = map[string]map[string][]byte{}
	for name, section := range map[string]string{"rocev2": "1", "rocev2d": "8"} {
		c, err := manual.Command(describe[name])
		if err != nil {
			return nil, nil, err
		}
		made, err := manual.Pages(c, section, h)
		if err != nil {
			return nil, nil, err
		}
		for name, text := range made {
			pages[name] = text
		}
		if completions[name], err = manual.Completions(name); err != nil {
			return nil, nil, err
		}
	}
	for _, d := range documents {
		text, err := os.ReadFile(filepath.Join(s.dir, d.file))
		if err != nil {
			return nil, nil, err
		}
		pages[d.name+".7"] = manual.Document(text, d.name, "7", d.short, d.cut, h)
	}
	example, err := os.ReadFile(filepath.Join(s.dir, exampleFile))
	if err != nil {
		return nil, nil, err
	}
	pages["rocev2d.toml.5"] = manual.Configuration(example, "rocev2d.toml", "5", "configuration of rocev2d", h)
	texts, err := filepath.Glob(filepath.Join(s.dir, "docs", "*.md"))
	if err != nil {
		return nil, nil, err
	}
	for name, text := range pages {
		pages[name] = refer(text, texts)
	}
	return pages, completions, nil
}

// refer names documents of the repository, whose files are given, as a reader
// of manual pages finds them: by their page, or else by their address.
func refer(page []byte, files []string) []byte {
	pages := map[string]string{}
	for _, d := range documents {
		pages[d.file] = d.name + "(7)"
	}
	var names []string
	for _, f := range files {
		names = append(names, regexp.QuoteMeta(strings.TrimSuffix(filepath.Base(f), ".md")))
	}
	if names == nil {
		return page
	}
	document := regexp.MustCompile(`(^|[^/\w.-])(?:docs/)?(` + strings.Join(names, "|") + `)\.md\b`)
	return document.ReplaceAllFunc(page, func(found []byte) []byte {
		m := document.FindSubmatch(found)
		file := "docs/" + string(m[2]) + ".md"
		return append(m[1], cmp.Or(pages[file], homepage+"/blob/main/"+file)...)
	})
}

const exampleFile = "cmd/rocev2d/rocev2d.example.toml"

// documents are the documents that are manual pages, too.
var documents = []struct{ file, name, short, cut string }{
	{"docs/install.md", "rocev2-install", "install, upgrade and remove rocev2", ""},
	{"docs/operations.md", "rocev2-operations", "the daemon rocev2d, and what to do when it does not work", ""},
	{"docs/programs.md", "rocev2-programs", "unmodified verbs programs on devices of rocev2", "<!-- cells: begin -->"},
	{"docs/inspect.md", "rocev2-inspect", "captures, traces, faults and counters", ""},
	{"docs/conformance.md", "rocev2-conformance", "a conformance test for RoCEv2 adapters", ""},
}

// tarball packs files below a folder, with one time for all.
func tarball(folder string, files []file, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: path.Join(folder, f.name), Mode: int64(f.mode), Size: int64(len(f.text)), ModTime: date, Format: tar.FormatPAX, Uname: "root", Gname: "root"}
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := t.Write(f.text); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// zipped is tarball for Windows.
func zipped(folder string, files []file, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(folder, f.name), Method: zip.Deflate, Modified: date}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(f.text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// completionFile is the name of a shell's script for a program in a package.
// Debian and Fedora have different folders for zsh.
func completionFile(shell, program string) (deb, rpm string) {
	switch shell {
	case "bash":
		name := "/usr/share/bash-completion/completions/" + program
		return name, name
	case "fish":
		name := "/usr/share/fish/vendor_completions.d/" + program + ".fish"
		return name, name
	}
	return "/usr/share/zsh/vendor-completions/_" + program, "/usr/share/zsh/site-functions/_" + program
}

func section(page string) string { return page[strings.LastIndexByte(page, '.')+1:] }
