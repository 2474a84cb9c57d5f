//go:build linux

package guest

import (
	"context"
	"os"
	"os/exec"
	"strings"
)

// hostNeeds is what the test host itself runs, by the package that has it.
var hostNeeds = []struct{ file, pkg string }{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"ip", "iproute2"},
	{"setpriv", "util-linux"},
	{"tcpdump", "tcpdump"},
	{"tshark", "tshark"},
	{"dpkg-deb", "dpkg"},
	{keyring, "debian-archive-keyring"},
}

// missing returns the packages that the host lacks.
func missing() []string {
	var pkgs []string
	for _, n := range hostNeeds {
		_, err := exec.LookPath(n.file)
		if strings.HasPrefix(n.file, "/") {
			_, err = os.Stat(n.file)
		}
		if err != nil {
			pkgs = append(pkgs, n.pkg)
		}
	}
	return pkgs
}

// ensureHost checks what the host needs and installs what is missing where
// that is possible: as root on a system with apt.
func ensureHost(ctx context.Context, logf func(string, ...any)) error {
	if os.Geteuid() != 0 {
		return &Unavailable{"not root; network namespaces and tap devices need it"}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return &Unavailable{"no /dev/net/tun: " + err.Error()}
	}
	pkgs := missing()
	if len(pkgs) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return &Unavailable{"not installed, and no apt to install them: " + strings.Join(pkgs, ", ")}
	}
	logf("installing with apt-get: %s", strings.Join(pkgs, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, pkgs...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return &Unavailable{"apt-get " + strings.Join(args, " ") + ": " + err.Error() + "\n" + tail(string(out), 10)}
		}
	}
	if pkgs = missing(); len(pkgs) > 0 {
		return &Unavailable{"still missing after installation: " + strings.Join(pkgs, ", ")}
	}
	return nil
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	l := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(l[max(0, len(l)-n):], "\n")
}
