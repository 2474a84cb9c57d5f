//go:build linux

package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosoftroce/rocev2/internal/debian"
)

// Lines are the kernel lines that can be booted.
var Lines = []string{"6.1", "6.12"}

// Prepare makes sure that the host has what it needs and that the cache holds
// an image of every kernel line, and returns the images in the order of Lines.
// With a filled cache it neither downloads nor builds. Its errors are
// *Unavailable where the machine is at fault.
func Prepare(ctx context.Context, logf func(string, ...any)) ([]Image, error) {
	if err := ensureHost(ctx, logf); err != nil {
		return nil, err
	}
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := debian.Lock(dir, "lock", logf)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if m, ok := readManifest(dir); ok && os.Getenv(RefreshEnv) == "" {
		return m.Images, nil
	}
	m := &manifest{Recipe: recipe}
	if m.Images, err = build(ctx, dir, logf); err != nil {
		return nil, err
	}
	return m.Images, m.write(dir)
}

func build(ctx context.Context, dir string, logf func(string, ...any)) ([]Image, error) {
	a, err := newApt(filepath.Join(dir, "apt"), logf)
	if err != nil {
		return nil, err
	}
	if err := a.update(ctx); err != nil {
		return nil, err
	}
	kernels, err := a.kernels(ctx, Lines)
	if err != nil {
		return nil, err
	}
	debs, err := a.downloadAll(ctx, userland)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256([]byte(strings.Join(debs, "\n")))
	user := filepath.Join(dir, fmt.Sprintf("userland-%x", id[:6]))
	if err := unpack(ctx, debs, user); err != nil {
		return nil, err
	}
	// What the scripts of packages do, which are not run: an alternative.
	if err := os.Symlink("/usr/lib/libpsm1/libpsm_infinipath.so.1.16", filepath.Join(user, libDirs[0], "libpsm_infinipath.so.1")); err != nil {
		return nil, err
	}
	var images []Image
	for _, k := range kernels {
		deb, err := a.download(ctx, k.name, k.version)
		if err != nil {
			return nil, err
		}
		kdir := filepath.Join(dir, k.name+"_"+k.version)
		if err := unpack(ctx, []string{deb}, kdir); err != nil {
			return nil, err
		}
		logf("building the initramfs for %s", k.name)
		i := Image{
			Line: k.line, Release: strings.TrimPrefix(k.name, "linux-image-"), Package: k.name + " " + k.version, Userland: "Debian " + release,
			Initramfs: filepath.Join(dir, fmt.Sprintf("initramfs-%s-%x-r%d", k.version, id[:6], recipe)),
		}
		i.Kernel = filepath.Join(dir, "vmlinuz-"+k.version)
		if err := os.Rename(filepath.Join(kdir, "boot", "vmlinuz-"+i.Release), i.Kernel); err != nil {
			return nil, err
		}
		if err := errors.Join(buildInitramfs(ctx, i, kdir, user), os.RemoveAll(kdir)); err != nil {
			return nil, err
		}
		images = append(images, i)
	}
	return images, errors.Join(os.RemoveAll(user), a.tidy())
}

// programs are the guest's, by the names under which packages install them.
var programs = []string{
	"dash", "ip", "tc", "rdma", "ss", "iperf3", "tcpdump",
	"ibv_asyncwatch", "ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_xsrq_pingpong",
	"ib_atomic_bw", "ib_atomic_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat",
	"cmtime", "mckey", "rcopy", "rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver", "riostream", "rping", "rstream", "ucmatose", "udaddy", "udpong",
	"ucx_info", "ucx_perftest", "fi_info", "fi_pingpong",
}

// loaded are libraries that programs load by name at run time: libibverbs the
// driver, UCX its transports, and the C library what it needs to end a thread,
// as rping does.
var loaded = []string{
	"libibverbs/librxe-rdmav34.so", "libgcc_s.so.1", "rsocket/librspreload.so",
	"ucx/libuct_ib.so.0",
}

