package release

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Packagers sort a commit before a tag before the tag.
func TestPackageVersion(t *testing.T) {
	t.Parallel()
	for module, want := range map[string]string{
		"1.2.3":                             "1.2.3",
		"1.2.3-rc.1":                        "1.2.3~rc.1",
		"0.0.0-20260102030405-0123456789ab": "0.0.0~20260102030405.0123456789ab",
		"1.2.4-0.20260102030405-0123456789ab+dirty": "1.2.4~0.20260102030405.0123456789ab+dirty",
	} {
		if got := packageVersion(module); got != want {
			t.Errorf("the version %s is %s of a package, want %s", module, got, want)
		}
	}
}

// A bill of materials is made of what Go has written into a program: here of
// this test, where it is Go's version alone. TestRelease looks for modules.
func TestBillOfMaterials(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := billOfMaterials([]string{self}, time.Unix(1<<30, 0))
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range b.Components {
		found[c.Name] = c.Version != "" && c.PURL == "pkg:golang/"+c.Name+"@"+c.Version
	}
	if b.Format != "CycloneDX" || b.Metadata.Timestamp != "2004-01-10T13:37:04Z" || !found["std"] {
		t.Errorf("the bill of materials is\n%s", text)
	}
}

// Pages name no file that is not beside them.
func TestReferences(t *testing.T) {
	t.Parallel()
	files := []string{"/x/docs/conformance.md", "/x/docs/verbs.md", "/x/docs/inspect.md"}
	for text, want := range map[string]string{
		"docs/inspect.md explains":     "rocev2-inspect(7) explains",
		"rules (docs/conformance.md).": "rules (rocev2-conformance(7)).",
		"see verbs.md":                 "see https://github.com/gosoftroce/rocev2/blob/main/docs/verbs.md",
		"report.md and README.md":      "report.md and README.md",
		"x/verbs.md y-verbs.md":        "x/verbs.md y-verbs.md",
		"inspect.md, conformance.md":   "rocev2-inspect(7), rocev2-conformance(7)",
	} {
		if got := string(refer([]byte(text), files)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// The same files have the same bytes, whenever they are packed.
func TestTarball(t *testing.T) {
	t.Parallel()
	list := []file{{name: "a", text: []byte("one"), mode: 0o755}, {name: "b/c", text: []byte("two"), mode: 0o644}}
	first, err := tarball("x", list, time.Unix(1<<30, 0))
	if err != nil {
		t.Fatal(err)
	}
	second, err := tarball("x", list, time.Unix(1<<30, 0))
	if err != nil || string(first) != string(second) {
		t.Errorf("two archives of the same files differ: %v", err)
	}
}

// Packages say what the repository says: while it has no license, that it has
// none. A license that is added is not overlooked.
func TestOwnLicense(t *testing.T) {
	t.Parallel()
	s := &source{dir: t.TempDir()}
	text, err := s.ownLicense()
	if license == "NONE" && (err != nil || !strings.Contains(string(text), "states no license")) {
		t.Errorf("without the file LICENSE: %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "LICENSE"), []byte("free"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ownLicense(); license == "NONE" && err == nil {
		t.Error("a repository with a license makes packages that say that it has none")
	}
}

// A folder that cannot be made is told before anything is built.
func TestNoFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	_, err := Build(t.Context(), Config{Repository: t.TempDir(), Out: filepath.Join(file, "dist"), Platforms: Usual, Log: &log})
	if err == nil || !strings.Contains(err.Error(), "not a directory") || log.Len() > 0 {
		t.Errorf("%v: %s", err, log.String())
	}
}

// What a user has set for Go, in the environment or with "go env -w", does not
// change what is built; where modules come from stays.
func TestSettingsOfTheUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("GOFLAGS=-tags=other\nGOAMD64=v3\nGOPROXY=https://proxy.example\nGOTOOLCHAIN=local\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", file)
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOAMD64", "")
	t.Setenv("GOPROXY", "")
	t.Setenv("GOARCH", "riscv64")
	s := &source{dir: t.TempDir()}
	for name, want := range map[string]string{"GOFLAGS": "", "GOAMD64": "v1", "GOPROXY": "https://proxy.example", "GOARCH": runtime.GOARCH} {
		got, err := s.run(t.Context(), []string{"GOARM64="}, "go", "env", name)
		if name == "GOAMD64" && runtime.GOARCH != "amd64" {
			continue
		}
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s=%q (%v), want %q", name, strings.TrimSpace(string(got)), err, want)
		}
	}
}

// A folder has the files of one release; others in it stay.
func TestRemoveOld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inner := filepath.Join(dir, "dist")
	for name, text := range map[string]string{
		"outside": "", "dist/mine": "", "dist/rocev2_1_linux_amd64.tar.gz": "",
		"dist/SHA256SUMS": "00  rocev2_1_linux_amd64.tar.gz\n00  ../outside\n00  gone\n\n",
	} {
		if err := os.MkdirAll(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOld(inner); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"outside": true, "dist/mine": true, "dist/rocev2_1_linux_amd64.tar.gz": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
}
