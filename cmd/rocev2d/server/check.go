package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/verbs"
)

// Check says what would keep Start from doing what a configuration says: all of
// it, where one error hides no other. It looks at addresses, files and
// directories, and opens devices and listeners for a moment, at other ports: a
// daemon that runs already is no mistake. It cleans up after itself. targets
// are those of Options. The error joins a *config.Error for each mistake.
func Check(ctx context.Context, c *config.Config, targets []Target) error {
	if targets == nil {
		targets = Targets()
	}
	k := &checker{c: c}
	k.devices()
	k.regions()
	k.programs()
	k.admin(ctx)
	k.rcopy()
	return errors.Join(append(k.errs, checkTargets(c, targets)...)...)
}

// checker gathers what is wrong.
type checker struct {
	c    *config.Config
	errs []error
}

func (k *checker) fail(setting, format string, args ...any) {
	k.errs = append(k.errs, k.c.Wrong(setting, format, args...))
}

// wantedDevices returns the devices that a configuration asks for.
func wantedDevices(c *config.Config) []config.Device {
	list := slices.Clone(c.Devices)
	if len(list) == 0 {
		list = []config.Device{{Address: firstAddress(), Regions: config.DefaultRegionsPort}}
	}
	for i := range list {
		list[i].Congestion = cmp.Or(list[i].Congestion, c.Congestion)
		list[i].Strict = cmp.Or(list[i].Strict, c.Strict)
		list[i].Profile = cmp.Or(list[i].Profile, c.Profile)
	}
	return list
}

// devices opens each device for a moment.
func (k *checker) devices() {
	seen := map[netip.Addr]int{}
	for i, c := range wantedDevices(k.c) {
		at := fmt.Sprintf("device.%d.address", i)
		addr, err := verbs.ResolveAddr(c.Address)
		if err != nil {
			k.fail(at, "%v", err)
			continue
		}
		if first, twice := seen[addr]; twice {
			k.fail(at, "%q is %v, which is the device of %s already", c.Address, addr, k.c.Where(fmt.Sprintf("device.%d.address", first)))
			continue
		}
		seen[addr] = i
		if c.Guard.Given() {
			if _, err := hostTLS(&c.Guard, addr); err != nil {
				k.fail(fmt.Sprintf("device.%d.secure.cert", i), "%v", err)
			}
		}
		if err := tryDevice(c); err != nil {
			k.fail(at, "%v", err)
		}
	}
}

