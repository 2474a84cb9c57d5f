//go:build linux

package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/programs"
)

// library builds the preload library, and the adapter beside it.
func library(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	if err := programs.BuildBoth(t.Context(), dir); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{programs.LibraryName, programs.AdapterName} {
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, programs.LibraryName)
}

// Within the namespaces of a container: /etc with the library in ld.so.preload,
// and a /run of its own. LD_PRELOAD is taken away from the program, so that it
// finds the device as one does that comes later (podman exec).
const containerScript = `set -e
mount --bind "$1" /etc
mount -t tmpfs tmpfs /run
mkdir -m 1777 /run/rocev2
export ROCEV2_PROGRAMS=/run/rocev2 HOME=/tmp LC_ALL=C TMPDIR=/run/rocev2
bin=$2 addr=$3
shift 3
exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --no-new-privs "$bin" run --device "$addr" -- env -u LD_PRELOAD "$@"`

// containerSite is what packaging/programs/Containerfile makes, without an
// engine of containers: namespaces of mounts and processes, and the files.
func containerSite(t *testing.T, n guest.Node, bin, lib, addr string) *site {
	t.Helper()
	etc := filepath.Join(openDir(t), "etc")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", "/etc", etc).CombinedOutput(); err != nil {
		t.Fatalf("copy /etc: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(etc, "ld.so.preload"), []byte(lib+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &site{node: n, addr: addr, wrap: []string{
		"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", containerScript, "sh", etc, bin, addr,
	}}
	if err := s.learn(t.Context()); err != nil {
		t.Fatalf("the device on %s: %v", addr, err)
	}
	return s
}

// startAlone makes a namespace of networks for a test.
func startAlone(t *testing.T) *guest.Alone {
	t.Helper()
	ns, err := guest.NewAlone(t.Context())
	unavailable(t, err)
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// TestContainers runs programs in two containers with a daemon each, where
// ld.so.preload alone has the library.
func TestContainers(t *testing.T) {
	enabled(t)
	install(t, baseNeeds)
	bin, lib := build(t), library(t)
	ns := startAlone(t)
	one := containerSite(t, ns.Host, bin, lib, ns.Addrs[0].String())
	two := containerSite(t, ns.Host, bin, lib, ns.Addrs[1].String())
	r := &runner{dir: openDir(t), port: nextPort}
	for _, c := range cells() {
		if c.short {
			r.cell(t, c, twoOwners, one, two)
		}
	}
}

// TestSystemDaemon runs programs of several users on one rocev2d.
func TestSystemDaemon(t *testing.T) {
	enabled(t)
	install(t, baseNeeds)
	lib, ns := library(t), startAlone(t)
	bin, dir := compileCommand(t, "rocev2d"), openDir(t)
	at := filepath.Join(dir, "d")
	addr := ns.Addrs[0].String()
	d, err := ns.Host.Start(t.Context(), bin, "--device", addr, "--admin", "off", "--targets", "off", "--programs", at, "--programs-users", "65534,65533", "--drain", "0s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-d.Done() })
	if err := says("msg=ready")(t.Context(), nil, d); err != nil {
		t.Fatal(err)
	}
	of := func(uid string) *site {
		return &site{node: ns.Host, addr: addr, wrap: []string{
			"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups", "--bounding-set=-all", "--no-new-privs",
			"env", "ROCEV2_PROGRAMS=" + at, "LD_PRELOAD=" + lib,
		}}
	}
	one, two := of("65534"), of("65533")
	for _, s := range []*site{one, two} {
		if err := s.learn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r := &runner{dir: openDir(t), port: nextPort}
	for _, c := range cells() {
		if c.short && c.client != nil {
			r.cell(t, c, oneOwner, one, two)
		}
	}
	t.Run("refused", func(t *testing.T) {
		// Only those on the list, and root, may open the device.
		stranger := of("65532")
		res, err := guest.Run(t.Context(), stranger.node, stranger.argv([]string{"ibv_devinfo"})...)
		if err == nil || res == nil || strings.Contains(res.Stdout, "PORT_ACTIVE") {
			t.Errorf("a stranger has opened the device: %v, %+v", err, res)
		}
	})
}

// compileCommand builds a command of this project where an ordinary user can
// run it.
func compileCommand(t *testing.T, name string) string {
	t.Helper()
	bin := filepath.Join(openDir(t), name)
	args := []string{"build", "-o", bin, "github.com/gosoftroce/rocev2/cmd/" + name}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return bin
}
