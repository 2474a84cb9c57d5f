package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// entry is a file of an archive.
type entry struct {
	text []byte
	mode os.FileMode
}

// tool skips the test where a program is missing, by the name of its package.
func tool(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed (on Debian: apt-get install %s)", program, debian)
	}
}

// outputOf runs a program, and its children, and returns what it prints.
func outputOf(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second // children may have the output
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// archives returns the archives of a release by platform.
func archives(t *testing.T, release string) map[Platform]string {
	t.Helper()
	found := map[Platform]string{}
	name := regexp.MustCompile(`^rocev2_.*_([a-z0-9]+)_([a-z0-9]+)\.(tar\.gz|zip)$`)
	list, err := os.ReadDir(release)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if m := name.FindStringSubmatch(e.Name()); m != nil {
			found[Platform{m[1], m[2]}] = filepath.Join(release, e.Name())
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no archive", release)
	}
	return found
}

// unpacked returns the files of an archive, without its folder, which must have
// the name of the archive.
func unpacked(t *testing.T, archive string) map[string]entry {
	t.Helper()
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]entry{}
	folder, isZip := strings.CutSuffix(filepath.Base(archive), ".zip")
	folder = strings.TrimSuffix(folder, ".tar.gz")
	add := func(name string, mode os.FileMode, r io.Reader) {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %s: %v", archive, name, err)
		}
		inner, ok := strings.CutPrefix(name, folder+"/")
		if _, twice := files[inner]; !ok || twice || !filepath.IsLocal(inner) || strings.Contains(inner, `\`) {
			t.Errorf("%s has the file %q, outside its folder or twice", archive, name)
		}
		files[inner] = entry{text, mode}
	}
	if isZip {
		z, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatalf("%s: %v", archive, err)
			}
			add(f.Name, f.Mode(), r)
		}
		return files
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		if h.Typeflag != tar.TypeReg || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %s has the type %c and the owner %d:%d", archive, h.Name, h.Typeflag, h.Uid, h.Gid)
		}
		add(h.Name, os.FileMode(h.Mode), r)
	}
}

// An archive has all that docs/install.md names, and its programs are those of
// its system and processor, and need no library.
func hasArchives(t *testing.T, release string) {
	for p, archive := range archives(t, release) {
		files := unpacked(t, archive)
		for _, name := range []string{
			"README.md", "install.md", "copyright", "rocev2.cdx.json", "rocev2d.example.toml", "rocev2d.service", "rocev2.sysusers",
			"man/man1/rocev2.1", "man/man1/rocev2-run.1", "man/man5/rocev2d.toml.5", "man/man7/rocev2-install.7", "man/man8/rocev2d.8",
			"completions/bash/rocev2", "completions/fish/rocev2d", "completions/zsh/rocev2",
		} {
			if f := files[name]; len(f.text) < 100 || f.mode != 0o644 {
				t.Errorf("%s: %s has %d bytes and the mode %o", p, name, len(f.text), f.mode)
			}
		}
		for _, name := range commands {
			f := files[p.program(name)]
			if f.mode != 0o755 {
				t.Errorf("%s: the mode of %s is %o", p, name, f.mode)
			}
			isProgram(t, p, name, f.text)
		}
	}
}

// isProgram checks that a program is one of a platform.
func isProgram(t *testing.T, p Platform, name string, text []byte) {
	t.Helper()
	r := bytes.NewReader(text)
	info, err := buildinfo.Read(r)
	if err != nil {
		t.Errorf("%s: %s: %v", p, name, err)
		return
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	want := map[string]string{"GOOS": p.OS, "GOARCH": p.Arch, "CGO_ENABLED": "0", "-trimpath": "true"}
	for key, value := range want {
		if settings[key] != value {
			t.Errorf("%s: %s was built with %s=%s, want %s", p, name, key, settings[key], value)
		}
	}
	if len(settings["vcs.revision"]) != 40 || settings["vcs.time"] == "" {
		t.Errorf("%s: %s does not say its commit: %v", p, name, settings)
	}
	// Paths of the machine that built it make other bytes on another one.
	if bytes.Contains(text, []byte("/rocev2-release-")) {
		t.Errorf("%s: %s names the folder in which it was built", p, name)
	}
	machine, libraries, err := executable(p, r)
	if err != nil {
		t.Errorf("%s: %s: %v", p, name, err)
	}
	machines := map[string][]any{
		"amd64": {elf.EM_X86_64, macho.CpuAmd64, uint16(pe.IMAGE_FILE_MACHINE_AMD64)},
		"arm64": {elf.EM_AARCH64, macho.CpuArm64, uint16(pe.IMAGE_FILE_MACHINE_ARM64)},
	}
	if !slices.Contains(machines[p.Arch], machine) {
		t.Errorf("%s: %s is for the processor %v", p, name, machine)
	}
	if p.OS == "linux" && len(libraries) > 0 {
		t.Errorf("%s: %s needs the libraries %q", p, name, libraries)
	}
}

// executable reads an executable file as its system has them.
func executable(p Platform, r io.ReaderAt) (machine any, libraries []string, err error) {
	switch p.OS {
	case "windows":
		f, err := pe.NewFile(r)
		if err != nil {
			return nil, nil, err
		}
		libraries, err = f.ImportedLibraries()
		return f.Machine, libraries, err
	case "darwin":
		f, err := macho.NewFile(r)
		if err != nil {
			return nil, nil, err
		}
		libraries, err = f.ImportedLibraries()
		return f.Cpu, libraries, err
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, nil, err
	}
	libraries, err = f.ImportedLibraries()
	return f.Machine, libraries, err
}

// inside returns the shared libraries that a program carries.
func inside(program []byte) (libraries map[string]*elf.File) {
	libraries = map[string]*elf.File{}
	start := packed(nil)[:10]
	for rest := program; ; rest = rest[1:] {
		i := bytes.Index(rest, start)
		if i < 0 {
			return libraries
		}
		rest = rest[i:]
		z, err := gzip.NewReader(bytes.NewReader(rest))
		if err != nil {
			continue
		}
		z.Multistream(false)
		text, err := io.ReadAll(z)
		if err != nil {
			continue
		}
		if f, err := elf.NewFile(bytes.NewReader(text)); err == nil {
			name := "adapter"
			if soname, err := f.DynString(elf.DT_SONAME); err == nil && len(soname) > 0 {
				name = soname[0]
			}
			libraries[name] = f
		}
	}
}

var glibcVersion = regexp.MustCompile(`^GLIBC_2\.(\d+)`)

// The tools of Linux carry the preload library and the adapter for their own
// processor, and these need no newer glibc than the documents say.
func hasLibraries(t *testing.T, release string) {
	for p, archive := range archives(t, release) {
		libraries := inside(unpacked(t, archive)["rocev2"].text)
		if p.OS != "linux" {
			if len(libraries) > 0 {
				t.Errorf("%s: rocev2 carries %q", p, slices.Sorted(maps.Keys(libraries)))
			}
			continue
		}
		if len(libraries) == 0 {
			if _, missing := compilerFor(p.Arch); missing != "" {
				t.Logf("%s carries no libraries: %s", p, missing)
				continue
			}
		}
		if len(libraries) != 2 || libraries["librocev2-preload.so"] == nil {
			t.Errorf("%s: rocev2 carries %q, want the preload library and the adapter", p, slices.Sorted(maps.Keys(libraries)))
		}
		for name, f := range libraries {
			if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[p.Arch]; f.Machine != want {
				t.Errorf("%s: %s is for %v", p, name, f.Machine)
			}
			newest := "2.34" // docs/install.md
			symbols, err := f.ImportedSymbols()
			if err != nil {
				t.Errorf("%s: %s: %v", p, name, err)
			}
			for _, s := range symbols {
				if m := glibcVersion.FindStringSubmatch(s.Version); m != nil && len(m[1]) == 2 && "2."+m[1] > newest {
					t.Errorf("%s: %s needs %s of %s", p, name, s.Name, s.Version)
				}
			}
		}
	}
}
