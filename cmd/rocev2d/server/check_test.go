package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/verbs"
)

// parsed returns the configuration of a text, with a device of its own unless
// the text has one.
func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c := config.Default()
	must(t, c.Parse("test.toml", text))
	if len(c.Devices) == 0 {
		c.Devices = []config.Device{{Address: loopback().String(), Regions: config.DefaultRegionsPort}}
	}
	must(t, c.Check())
	return c
}

// What keeps a daemon from starting is found before, and where it is.
func TestCheckFindsWhatStartFinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "file"), filepath.Join(dir, "empty")
	must(t, os.WriteFile(file, []byte("some bytes"), 0o600))
	must(t, os.WriteFile(empty, nil, 0o600))
	for _, c := range []struct{ name, text, where, want string }{
		{"another host's address", "[[device]]\naddress = \"192.0.2.99\"", "test.toml:2: device.address", "not an address of this machine"},
		{"no address", "[[device]]\naddress = \"127.0.0.1:4791\"", "test.toml:2: device.address", "neither an address nor an interface"},
		{"a group", "[[device]]\naddress = \"224.0.0.1\"", "test.toml:2: device.address", "unicast"},
		{"no interface", "[[device]]\naddress = \"fe80::1%nosuch\"", "test.toml:2: device.address", "nosuch"},
		{"no directory", "[[region]]\nname = \"a\"\naccess = \"read-write\"\nsize = 9\nfile = \"" + dir + "/no/file\"", "test.toml:5: region.file", "no such file"},
		{"no file to read", "[[region]]\nname = \"a\"\nsize = 9\nfile = \"" + dir + "/no\"", "test.toml:4: region.file", "no such file"},
		{"no size", "[[region]]\nname = \"a\"\naccess = \"read-write\"\nfile = \"" + dir + "/no\"", "test.toml:4: region.file", ""},
		{"a directory", "[[region]]\nname = \"a\"\nfile = \"" + dir + "\"", "test.toml:3: region.file", ""},
		{"an empty file", "[[region]]\nname = \"a\"\nfile = \"" + empty + "\"", "test.toml:3: region.file", "is empty"},
		{"a short file", "[[region]]\nname = \"a\"\nsize = 4096\nfile = \"" + file + "\"", "test.toml:4: region.file", "10 bytes, less than"},
		{"too much memory", "[[region]]\nname = \"a\"\nsize = \"900 TiB\"", "test.toml:3: region.size", ""},
		{"a file for programs", "[programs]\ndirectory = \"" + file + "\"", "test.toml:2: programs.directory", ""},
		{"programs in a file", "[programs]\ndirectory = \"" + file + "/x\"", "test.toml:2: programs.directory", ""},
		{"another host's admin", "[admin]\ntoken = \"0123456789abcdef\"\nlisten = \"192.0.2.99:80\"", "test.toml:3: admin.listen", "assign"},
		{"nobody's admin", "[admin]\ntoken = \"0123456789abcdef\"\nlisten = \"no.such.host.invalid:80\"", "test.toml:3: admin.listen", "no.such.host.invalid"},
		{"another host's health", "[admin]\nlisten = \"\"\nhealth = \"192.0.2.99:80\"", "test.toml:3: admin.health", "assign"},
		{"health on the port of admin", "[admin]\nlisten = \"127.0.0.1:14791\"\nhealth = \"0.0.0.0:14791\"", "test.toml:3: admin.health", "the port of admin.listen"},
		{"a target on the port of health", "[[device]]\naddress = \"127.0.0.1\"\n[admin]\nlisten = \"\"\nhealth = \"127.0.0.1:18515\"", "test.toml:5: admin.health", "18515 is the port of perftest"},
		{"two targets on a port", "[targets.ports]\nperftest_uc = 18515", "test.toml:2: targets.ports.perftest_uc", "18515 is the port of perftest already"},
		{"rcopy on the port of another", "[targets]\nrcopy_root = \"" + dir + "\"\n[targets.ports]\nrcopy = 7471", "test.toml:4: targets.ports.rcopy", "7471 is the port of ucmatose already"},
		{"a target on the port of regions", "[[device]]\naddress = \"127.0.0.1\"\nregions_port = 7174", "test.toml:3: device.regions_port", "7174 is the port of rping"},
		{"a target on the port of admin", "[[device]]\naddress = \"127.0.0.1\"\n[admin]\nlisten = \"127.0.0.1:18515\"", "test.toml:4: admin.listen", "18515 is the port of perftest"},
		{"no port", "[targets]\nonly = [\"perftest_ud\"]", "test.toml:2: targets.only", "no port of its own"},
		{"no groups", "[targets]\nonly = [\"mckey\"]", "test.toml:2: targets.only", "groups"},
		{"no root", "[targets]\nonly = [\"rcopy\"]", "test.toml:2: targets.only", "rcopy_root"},
		{"a port of groups", "[targets]\ngroups = [\"239.1.2.3\"]\nports = { mckey = 5 }", "test.toml:3: targets.ports.mckey", "in groups"},
	} {
		if c.name == "too much memory" && strconv.IntSize == 32 {
			continue // the file alone is refused: see package config
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := parsed(t, c.text)
			err := server.Check(t.Context(), cfg, nil)
			if err == nil || !strings.HasPrefix(err.Error(), c.where+": ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s: ... %s", err, c.where, c.want)
			}
			// Admin listeners of tests have no usual port.
			if s, err := server.Start(t.Context(), parsed(t, withAdmin(c.text)), server.Options{}); err == nil {
				t.Error("a daemon has started so")
				s.Shutdown(t.Context())
			}
		})
	}
	if left, _ := filepath.Glob(dir + "/.rocev2d-*"); left != nil {
		t.Errorf("it leaves %v", left)
	}
}

