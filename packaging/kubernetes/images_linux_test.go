package kubernetes

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// image is what a Containerfile would make, without an engine of containers.
type image struct {
	name   string
	config map[string]any
	layer  string // file
}

// run runs a command of the test, and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out[max(0, len(out)-4000):])
	}
	return string(out)
}

// static is an image of nothing but programs, which it runs as the user.
func static(t *testing.T, dir, name, user string, module string, packages ...string) image {
	t.Helper()
	root := filepath.Join(dir, name)
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"build", "-C", module, "-o", root + "/"}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return image{name, map[string]any{"Entrypoint": []string{"/" + filepath.Base(packages[0])}, "User": user}, layer(t, dir, name, root)}
}

// layer packs a folder into a file.
func layer(t *testing.T, dir, name, root string) string {
	t.Helper()
	file := filepath.Join(dir, name+".layer")
	run(t, "tar", "-C", root, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "--exclude=./var/cache", "--exclude=./usr/share/doc", "--exclude=./usr/share/man", "--exclude=./usr/share/locale", "-cf", file, ".")
	return file
}

var (
	debianLine  = regexp.MustCompile(`FROM docker.io/library/debian:(\w+)-slim`)
	installLine = regexp.MustCompile(`--no-install-recommends \\\n((?:.*\\\n)*?) && rm`)
	runLine     = regexp.MustCompile(`(?m)^RUN ((?:.*\\\n)*.*)$`)
)

// examples is the image of examples/Containerfile: a Debian with its packages,
// fetched once and then kept in the user's cache, in which the rest of its
// commands have run.
func examples(t *testing.T, dir string) image {
	t.Helper()
	text := string(read(t, "examples/Containerfile"))
	suite, list := debianLine.FindStringSubmatch(text), installLine.FindStringSubmatch(text)
	if suite == nil || list == nil {
		t.Fatal("examples/Containerfile installs no packages of a Debian")
	}
	packages := strings.Fields(strings.ReplaceAll(list[1], `\`, " "))
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	root := filepath.Join(cache, "rocev2-packaging", "examples-"+hex.EncodeToString(sum[:4]))
	if _, err := os.Stat(root); err != nil {
		fresh := root + ".new"
		os.RemoveAll(fresh)
		if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), suite[1], fresh).CombinedOutput()
		if err != nil {
			t.Skipf("debootstrap gets no Debian (it needs a mirror of it: the network, or http_proxy): %v\n%s", err, out[max(0, len(out)-2000):])
		}
		for _, m := range runLine.FindAllStringSubmatch(text, -1)[1:] {
			run(t, "chroot", fresh, "/bin/sh", "-exc", strings.ReplaceAll(m[1], "\\\n", ""))
		}
		if err := os.Rename(fresh, root); err != nil {
			t.Fatal(err)
		}
	}
	config := map[string]any{"User": "1000:1000", "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	return image{"rocev2-examples", config, layer(t, dir, "rocev2-examples", root)}
}

// archive writes the image as "docker save" does.
func (i *image) archive(t *testing.T, file string) {
	t.Helper()
	blob, err := os.Open(i.layer)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, blob)
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": i.config, "history": []any{map[string]any{}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum.Sum(nil))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`[{"Config":"config.json","RepoTags":["docker.io/library/%s:latest"],"Layers":["layer.tar"]}]`, i.name)
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := tar.NewWriter(out)
	add := func(name string, size int64, r io.Reader) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := blob.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	add("layer.tar", size, blob)
	add("config.json", int64(len(config)), strings.NewReader(string(config)))
	add("manifest.json", int64(len(manifest)), strings.NewReader(manifest))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
