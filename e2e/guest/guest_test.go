//go:build linux

package guest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCPIO(t *testing.T) {
	t.Parallel()
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio to read the archive with (on Debian: apt-get install cpio)")
	}
	tr := tree{}
	tr.file("/a/b/file", []byte("hello"), 0o755)
	tr.file("/empty", nil, 0o644)
	tr.link("/a/link", "b/file")
	tr.dir("/proc")
	var b bytes.Buffer
	if err := tr.writeCPIO(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(cpio, "--extract", "--quiet", "--preserve-modification-time", "--no-absolute-filenames", "-H", "newc")
	cmd.Dir, cmd.Stdin = dir, &b
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(dir, "a/link"))
	if err != nil || string(got) != "hello" {
		t.Errorf("through the link: %q, %v", got, err)
	}
	for name, mode := range map[string]os.FileMode{"a": os.ModeDir | 0o755, "a/b/file": 0o755, "empty": 0o644, "proc": os.ModeDir | 0o755} {
		if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, i, err, mode)
		}
	}
}

func TestParseKernels(t *testing.T) {
	t.Parallel()
	const records = `Package: linux-image-amd64
Version: 6.12.95-1~bpo12+1
Depends: linux-image-6.12.95+deb12-amd64 (= 6.12.95-1~bpo12+1)

Package: linux-image-amd64
Version: 6.1.192-2
Depends: linux-image-6.1.0-56-amd64 (= 6.1.192-2)

Package: linux-image-amd64
Version: 6.1.176-1
Depends: linux-image-6.1.0-50-amd64 (= 6.1.176-1)
`
	got, err := parseKernels(records, Lines)
	want := []kernelPackage{
		{"6.1", "linux-image-6.1.0-56-amd64", "6.1.192-2"},
		{"6.12", "linux-image-6.12.95+deb12-amd64", "6.12.95-1~bpo12+1"},
	}
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("kernels = %v, %v; want %v", got, err, want)
	}
	var u *Unavailable
	if _, err := parseKernels(records, []string{"6.1", "7.0"}); !errors.As(err, &u) {
		t.Errorf("a line that the archive lacks: %v", err)
	}
}

func TestResolveStaysBelowRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, target := range map[string]string{"abs": "/lib/file", "rel": "lib/file", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"abs", "rel"} {
		if got, err := resolve(filepath.Join(root, name), root); err != nil || got != filepath.Join(root, "lib/file") {
			t.Errorf("%s leads to %s, %v", name, got, err)
		}
	}
	if got, err := resolve(filepath.Join(root, "loop"), root); err == nil {
		t.Errorf("a loop leads to %s", got)
	}
}

func TestManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kernel")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m := &manifest{Recipe: recipe, Images: []Image{{Line: "6.1", Kernel: file, Initramfs: file}}}
	if err := m.write(dir); err != nil {
		t.Fatal(err)
	}
	if got, ok := readManifest(dir); !ok || got.Images[0] != m.Images[0] {
		t.Errorf("read back %+v, %v", got, ok)
	}
	m.Recipe--
	if err := m.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := readManifest(dir); ok {
		t.Error("the manifest of an older recipe was used")
	}
	m.Recipe++
	m.Images[0].Initramfs = filepath.Join(dir, "gone")
	if err := m.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := readManifest(dir); ok {
		t.Error("a manifest whose files are gone was used")
	}
}

func TestSerialLog(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"noise\r\nROCEV2-GUEST-READY\r\n":                "",
		"ROCEV2-GUEST-FAILED rdma link add: no such\r\n": "rdma link add: no such",
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := &serialLog{file: f, ready: make(chan struct{})}
		for i := range len(text) { // as it may come
			if _, err := s.Write([]byte{text[i]}); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-s.ready:
		default:
			t.Errorf("%q was not noticed", text)
		}
		if err := s.failure(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q is failure %v", text, err)
		}
	}
}

func TestLocalProcess(t *testing.T) {
	t.Parallel()
	start := func(ctx context.Context, argv ...string) *Process {
		t.Helper()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.WaitDelay = time.Second
		p, err := startLocal(ctx, cmd, argv)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	r, err := start(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 3").Wait()
	if err != nil || r.Code != 3 || r.Stdout != "out\n" || r.Stderr != "err\n" || r.Err() == nil {
		t.Errorf("exit 3: %+v, %v", r, err)
	}
	r, err = start(t.Context(), "sh", "-c", "kill -9 $$").Wait()
	if err != nil || r.Code != 137 {
		t.Errorf("killed by itself: %+v, %v", r, err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := start(ctx, "sleep", "100")
	cancel(cause)
	if r, err = p.Wait(); !errors.Is(err, cause) || r.Code != 137 {
		t.Errorf("canceled: %+v, %v", r, err)
	}
}

func TestParseLosses(t *testing.T) {
	t.Parallel()
	sent, received, err := parseLosses(`[{"kind":"netem","handle":"8001:","dev":"eth0","root":true,"packets":980,"drops":20},
		{"kind":"ingress","dev":"eth0","packets":500,"drops":0},{"kind":"netem","dev":"ifb0","packets":49,"drops":1}]`)
	if err != nil || sent != (Loss{980, 20}) || received != (Loss{49, 1}) {
		t.Errorf("sent %+v, received %+v, %v", sent, received, err)
	}
}

func TestSystemMirror(t *testing.T) {
	t.Parallel()
	for targets, want := range map[string]string{
		"Debian http://mirror.example/debian-security/\nDebian http://mirror.example/debian/\n": "http://mirror.example/debian",
		"Ubuntu http://mirror.example/ubuntu/\n":                                                "",
		"":                                                                                      "",
	} {
		if got := systemMirror(targets); got != want {
			t.Errorf("from %q: %q, want %q", targets, got, want)
		}
	}
}
