//go:build linux

package guest

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/gosoftroce/rocev2/internal/debian"
)

// Need is a program or a file, and the package of Debian that has it.
type Need = debian.Need

// hostNeeds is what the test host itself runs.
var hostNeeds = []Need{
	{File: "qemu-system-x86_64", Package: "qemu-system-x86"},
	{File: "ip", Package: "iproute2"},
	{File: "setpriv", Package: "util-linux"},
	{File: "tcpdump", Package: "tcpdump"},
	{File: "tshark", Package: "tshark"},
	{File: "dpkg-deb", Package: "dpkg"},
	{File: keyring, Package: "debian-archive-keyring"},
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
	dir, err := cacheDir()
	if err == nil {
		err = debian.Install(ctx, dir, needs, logf)
	}
	var u *debian.Unavailable
	if errors.As(err, &u) {
		return &Unavailable{u.Reason}
	}
	return err
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	l := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(l[max(0, len(l)-n):], "\n")
}
