//go:build linux

package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// site is where a program of a cell runs, and the device that it sees there.
type site struct {
	node guest.Node
	addr string // of the device, which is also that of TCP
	dev  string
	gid  int      // index of the address
	wrap []string // in front of a program's arguments
}

func (s *site) argv(program []string) []string {
	return append(append([]string{}, s.wrap...), program...)
}

// kernelSite is the device of a guest.
func kernelSite(g *guest.Guest) *site {
	return &site{node: g, addr: g.Addr4.String(), dev: "rxe0", gid: g.GIDIndex(false)}
}

// rename gives the device of a guest another name.
func (s *site) rename(t *testing.T, name string) {
	t.Helper()
	r, err := guest.Run(t.Context(), s.node, "ls", "/sys/class/infiniband")
	if err != nil {
		t.Fatal(err)
	}
	s.dev = name
	if old := strings.TrimSpace(r.Stdout); old != name {
		if _, err := guest.Run(t.Context(), s.node, "rdma", "dev", "set", old, "name", name); err != nil {
			t.Fatal(err)
		}
	}
}

// ourSite is an address with a daemon that `rocev2 run` starts and that ends
// after the last program. Cells that follow each other share it, or start the
// next one.
func ourSite(t *testing.T, n guest.Node, bin, addr string) *site {
	t.Helper()
	dir := openDir(t)
	s := &site{node: n, addr: addr, wrap: []string{
		"env", "HOME=" + dir, "XDG_CACHE_HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C", "ROCEV2_PROGRAMS=" + filepath.Join(dir, "d"),
		bin, "run", "--device", addr, "--",
	}}
	if err := s.learn(t.Context()); err != nil {
		t.Fatalf("the device on %s: %v", addr, err)
	}
	return s
}

var (
	hcaLine = regexp.MustCompile(`(?m)^hca_id:\s*(\S+)`)
	gidLine = regexp.MustCompile(`(?m)^\s*GID\[\s*(\d+)\]:\s*(\S+?),?(?:\s|$)`)
)

// learn asks ibv_devinfo for the device's name and its GIDs.
func (s *site) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, usual)
	defer cancel()
	r, err := guest.Run(ctx, s.node, s.argv([]string{"ibv_devinfo", "-v"})...)
	if err != nil {
		return err
	}
	name := hcaLine.FindStringSubmatch(r.Stdout)
	if name == nil {
		return fmt.Errorf("ibv_devinfo shows no device:\n%s%s", r.Stdout, r.Stderr)
	}
	s.dev = name[1]
	for _, m := range gidLine.FindAllStringSubmatch(r.Stdout, -1) {
		if strings.EqualFold(m[2], s.addr) || strings.EqualFold(m[2], "::ffff:"+s.addr) || strings.EqualFold(m[2], hexGID(s.addr)) {
			s.gid, err = strconv.Atoi(m[1])
			return err
		}
	}
	return fmt.Errorf("ibv_devinfo shows no GID of %s:\n%s", s.addr, r.Stdout)
}

// hexGID is the GID of an IPv4 address in the long form.
func hexGID(addr string) string {
	var b [4]byte
	for i, f := range strings.SplitN(addr, ".", 4) {
		n, _ := strconv.Atoi(f) // it is an address
		b[i] = byte(n)
	}
	return fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
}

// openDir makes a directory that an ordinary user may write, and that is gone
// after the test.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := guest.TempDir("programs") // t.TempDir is for its owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		err = os.Chown(dir, guest.Nobody, guest.Nobody)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