func buildInitramfs(ctx context.Context, i Image, kdir, user string) error {
	t := tree{}
	for _, d := range []string{"/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/sbin", "/usr/sbin"} {
		t.dir(d)
	}
	busybox := filepath.Join(user, "bin", "busybox")
	if err := addModules(ctx, t, filepath.Join(kdir, "lib", "modules", i.Release), busybox); err != nil {
		return err
	}
	if err := t.copy("/bin/busybox", busybox, user); err != nil {
		return err
	}
	for _, p := range programs {
		src, err := find(user, p, "usr/bin", "bin", "usr/sbin", "sbin")
		if err != nil {
			return err
		}
		if err := t.addELF("/usr/bin/"+p, src, user); err != nil {
			return err
		}
	}
	// Not busybox's shell, which prefers its own ip and tc to those here.
	t.link("/usr/bin/sh", "dash")
	for _, lib := range loaded {
		src, err := find(user, lib, libDirs...)
		if err != nil {
			return err
		}
		if err := t.addELF("/"+filepath.Join(libDirs[0], lib), src, user); err != nil {
			return err
		}
	}
	t.file("/etc/libibverbs.d/rxe.driver", []byte("driver rxe\n"), 0o644)
	t.file("/etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644)
	t.file("/etc/group", []byte("root:x:0:\n"), 0o644)
	t.file("/etc/hosts", []byte("127.0.0.1 localhost\n::1 localhost\n"), 0o644)
	t.file("/etc/services", nil, 0o644)

	f, err := os.Create(i.Initramfs + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := t.writeCPIO(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return os.Rename(f.Name(), i.Initramfs)
}

func addModules(ctx context.Context, t tree, root, busybox string) error {
	m, err := newModules(root, busybox)
	if err != nil {
		return err
	}
	for _, name := range wantedModules {
		name, optional := strings.CutSuffix(name, "?")
		if err := m.add(ctx, name, optional); err != nil {
			return err
		}
	}
	var list strings.Builder
	for _, mod := range m.order {
		p := "/lib/modules/" + mod.name + ".ko"
		t.file(p, mod.elf, 0o644)
		fmt.Fprintln(&list, p)
	}
	t.file("/modules.list", []byte(list.String()), 0o644)
	return nil
}

// copy adds a file of the tree below root.
func (t tree) copy(name, src, root string) error {
	src, err := resolve(src, root)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(src)
	if err == nil {
		t.file(name, b, 0o755)
	}
	return err
}

// resolve follows symbolic links as they will read where root is "/".
func resolve(p, root string) (string, error) {
	for range 16 {
		target, err := os.Readlink(p)
		if err != nil {
			return p, nil // not a link
		}
		if filepath.IsAbs(target) {
			p = filepath.Join(root, target)
		} else {
			p = filepath.Join(filepath.Dir(p), target)
		}
	}
	return "", fmt.Errorf("%s: too many links", p)
}

var libDirs = []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib", "lib"}

// addELF adds a program or library and the libraries that it is linked with.
func (t tree) addELF(name, src, root string) error {
	if _, ok := t[name]; ok {
		return nil
	}
	if err := t.copy(name, src, root); err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(t[name].data))
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return err
			}
			interp := strings.TrimRight(string(b), "\x00")
			if err := t.copy(interp, filepath.Join(root, interp), root); err != nil {
				return err
			}
		}
	}
	for _, l := range libs {
		lib, err := find(root, l, libDirs...)
		if err != nil {
			return fmt.Errorf("%s needs %w", src, err)
		}
		if err := t.addELF("/lib/x86_64-linux-gnu/"+l, lib, root); err != nil {
			return err
		}
	}
	return nil
}

// find returns the first of root/DIR/name that exists.
func find(root, name string, dirs ...string) (string, error) {
	for _, d := range dirs {
		p := filepath.Join(root, d, name)
		if _, err := os.Lstat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: not in %v of %s", name, dirs, root)
}
