package release

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // the format
)

const (
	homepage    = "https://github.com/gosoftroce/rocev2"
	maintainer  = "The rocev2 authors <rocev2@users.noreply.github.com>"
	description = `RDMA over UDP (RoCEv2) in ordinary processes
 A complete RoCEv2 stack in userspace: the tool rocev2, and the daemon rocev2d,
 whose devices unmodified verbs programs of this host use without RDMA hardware
 and without a kernel module.`
)

// packageVersion is the version of a module as packagers sort it: a commit
// before v1.2.3 comes before 1.2.3, which a tilde says.
func packageVersion(module string) string {
	base, meta, _ := strings.Cut(module, "+")
	base, before, pre := strings.Cut(base, "-")
	if pre {
		base += "~" + strings.ReplaceAll(before, "-", ".")
	}
	if meta != "" {
		base += "+" + strings.ReplaceAll(meta, "-", ".")
	}
	return base
}

// installed lists the files of a package.
func (s *source) installed(r *result, version string, binaries []string, sbom, copyright []byte) ([]file, error) {
	var list []file
	for _, from := range binaries {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: "/usr/bin/" + filepath.Base(from), text: text, mode: 0o755})
	}
	for _, name := range slices.Sorted(maps.Keys(r.pages)) {
		list = append(list, file{name: "/usr/share/man/man" + section(name) + "/" + name + ".gz", text: packed(r.pages[name]), mode: 0o644})
	}
	for _, program := range commands {
		for _, shell := range slices.Sorted(maps.Keys(r.completions[program])) {
			deb, rpm := completionFile(shell, program)
			text := r.completions[program][shell]
			if deb == rpm {
				list = append(list, file{name: deb, text: text, mode: 0o644})
				continue
			}
			list = append(list, file{name: deb, text: text, mode: 0o644, only: "deb"}, file{name: rpm, text: text, mode: 0o644, only: "rpm"})
		}
	}
	for _, f := range []struct {
		from, to string
		config   bool
	}{
		{"packaging/rocev2d.service", "/usr/lib/systemd/system/rocev2d.service", false},
		{"packaging/system/rocev2.sysusers", "/usr/lib/sysusers.d/rocev2.conf", false},
		{"packaging/system/rocev2d.toml", "/etc/rocev2d.toml", true},
		{exampleFile, "/usr/share/doc/rocev2/examples/rocev2d.example.toml", false},
		{"packaging/grafana/rocev2d.json", "/usr/share/doc/rocev2/examples/grafana/rocev2d.json", false},
		{"packaging/prometheus/rocev2d.rules.yml", "/usr/share/doc/rocev2/examples/prometheus/rocev2d.rules.yml", false},
		{"packaging/prometheus/rocev2d.rules_test.yml", "/usr/share/doc/rocev2/examples/prometheus/rocev2d.rules_test.yml", false},
		{"packaging/wireshark/rocev2.lua", "/usr/share/doc/rocev2/examples/wireshark/rocev2.lua", false},
		{"README.md", "/usr/share/doc/rocev2/README.md", false},
		{"docs/install.md", "/usr/share/doc/rocev2/install.md", false},
		{"docs/operations.md", "/usr/share/doc/rocev2/operations.md", false},
		{"docs/programs.md", "/usr/share/doc/rocev2/programs.md", false},
	} {
		text, err := os.ReadFile(filepath.Join(s.dir, f.from))
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: f.to, text: text, mode: 0o644, config: f.config})
	}
	return append(list,
		file{name: "/usr/share/doc/rocev2/rocev2.cdx.json", text: sbom, mode: 0o644},
		file{name: "/usr/share/doc/rocev2/copyright", text: copyright, mode: 0o644},
		file{name: "/usr/share/doc/rocev2/changelog.Debian.gz", text: packed(s.changelog(version)), mode: 0o644, only: "deb"}), nil
}

// changelog is what Debian's packages have: what this version is made of.
func (s *source) changelog(version string) []byte {
	return fmt.Appendf(nil, "rocev2 (%s-1) unstable; urgency=medium\n\n  * Version %s.\n\n -- %s  %s\n",
		packageVersion(version), version, maintainer, s.date.Format(time.RFC1123Z))
}

// systemPackage makes a .deb or .rpm.
func (s *source) systemPackage(format string, p Platform, version string, list []file) (name string, text []byte, err error) {
	stage, err := os.MkdirTemp(filepath.Dir(s.dir), "stage-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(stage)
	info := &nfpm.Info{
		Name: "rocev2", Arch: p.Arch, Platform: p.OS, Version: packageVersion(version), VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: maintainer, Description: description, Homepage: homepage, Vendor: "rocev2",
		MTime: s.date, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Recommends: []string{"systemd"}, Suggests: []string{"ibverbs-utils", "perftest"},
			RPM: nfpm.RPM{BuildHost: "localhost", Summary: "RDMA over UDP (RoCEv2) in ordinary processes", Compression: "gzip"},
			Deb: nfpm.Deb{Compression: "gzip"},
		},
	}
	if format == "rpm" {
		info.Suggests = []string{"libibverbs-utils", "perftest"}
		info.License = license // Debian has it in the file copyright
	}
	scripts := map[string]*string{
		"postinstall": &info.Scripts.PostInstall, "preremove": &info.Scripts.PreRemove, "postremove": &info.Scripts.PostRemove,
	}
	for name, to := range scripts {
		*to = filepath.Join(s.dir, "packaging", format, name)
	}
	for i, f := range list {
		if f.only != "" && f.only != format {
			continue
		}
		from := filepath.Join(stage, fmt.Sprint(i))
		if err := os.WriteFile(from, f.text, 0o644); err != nil {
			return "", nil, err
		}
		info.Contents = append(info.Contents, content(f, from, s.date))
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", nil, err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		return "", nil, fmt.Errorf("%s: %w", format, err)
	}
	return packager.ConventionalFileName(info), b.Bytes(), nil
}

func content(f file, from string, date time.Time) *files.Content {
	c := &files.Content{
		Source: from, Destination: f.name,
		FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: date, Owner: "root", Group: "root"},
	}
	if f.config {
		c.Type = files.TypeConfigNoReplace
	}
	return c
}