// withAdmin turns the admin listener off where a text says nothing of it.
func withAdmin(text string) string {
	if strings.Contains(text, "[admin]") {
		return text
	}
	return text + "\n[admin]\nlisten = \"\"\n"
}

// Targets that cannot write are told of when they begin, and the others go on;
// a check finds it.
func TestCheckOfRcopyRoot(t *testing.T) {
	t.Parallel()
	err := server.Check(t.Context(), parsed(t, "[targets]\nrcopy_root = \"/no/such/directory\""), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "test.toml:2: targets.rcopy_root: no file can be made in /no/such/directory: no such file") {
		t.Error(err)
	}
}

// Regions that no device serves would do nothing.
func TestCheckOfRegionsThatNobodyServes(t *testing.T) {
	t.Parallel()
	const devices = "[[device]]\naddress = \"127.0.0.1\"\nregions_port = 0\n[[device]]\naddress = \"127.0.0.2\"\n[[region]]\nname = \"a\"\nsize = 1\n"
	if err := server.Check(t.Context(), parsed(t, devices+"device = \"127.0.0.1\"\n"), nil); err == nil || !strings.HasPrefix(err.Error(), "test.toml:9: region.device: ") {
		t.Error(err)
	}
	must(t, server.Check(t.Context(), parsed(t, devices), nil))
}

// An interface and its address are one device.
func TestCheckOfDevicesThatAreOne(t *testing.T) {
	t.Parallel()
	name := ""
	list, err := net.Interfaces()
	must(t, err)
	for _, i := range list {
		if a, err := verbs.ResolveAddr(i.Name); err == nil && a.IsLoopback() {
			name = i.Name
		}
	}
	addr, err := verbs.ResolveAddr(name)
	if err != nil {
		t.Skip("no interface has the loopback address (ip link set lo up)")
	}
	text := fmt.Sprintf("[[device]]\naddress = %q\n[[device]]\naddress = %q\n", addr, name)
	if err := server.Check(t.Context(), parsed(t, text), nil); err == nil || !strings.HasPrefix(err.Error(), "test.toml:4: device.address: ") || !strings.Contains(err.Error(), "the device of test.toml:2 already") {
		t.Error(err)
	}
}

// All that can be served passes, also while a daemon serves it, and nothing of
// the check remains.
func TestCheckPasses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	programs := ""
	if runtime.GOOS == "linux" {
		programs = fmt.Sprintf("[programs]\ndirectory = %q\n", filepath.Join(dir, "run", "rocev2"))
	}
	text := fmt.Sprintf(`
admin = { listen = "127.0.0.1:0" }
[[device]]
address = %q
[[region]]
name = "a"
size = "1 MiB"
[[region]]
name = "b"
access = "read-write"
size = 4096
file = %q
[targets]
rcopy_root = %q
groups = ["239.1.2.3"]
ports = { rping = 7471 }
`, loopback(), filepath.Join(dir, "made"), dir) + programs
	must(t, server.Check(t.Context(), parsed(t, text), nil))
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	s, err := server.Start(t.Context(), parsed(t, text), server.Options{})
	must(t, err)
	defer s.Shutdown(t.Context())
	must(t, server.Check(t.Context(), parsed(t, text), nil))
}

// A check says all that is wrong.
func TestCheckSaysAll(t *testing.T) {
	t.Parallel()
	text := "[[device]]\naddress = \"192.0.2.99\"\n[[region]]\nname = \"a\"\nfile = \"/no/such/file\"\n[targets.ports]\nperftest_ud = 18515\n"
	err := server.Check(t.Context(), parsed(t, text), nil)
	if err == nil || strings.Count(err.Error(), "test.toml:") != 3 {
		t.Errorf("%v", err)
	}
}
