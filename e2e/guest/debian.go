//go:build linux

package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// MirrorEnv names the environment variable with the Debian mirror to use, if
// not the host's own; the security archive is expected beside it as
// MIRROR-security.
const MirrorEnv = "ROCEV2_E2E_MIRROR"

const (
	release = "bookworm"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// userland is what the guests run; dependencies are resolved by apt.
var userland = []string{"perftest", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "rdma-core", "ucx-utils", "libfabric-bin", "iperf3", "iproute2", "busybox-static", "dash", "tcpdump"}

// apt runs apt with sources, state and cache of its own below dir. Its idea of
// the installed system is empty, so a download brings every dependency along
// and does not depend on the host's release.
type apt struct {
	dir  string
	logf func(string, ...any)
}

func newApt(dir string, logf func(string, ...any)) (*apt, error) {
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	mirror := os.Getenv(MirrorEnv)
	if mirror == "" {
		out, err := exec.Command("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages").Output()
		if err != nil {
			return nil, &Unavailable{"apt-get indextargets: " + err.Error()}
		}
		if mirror = systemMirror(string(out)); mirror == "" {
			return nil, &Unavailable{"the system's package sources name no Debian mirror; set " + MirrorEnv + " to one"}
		}
	}
	var b strings.Builder
	for _, s := range []string{mirror + " " + release, mirror + " " + release + "-updates", mirror + " " + release + "-backports", mirror + "-security " + release + "-security"} {
		fmt.Fprintf(&b, "deb [arch=amd64 signed-by=%s] %s main\n", keyring, s)
	}
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(b.String()), 0o644); err != nil {
		return nil, err
	}
	return &apt{dir, logf}, os.WriteFile(filepath.Join(dir, "status"), nil, 0o644)
}

// systemMirror finds the Debian mirror that the host itself uses, in lines of
// origin and address.
func systemMirror(targets string) string {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == "Debian" {
			if m := strings.TrimSuffix(f[1], "/"); strings.HasSuffix(m, "/debian") {
				return m
			}
		}
	}
	return ""
}

// run runs apt-get or apt-cache in dir and returns its standard output.
func (a *apt) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	var opts []string
	for _, o := range []string{
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"), "Dir::Etc::sourceparts=/dev/null",
		"Dir::Etc::preferences=/dev/null", "Dir::Etc::preferencesparts=/dev/null",
		"Dir::State=" + a.dir, "Dir::State::lists=" + filepath.Join(a.dir, "lists"), "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"APT::Architecture=amd64", "APT::Architectures=amd64", "APT::Sandbox::User=root",
		"Acquire::Languages=none", "Acquire::Retries=2", "Acquire::http::Timeout=20",
	} {
		opts = append(opts, "-o", o)
	}
	cmd := exec.CommandContext(ctx, tool, append(opts, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func (a *apt) update(ctx context.Context) error {
	a.logf("reading the package lists of Debian %s", release)
	if _, err := a.run(ctx, a.dir, "apt-get", "update", "--error-on=any"); err != nil {
		return &Unavailable{err.Error()}
	}
	return nil
}

// kernelPackage is a kernel image in the archive.
type kernelPackage struct{ line, name, version string }

var kernelDepends = regexp.MustCompile(`\b(linux-image-(\d+\.\d+)\.[^ ]*-amd64) \(= ([^)]+)\)`)

// kernels finds the newest image of each wanted line among those that the
// package linux-image-amd64 has depended on.
func (a *apt) kernels(ctx context.Context, lines []string) ([]kernelPackage, error) {
	out, err := a.run(ctx, a.dir, "apt-cache", "show", "linux-image-amd64")
	if err != nil {
		return nil, err
	}
	return parseKernels(out, lines)
}

// parseKernels reads the records of apt-cache show, which come newest first.
func parseKernels(records string, lines []string) ([]kernelPackage, error) {
	var found []kernelPackage
	for _, m := range kernelDepends.FindAllStringSubmatch(records, -1) {
		known := slices.ContainsFunc(found, func(k kernelPackage) bool { return k.line == m[2] })
		if slices.Contains(lines, m[2]) && !known {
			found = append(found, kernelPackage{line: m[2], name: m[1], version: m[3]})
		}
	}
	slices.SortFunc(found, func(a, b kernelPackage) int { return slices.Index(lines, a.line) - slices.Index(lines, b.line) })
	if len(found) != len(lines) {
		return nil, &Unavailable{fmt.Sprintf("the archive has kernels %v, wanted are the lines %v", found, lines)}
	}
	return found, nil
}

// download fetches one package without its dependencies and returns its path.
func (a *apt) download(ctx context.Context, name, version string) (string, error) {
	dir := filepath.Join(a.dir, "cache", "archives")
	file := filepath.Join(dir, name+"_"+strings.ReplaceAll(version, ":", "%3a")+"_amd64.deb")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	a.logf("downloading %s %s", name, version)
	if _, err := a.run(ctx, dir, "apt-get", "download", name+"="+version); err != nil {
		return "", &Unavailable{err.Error()}
	}
	return file, nil
}

var instLine = regexp.MustCompile(`(?m)^Inst (\S+) \((\S+) `)

// downloadAll fetches packages with everything they depend on and returns the
// paths in the order of apt's plan.
func (a *apt) downloadAll(ctx context.Context, names []string) ([]string, error) {
	args := append([]string{"install", "--yes", "--no-install-recommends"}, names...)
	plan, err := a.run(ctx, a.dir, "apt-get", append(args, "--simulate")...)
	if err != nil {
		return nil, err
	}
	a.logf("downloading the userland of the guests")
	if _, err := a.run(ctx, a.dir, "apt-get", append(args, "--download-only")...); err != nil {
		return nil, &Unavailable{err.Error()}
	}
	var files []string
	for _, m := range instLine.FindAllStringSubmatch(plan, -1) {
		pattern := m[1] + "_" + strings.ReplaceAll(m[2], ":", "%3a") + "_*.deb"
		match, err := filepath.Glob(filepath.Join(a.dir, "cache", "archives", pattern))
		if err != nil || len(match) != 1 {
			return nil, fmt.Errorf("downloaded package %s: %v, %v", pattern, match, err)
		}
		files = append(files, match[0])
	}
	return files, nil
}

// tidy removes what only the next update needs; packages stay.
func (a *apt) tidy() error {
	indexes, err := filepath.Glob(filepath.Join(a.dir, "cache", "*.bin"))
	if err != nil {
		return err
	}
	for _, f := range append(indexes, filepath.Join(a.dir, "lists")) {
		if err := os.RemoveAll(f); err != nil {
			return err
		}
	}
	return nil
}

// unpack extracts packages into dir, which is made anew.
func unpack(ctx context.Context, debs []string, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", d, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", d, err, out)
		}
	}
	return nil
}
