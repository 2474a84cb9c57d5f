package release

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packagesOf returns the packages of a format, one for each processor of Linux.
func packagesOf(t *testing.T, release, format string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(release, "*."+format))
	linux := 0
	for p := range archives(t, release) {
		if p.OS == "linux" {
			linux++
		}
	}
	if err != nil || len(list) != linux || linux == 0 {
		t.Fatalf("there are %d packages %s: %q, %v", len(list), format, list, err)
	}
	return list
}

// archOf is the processor that the name of a package says.
func archOf(name string) string {
	if strings.Contains(name, "arm64") || strings.Contains(name, "aarch64") {
		return "arm64"
	}
	return "amd64"
}

// readsDEB has dpkg and lintian read the packages of Debian.
func readsDEB(t *testing.T, release string) {
	tool(t, "dpkg-deb", "dpkg")
	for _, name := range packagesOf(t, release, "deb") {
		arch := archOf(name)
		if got := strings.TrimSpace(outputOf(t, "", "dpkg-deb", "-f", name, "Package", "Architecture")); got != "Package: rocev2\nArchitecture: "+arch {
			t.Errorf("%s says %q", name, got)
		}
		archive := unpacked(t, archives(t, release)[Platform{"linux", arch}])
		cmd := exec.CommandContext(t.Context(), "dpkg-deb", "--fsys-tarfile", name)
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for r := tar.NewReader(bytes.NewReader(text)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uname != "root" || h.Gname != "root" || h.Mode&0o022 != 0 {
				t.Errorf("%s has %s of %s:%s with the mode %o", name, h.Name, h.Uname, h.Gname, h.Mode)
			}
			if in, ok := archive[strings.TrimPrefix(h.Name, "./usr/bin/")]; ok {
				found++
				if text, err := io.ReadAll(r); err != nil || !bytes.Equal(text, in.text) {
					t.Errorf("%s has another %s than the archive: %v", name, h.Name, err)
				}
			}
		}
		if found != len(commands) {
			t.Errorf("%s has %d programs", name, found)
		}
	}
	t.Run("lintian", func(t *testing.T) {
		tool(t, "lintian", "lintian")
		// Go's programs are static; licenses of modules are in full.
		tags := "statically-linked-binary,copyright-file-contains-full-apache-2-license,copyright-not-using-common-license-for-apache2,initial-upload-closes-no-bugs"
		for _, name := range packagesOf(t, release, "deb") {
			cmd := exec.CommandContext(t.Context(), "lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", tags, name)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("lintian %s: %v\n%s", filepath.Base(name), err, out)
			}
		}
	})
}

// readsRPM has rpm read the packages of Fedora.
func readsRPM(t *testing.T, release string) {
	tool(t, "rpm", "rpm")
	for _, name := range packagesOf(t, release, "rpm") {
		query := func(args ...string) string {
			return outputOf(t, "", "rpm", append(append([]string{"-qp", "--nosignature"}, args...), name)...)
		}
		out := query("--queryformat", `[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME} %{FILEFLAGS:fflags}\n]`)
		for _, want := range []string{
			"/usr/bin/rocev2d -rwxr-xr-x root", "/etc/rocev2d.toml -rw-r--r-- root cn", "/usr/share/doc/rocev2/copyright",
			"/usr/lib/systemd/system/rocev2d.service", "/usr/lib/sysusers.d/rocev2.conf", "/usr/share/zsh/site-functions/_rocev2", "/usr/share/man/man8/rocev2d.8.gz",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s has no %q:\n%s", filepath.Base(name), want, out)
			}
		}
		arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[archOf(name)]
		if got, want := query("--queryformat", "%{NAME} %{ARCH} %{OS} %{LICENSE} %{RELEASE}"), "rocev2 "+arch+" linux "+license+" 1"; got != want {
			t.Errorf("%s says %q, want %q", filepath.Base(name), got, want)
		}
		if out := query("--scripts"); !strings.Contains(out, "preset rocev2d.service") {
			t.Errorf("scripts of %s:\n%s", filepath.Base(name), out)
		}
		if out := outputOf(t, "", "rpm", "--checksig", name); !strings.Contains(out, "digests OK") {
			t.Errorf("rpm --checksig: %s", out)
		}
	}
	t.Run("install", func(t *testing.T) {
		for _, name := range packagesOf(t, release, "rpm") {
			installsRPM(t, name, unpacked(t, archives(t, release)[Platform{"linux", archOf(name)}]))
		}
	})
}

// installsRPM has rpm install, verify and erase a package in an empty root, in
// which no script can run.
func installsRPM(t *testing.T, name string, archive map[string]entry) {
	root := t.TempDir()
	rpm := func(args ...string) string {
		return outputOf(t, "", "rpm", append([]string{"--root", root, "--nodeps", "--noscripts"}, args...)...)
	}
	rpm("--install", "--ignorearch", name)
	for _, program := range commands {
		if text, err := os.ReadFile(filepath.Join(root, "usr/bin", program)); err != nil || !bytes.Equal(text, archive[program].text) {
			t.Errorf("%s has another %s than the archive: %v", filepath.Base(name), program, err)
		}
	}
	rpm("--verify", "rocev2")
	rpm("--erase", "rocev2")
	if left, err := filepath.Glob(filepath.Join(root, "usr/*/*rocev2*")); err != nil || len(left) > 0 {
		t.Errorf("rpm --erase leaves %q, %v", left, err)
	}
}
