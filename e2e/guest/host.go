//go:build linux

package guest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Need is a program, by its name, or a file, by its absolute path, and the
// package of Debian that has it.
type Need struct{ File, Package string }

// hostNeeds is what the test host itself runs.
var hostNeeds = []Need{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"ip", "iproute2"},
	{"setpriv", "util-linux"},
	{"tcpdump", "tcpdump"},
	{"tshark", "tshark"},
	{"dpkg-deb", "dpkg"},
	{keyring, "debian-archive-keyring"},
}

// missing returns the packages that the host lacks.
func missing(needs []Need) []string {
	var pkgs []string
	for _, n := range needs {
		_, err := exec.LookPath(n.File)
		if strings.HasPrefix(n.File, "/") {
			_, err = os.Stat(n.File)
		}
		if err != nil && !slices.Contains(pkgs, n.Package) {
			pkgs = append(pkgs, n.Package)
		}
	}
	return pkgs
}

// ensureHost checks that guests can run here, and installs what they need.
func ensureHost(ctx context.Context, logf func(string, ...any)) error {
	if os.Geteuid() != 0 {
		return &Unavailable{"not root; network namespaces and tap devices need it"}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return &Unavailable{"no /dev/net/tun: " + err.Error()}
	}
	return Install(ctx, hostNeeds, logf)
}

// Install installs what is missing where that is possible: as root on a system
// with apt. Its error is [*Unavailable] and names the packages.
func Install(ctx context.Context, needs []Need, logf func(string, ...any)) error {
	if len(missing(needs)) == 0 {
		return nil
	}
	dir, err := cacheDir()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	unlock, err := lock(dir, "install.lock", logf)
	if err != nil {
		return err
	}
	defer unlock()
	pkgs := missing(needs) // another process may have installed them
	if len(pkgs) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return &Unavailable{"not root, so that these could be installed: " + strings.Join(pkgs, " ")}
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return &Unavailable{"not installed, and no apt to install them: " + strings.Join(pkgs, " ")}
	}
	logf("installing with apt-get: %s", strings.Join(pkgs, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, pkgs...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return &Unavailable{"apt-get " + strings.Join(args, " ") + ": " + err.Error() + "\n" + tail(string(out), 10)}
		}
	}
	if pkgs = missing(needs); len(pkgs) > 0 {
		return &Unavailable{"still missing after installation: " + strings.Join(pkgs, " ")}
	}
	return nil
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	l := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(l[max(0, len(l)-n):], "\n")
}