// tryDevice opens a device at a port that is free.
func tryDevice(c config.Device) (err error) {
	for range 4 { // another process may take the port meanwhile
		var free *net.UDPConn
		if free, err = net.ListenUDP("udp", nil); err != nil {
			return err
		}
		port := uint16(free.LocalAddr().(*net.UDPAddr).Port)
		free.Close()
		d, e := openDevice(c, port)
		if e == nil {
			return d.close()
		}
		if err = e; !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return err
}

// regions maps the memory, and opens the files.
func (k *checker) regions() {
	devices, sizes := wantedDevices(k.c), map[string]int64{}
	for i := range k.c.Regions {
		r := &k.c.Regions[i]
		at := fmt.Sprintf("region.%d", i)
		if !slices.ContainsFunc(devices, func(d config.Device) bool {
			return d.Regions != 0 && (r.Device == "" || r.Device == d.Address)
		}) {
			k.fail(at+".device", "no device would have it: regions_port is 0")
		}
		switch {
		case r.File != "":
			if err := tryFile(r); err != nil {
				k.fail(at+".file", "%v", err)
			}
			continue
		case sizes[r.Name] == r.Size:
			continue
		case sizes[r.Name] != 0: // the memory is that of the name, on all devices
			k.fail(at+".size", "%d: another region with the name %q has %d bytes, and no file", r.Size, r.Name, sizes[r.Name])
			continue
		}
		sizes[r.Name] = r.Size
		m, err := mapping.Anonymous(int(r.Size), mapping.Options{Reserve: true})
		if err != nil {
			k.fail(at+".size", "%v", err)
			continue
		}
		defer m.Close() // the memory must be there for all of them together
	}
}

// tryFile opens the file of a region, or sees that it can be made.
func tryFile(r *config.Region) error {
	if _, err := os.Stat(r.File); errors.Is(err, fs.ErrNotExist) && r.Access == config.ReadWrite {
		if r.Size == 0 {
			return fmt.Errorf("%s is not there: with a size it is made", r.File)
		}
		return tryDirectory(filepath.Dir(r.File))
	}
	f, err := openFile(r)
	if err != nil {
		return err
	}
	return f.Close()
}

// tryDirectory makes a file in a directory, and takes it away.
func tryDirectory(dir string) error {
	f, err := os.CreateTemp(dir, ".rocev2d-check-")
	if err != nil {
		return fmt.Errorf("no file can be made in %s: %w", dir, cmp.Or(errors.Unwrap(err), err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// programs sees that the directory of programs is there, or can be made.
func (k *checker) programs() {
	dir := k.c.Programs.Dir
	if dir == "" {
		return
	}
	if !programsServed {
		k.fail("programs.directory", "unmodified verbs programs run on Linux only")
		return
	}
	st, err := os.Stat(dir)
	for ; errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir); st, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	if err == nil && dir == k.c.Programs.Dir && st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0 && programsShared(&k.c.Programs) {
		err = fmt.Errorf("other users may write to %s (mode %04o), and put other devices there: take that away by chmod go-w", dir, st.Mode().Perm())
	}
	if err == nil {
		err = tryDirectory(dir)
	}
	if err != nil {
		k.fail("programs.directory", "%v", err)
	}
}

// programsShared reports whether programs of other users use the directory.
func programsShared(p *config.Programs) bool { return p.Any || len(p.Users) > 0 || len(p.Groups) > 0 }

// rcopy opens the directory that rcopy writes below.
func (k *checker) rcopy() {
	dir := k.c.Targets.Root
	if dir == "" || !k.c.Targets.Enabled {
		return
	}
	if err := tryDirectory(dir); err != nil {
		k.fail("targets.rcopy_root", "%v", err)
	}
}

// admin listens at another port of the addresses of the listeners for HTTP: the
// same one for both, if theirs is.
func (k *checker) admin(ctx context.Context) {
	c := &k.c.Admin
	at := "0"
	if ln := k.listen(ctx, "admin.listen", c.Listen, at); ln != nil {
		defer ln.Close()
		a := ln.Addr().(*net.TCPAddr)
		if !a.IP.IsLoopback() && c.Token == "" {
			k.fail("admin.listen", "%q is %v, which can be reached from other hosts, so it needs a token: set token_file", c.Listen, a.IP)
		}
		if n := tcpPort(c.Listen); n > 0 && n == tcpPort(c.Health) {
			at = strconv.Itoa(a.Port)
		}
	}
	if ln := k.listen(ctx, "admin.health", c.Health, at); ln != nil {
		ln.Close()
	}
}

// listen listens at the address that a setting has, if it is one, and another
// port.
func (k *checker) listen(ctx context.Context, setting, where, port string) net.Listener {
	host, _, err := net.SplitHostPort(where)
	if where == "" || err != nil { // what is wrong with it has been said
		return nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	switch {
	case port != "0" && errors.Is(err, syscall.EADDRINUSE):
		k.fail(setting, "%q has the port of admin.listen, %q, which answers the probes, too; take another port", where, k.c.Admin.Listen)
	case err != nil:
		k.fail(setting, "%v", err)
	}
	if err != nil {
		return nil
	}
	return ln
}

// tcpPort returns the port of "HOST:PORT"; 0 if there is none, or any.
func tcpPort(where string) int {
	_, port, err := net.SplitHostPort(where)
	if err != nil {
		return 0
	}
	n, _ := net.LookupPort("tcp", port) // 0 where it is none
	return n
}

// checkTargets says which settings of targets contradict each other. Those
// targets would not be answered.
func checkTargets(c *config.Config, list []Target) (errs []error) {
	t := &c.Targets
	if !t.Enabled {
		return nil
	}
	fail := func(setting, format string, args ...any) {
		errs = append(errs, c.Wrong(setting, format, args...))
	}
	if slices.Contains(t.Only, "rcopy") && t.Root == "" {
		fail("targets.only", "rcopy is answered only where rcopy_root says where files go")
	}
	if slices.Contains(t.Only, "mckey") && len(t.Groups) == 0 {
		fail("targets.only", "mckey is answered only in groups: name them in groups")
	}
	taken := portsTaken(c)
	for i := range list {
		g := &list[i]
		port := wanted(t, g)
		setting := "targets.ports." + g.Name
		switch {
		case port == 0 && slices.Contains(t.Only, g.Name) && g.Port == 0:
			fail("targets.only", "%s has no port of its own: give it one in [targets.ports]", g.Name)
		case g.Space == spaceGroup && t.Ports[g.Name] != 0:
			fail(setting, "%s has no port: it is answered in groups", g.Name)
		case port <= 0 || g.Name == "rcopy" && t.Root == "":
		default:
			key := portKey{g.Space, port}
			first, there := taken[key]
			this := portHolder{g.Name, setting, g.Request != nil}
			switch {
			case !there:
				taken[key] = this
			case first.shares && this.shares:
			case given(c, setting) || !given(c, first.setting):
				fail(setting, "%d is the port of %s already", port, first.name)
			default:
				fail(first.setting, "%d is the port of %s", port, this.name)
			}
		}
	}
	return errs
}

// portKey is a port in one of the spaces of ports.
type portKey struct {
	space string
	port  int
}

// portHolder is what has a port. Targets of the connection manager share one.
type portHolder struct {
	name, setting string
	shares        bool
}

// given reports whether a setting has been made, or is the default.
func given(c *config.Config, setting string) bool { return c.Where(setting) != c.Where("") }

// portsTaken returns the ports that others than targets have.
func portsTaken(c *config.Config) map[portKey]portHolder {
	taken := map[portKey]portHolder{}
	addrs := map[string]bool{}
	for i, d := range wantedDevices(c) {
		if d.Regions != 0 {
			taken[portKey{spaceRDMATCP, d.Regions}] = portHolder{name: "regions", setting: fmt.Sprintf("device.%d.regions_port", i)}
		}
		if a, err := verbs.ResolveAddr(d.Address); err == nil {
			addrs[a.WithZone("").String()] = true
		}
	}
	for _, l := range []struct{ where, name, setting string }{
		{c.Admin.Listen, "the admin listener", "admin.listen"}, {c.Admin.Health, "the health listener", "admin.health"},
	} {
		n := tcpPort(l.where)
		if n == 0 {
			continue
		}
		host, _, _ := net.SplitHostPort(l.where) // it has a port
		a, err := netip.ParseAddr(host)
		if host == "" || err == nil && (a.IsUnspecified() || addrs[a.Unmap().WithZone("").String()]) {
			taken[portKey{spaceTCP, n}] = portHolder{name: l.name, setting: l.setting}
		}
	}
	return taken
}
