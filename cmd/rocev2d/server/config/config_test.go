package config

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, text string) (*Config, error) {
	t.Helper()
	c := Default()
	if err := c.Parse("test.toml", text); err != nil {
		return c, err
	}
	return c, c.Check()
}

// What is wrong is told with its line and with what is allowed.
func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, text, line, want string }{
		{"syntax", "\ndrain = 1s\n", "test.toml:2", "not TOML"},
		{"unknown table", "\n[logg]\nlevel = \"info\"", "test.toml:2", "do you mean log?"},
		{"unknown key", "[log]\n# level\nlevl = \"info\"", "test.toml:3: log.levl", "[log] has level, format (do you mean level?)"},
		{"unknown key of the second table", "[[region]]\nname = \"a\"\nsize = 1\n[[region]]\nname = \"b\"\nsize = 1\nacces = \"read-only\"", "test.toml:7: region.acces", "do you mean access?"},
		{"key far from all", "colour = 1", "test.toml:1: colour", "a configuration has drain, congestion, strict, profile, log, admin, tls, device, region, targets, programs, capture"},
		{"type", "drain = 10", "test.toml:1: drain", `a time in quotes, such as "10s", not 10`},
		{"time", "drain = \"ten\"", "test.toml:1: drain", `"ten" is not a time`},
		{"long time", "drain = \"1h\"", "test.toml:1: drain", "between 0s and 10m"},
		{"level", "[log]\nlevel = \"loud\"", "test.toml:2: log.level", "debug, info, warn and error"},
		{"format", "[log]\n\nformat = \"xml\"", "test.toml:3: log.format", "text or json"},
		{"directory of programs", "[programs]\ndirectory = \"run\"", "test.toml:2: programs.directory", "not an absolute path"},
		{"long directory of programs", "[programs]\ndirectory = \"/" + strings.Repeat("x", 101) + "\"", "test.toml:2: programs.directory", "too long"},
		{"group of programs", "[programs]\ngroups = [\"0\", \"no such group\"]", "test.toml:2: programs.groups", "neither a group of this host"},
		{"user of programs", "[programs]\nusers = [\"0\", \"no such user\"]", "test.toml:2: programs.users", "neither a user of this host"},
		{"queue pairs of a lease", "[programs]\nqueue_pairs = -1", "test.toml:2: programs.queue_pairs", "between 0"},
		{"small buffers of a lease", "[programs]\nbuffers = \"1 KiB\"", "test.toml:2: programs.buffers", "between 64 KiB and 1 GiB"},
		{"files of programs", "[programs]\nfiles = 10", "test.toml:2: programs.files", "no such setting any more: a program's files are its own now; leases_per_user"},
		{"memory of programs", "[programs]\nmemory_regions = 10", "test.toml:2: programs.memory_regions", "no such setting any more"},
		{"queues of programs", "[programs]\nqueue_memory = \"1 MiB\"", "test.toml:2: programs.queue_memory", "cgroups bound it"},
		{"account of a user", "[programs.user]\nqueue_pairs = 10", "test.toml:1: programs.user", "queue_pairs bounds each process"},
		{"table for text", "[log]\n[log.level]\n", "test.toml:2: log.level", "a text in quotes, not a table"},
		{"text for table", "log = \"info\"", "test.toml:1: log", "begins with a line [log]"},
		{"text for list", "device = \"eth0\"", "test.toml:1: device", "begins with a line [[device]]"},
		{"list", "[admin]\nhosts = [1]", "test.toml:2: admin.hosts", "1 is not a text in quotes"},
		{"no port", "[admin]\nlisten = \"127.0.0.1\"", "test.toml:2: admin.listen", "HOST:PORT"},
		{"bad port", "[admin]\nlisten = \"127.0.0.1:http\"", "test.toml:2: admin.listen", "0 to 65535"},
		{"open without a token", "[admin]\nlisten = \"0.0.0.0:80\"", "test.toml:2: admin.listen", "needs a token"},
		{"open without a token, IPv6", "[admin]\nlisten = \"[::]:80\"", "test.toml:2: admin.listen", "needs a token"},
		{"open without a token, all", "[admin]\nlisten = \":80\"", "test.toml:2: admin.listen", "needs a token"},
		{"short token", "[admin]\ntoken = \"secret\"", "test.toml:2: admin.token", "at least 16"},
		{"two tokens", "[admin]\ntoken = \"0123456789abcdef\"\ntoken_file = \"/x\"", "test.toml:3: admin.token_file", "one of the two"},
		{"no token file", "[admin]\ntoken_file = \"/nonexistent/token\"", "test.toml:2: admin.token_file", "no such file"},
		{"empty token file", "[admin]\ntoken_file = \"" + empty + "\"", "test.toml:2: admin.token_file", "has nothing in it"},
		{"device", "[[device]]\nshards = 2", "test.toml:1: device.address", "missing"},
		{"shards", "[[device]]\naddress = \"a\"\nshards = 3", "test.toml:3: device.shards", "power of two"},
		{"negative", "[[device]]\naddress = \"a\"\nshards = -1", "test.toml:3: device.shards", "between 0 and"},
		{"port", "[[device]]\naddress = \"a\"\nregions_port = 70000", "test.toml:3: device.regions_port", "1 to 65535"},
		{"two devices", "[[device]]\naddress = \"a\"\n[[device]]\naddress = \"a\"", "test.toml:4: device.address", "test.toml:1 already"},
		{"no name", "[[region]]\nsize = 1", "test.toml:1: region.name", "missing"},
		{"name", "[[region]]\nname = \"a/b\"\nsize = 1", "test.toml:2: region.name", "letters, digits"},
		{"long name", "[[region]]\nname = \"" + strings.Repeat("a", 65) + "\"\nsize = 1", "test.toml:2: region.name", "at most 64"},
		{"two regions", "[[region]]\nname = \"a\"\nsize = 1\n[[region]]\nname = \"a\"\nsize = 1", "test.toml:5: region.name", "test.toml:1 already"},
		{"no size", "[[region]]\nname = \"a\"", "test.toml:1: region.size", "64 MiB"},
		{"size", "[[region]]\nname = \"a\"\nsize = \"64 megs\"", "test.toml:3: region.size", "64 KiB"},
		{"negative size", "[[region]]\nname = \"a\"\nsize = -5", "test.toml:3: region.size", "a size"},
		{"huge size", "[[region]]\nname = \"a\"\nsize = \"99999999 TiB\"", "test.toml:3: region.size", "can address"},
		{"relative file", "[[region]]\nname = \"a\"\nfile = \"x\"", "test.toml:3: region.file", "absolute"},
		{"access", "[[region]]\nname = \"a\"\nsize = 1\naccess = \"rw\"", "test.toml:4: region.access", `"read-only" or "read-write"`},
		{"allow", "[[region]]\nname = \"a\"\nsize = 1\nallow = [\n \"127.0.0.0/8\",\n \"friends\",\n]", "test.toml:4: region.allow", "192.0.2.0/24"},
		{"name of no certificate", "[[region]]\nname = \"a\"\nsize = 1\nallow = [\"CN=\"]", "test.toml:4: region.allow", "empty"},
		{"name without tls", "[[region]]\nname = \"a\"\nsize = 1\nallow = [\"CN=x\"]", "test.toml:4: region.allow", "say in [tls]"},
		{"required without tls", "[[region]]\nname = \"a\"\nsize = 1\ntls = \"required\"", "test.toml:4: region.tls", "say in [tls]"},
		{"tls of a region", "[[region]]\nname = \"a\"\nsize = 1\ntls = \"on\"", "test.toml:4: region.tls", `it is "required"`},
		{"certificate alone", "[tls]\ncert = \"/x\"", "test.toml:2: tls.cert", "test.toml:1: tls.key: it is missing"},
		{"no such certificate", "[tls]\ncert = \"/none\"\nkey = \"/none\"\nca = \"/none\"", "test.toml:2: tls.cert", "no such file"},
		{"secret and certificate", "[tls]\ncert = \"/none\"\npsk_file = \"/none\"", "test.toml:3: tls.psk_file", "also certificates"},
		{"no such secret", "[tls]\npsk_file = \"/none\"", "test.toml:2: tls.psk_file", "/dev/urandom"},
		{"short secret", "[tls]\npsk_file = \"" + empty + "\"", "test.toml:2: tls.psk_file", "at least 16"},
		{"tls and shared memory", "[tls]\npsk_file = \"/none\"\n[[device]]\naddress = \"a\"\nshared_memory = true", "test.toml:2: tls.psk_file", "shared memory"},
		{"any beside a name", "[[region]]\nname = \"a\"\nsize = 1\nallow = [\"any\", \"CN=x\"]", "test.toml:4: region.allow", "have it anyway"},
		{"name beside a secret", "[tls]\npsk_file = \"/none\"\n[[region]]\nname = \"a\"\nsize = 1\nallow = [\"CN=x\"]", "test.toml:2: tls.psk_file", "clients have none"},
		{"a secured device without certificate", "[[device]]\naddress = \"a\"\n[device.secure]\nport = 1", "test.toml:3: device.secure.cert", "psk_file"},
		{"a secured device without key", "[[device]]\naddress = \"a\"\n[device.secure]\ncert = \"/x\"", "test.toml:4: device.secure.cert", "device.secure.key: it is missing"},
		{"a secured device and shared memory", "[[device]]\naddress = \"a\"\nshared_memory = true\n[device.secure]\npsk_file = \"/none\"", "test.toml:5: device.secure.psk_file", "/dev/urandom"},
		{"hosts of a secret with names", "[[device]]\naddress = \"a\"\n[device.secure]\npsk_file = \"/none\"\nallow = [\"CN=x\"]", "test.toml:4: device.secure.psk_file", "hosts have none"},
		{"no hosts", "[[device]]\naddress = \"a\"\n[device.secure]\npsk_file = \"/none\"\nallow = []", "test.toml:5: device.secure.allow", "the list is empty"},
		{"hosts without name", "[[device]]\naddress = \"a\"\n[device.secure]\npsk_file = \"/none\"\nallow = [\"x\"]", "test.toml:5: device.secure.allow", "no name of a certificate"},
		{"multicast of a secured device", "[targets]\ngroups = [\"239.1.2.3\"]\n[[device]]\naddress = \"a\"\n[device.secure]\npsk_file = \"/none\"", "test.toml:6: device.secure.psk_file", "multicast"},
		{"empty certificate", "[tls]\ncert = \"\"\nkey = \"/none\"\nca = \"/none\"", "test.toml:2: tls.cert", "given, but empty"},
		{"empty key", "[tls]\nkey = \"\"", "test.toml:2: tls.key", "given, but empty"},
		{"empty authority", "[tls]\nca = \"\"", "test.toml:2: tls.ca", "given, but empty"},
		{"empty secret", "[tls]\npsk_file = \"\"", "test.toml:2: tls.psk_file", "given, but empty"},
		{"empty table", "[tls]", "test.toml:1: tls", "names no file"},
		{"only what clients need", "[tls]\nserver_only = false", "test.toml:1: tls", "names no file"},
		{"empty tls of a region", "[[region]]\nname = \"a\"\nsize = 1\ntls = \"\"", "test.toml:4: region.tls", "given, but empty"},
		{"empty entry of a list", "[[region]]\nname = \"a\"\nsize = 1\nallow = [\"\"]", "test.toml:4: region.allow", "neither an address"},
		{"empty file", "[[region]]\nname = \"a\"\nsize = 1\nfile = \"\"", "test.toml:4: region.file", "given, but empty"},
		{"empty device of a region", "[[region]]\nname = \"a\"\nsize = 1\ndevice = \"\"", "test.toml:4: region.device", "given, but empty"},
		{"empty token", "[admin]\ntoken = \"\"", "test.toml:2: admin.token", "given, but empty"},
		{"empty name of a token file", "[admin]\ntoken_file = \"\"", "test.toml:2: admin.token_file", "given, but empty"},
		{"directory as a token file", "[admin]\ntoken_file = \"/\"", "test.toml:2: admin.token_file", "is a directory"},
		{"no such device", "[[region]]\nname = \"a\"\nsize = 1\ndevice = \"eth7\"", "test.toml:4: region.device", "eth7"},
		{"target", "[targets]\nonly = [\"pong\"]", "test.toml:2: targets.only", "perftest, perftest_uc"},
		{"port of a target", "[targets.ports]\npong = 1", "test.toml:2: targets.ports.pong", "no such target"},
		{"group", "[targets]\ngroups = [\"192.0.2.1\"]", "test.toml:2: targets.groups", "multicast"},
		{"directory", "[targets]\nrcopy_root = \"x\"", "test.toml:2: targets.rcopy_root", "absolute"},
		{"clients", "[targets]\nclients = 0", "test.toml:2: targets.clients", "between 1 and 4096"},
		{"capture", "[capture]\nmemory = 1", "test.toml:2: capture.memory", "64 KiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, tt.text)
			if err == nil || !strings.HasPrefix(err.Error(), tt.line+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q\n%v\nwant %s: ... %s", tt.text, err, tt.line, tt.want)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%T", err)
			}
		})
	}
}

// One run tells all mistakes.
func TestAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parse(t, "drain = \"1h\"\n[log]\nformat = \"xml\"\n[capture]\nmemory = 1\n")
	if err == nil || strings.Count(err.Error(), "test.toml:") != 3 {
		t.Errorf("%v", err)
	}
}

// TestAllMistakesOfTLS has all files of [tls] be wrong.
func TestAllMistakesOfTLS(t *testing.T) {
	t.Parallel()
	_, err := parse(t, "[tls]\ncert = \"/none\"\nkey = \"/none\"\nca = \"/\"\n[[device]]\naddress = \"a\"\nshared_memory = true\n[[region]]\nname = \"a b\"\nsize = 1\n")
	for _, want := range []string{"test.toml:2: tls.cert: open", "test.toml:3: tls.key: open", "test.toml:4: tls.ca: / is a directory", "test.toml:7: device.shared_memory: ", "test.toml:9: region.name: "} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") != 4 {
			t.Errorf("nothing says %q:\n%v", want, err)
		}
	}
}

// TestEmptyOverrides gives values that are empty, by flags and the environment:
// what would be less secure so is a mistake.
func TestEmptyOverrides(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{"tls-cert": "tls.cert", "tls-key": "tls.key", "tls-ca": "tls.ca", "psk": "tls.psk_file", "token": "admin.token", "token-file": "admin.token_file"} {
		env := "ROCEV2D_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		list := FromEnvironment(func(n string) (string, bool) { return "", n == env })
		for from, list := range map[string][]Override{"environment " + env: list, "flag --" + name: {{name, "", "flag --" + name}}} {
			_, err := Load("", list)
			if want := from + ": " + setting + ": given, but empty"; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %s", err, want)
			}
		}
	}
	if list := FromEnvironment(func(string) (string, bool) { return "", true }); len(list) != 6 {
		t.Errorf("an empty environment says %+v", list)
	}
}

// Neither does what cannot be read hide what can be read and is wrong, nor is a
// mistake told twice.
func TestAllErrorsAtOnceFromFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "d.toml")
	text := `drian = "10s"
[log]
level = "loud"
format = "xml"
[admin]
listen = "127.0.0.1:99999"
token = "short"
[[region]]
name = "a b"
size = "-1"
access = "rw"
allow = ["10.0.0.0/33", "foo", "::1"]
[[region]]
name = "b"
size = 0
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file, []Override{{"drain", "soon", "flag --drain"}})
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(strings.ReplaceAll(err.Error(), file, "d"), "\n")
	slices.Sort(got)
	want := []string{"d:10: region.size: ", "d:11: region.access: ", "d:12: region.allow: \"10.0.0.0/33\"", "d:12: region.allow: \"foo\"",
		"d:15: region.size: 0: ", "d:1: drian: ", "d:3: log.level: ", "d:4: log.format: ", "d:6: admin.listen: ", "d:7: admin.token: ", "d:9: region.name: ", "flag --drain: "}
	if len(got) != len(want) {
		t.Fatalf("%d errors, want %d:\n%v", len(got), len(want), err)
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("%s\nwant %s", got[i], w)
		}
	}
	// What a flag puts in the place of a list is read in its stead; what
	// the file has there is wrong all the same.
	if _, err := Load(file, []Override{{"region", "x=0", "flag --region"}}); err == nil || !strings.Contains(err.Error(), "flag --region: region.size") {
		t.Errorf("%v", err)
	}
}

// The example says every setting, and its comments the defaults.
func TestExample(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../rocev2d.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(t, string(b))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 1 || len(c.Regions) != 1 || c.Regions[0].Size != 64<<20 || c.Regions[0].Access != ReadWrite {
		t.Errorf("%+v", c)
	}
	// With all that is commented out, no setting is unknown, and every
	// setting that there is was used.
	text := strings.ReplaceAll(string(b), "#: ", "")
	all := Default()
	if err := all.Parse("all", text); err != nil {
		t.Fatal(err)
	}
	d := Default()
	d.Parse("x", "zz=1\n[log]\nzz=1\n[admin]\nzz=1\n[[device]]\nzz=1\n[[region]]\nzz=1\n[targets]\nzz=1\n[capture]\nzz=1")
	err = d.Parse("x", "zz=1\n[log]\nzz=1\n[admin]\nzz=1\n[[device]]\nzz=1\n[[region]]\nzz=1\n[targets]\nzz=1\n[capture]\nzz=1")
	seen := 0
	for line := range strings.Lines(err.Error()) {
		_, list, ok := strings.Cut(line, " has ")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimSpace(list), ", ") {
			seen++
			if !strings.Contains(text, "\n"+name+" = ") && !strings.Contains(text, "["+name+"]") && !strings.Contains(text, "."+name+"]") {
				t.Errorf("the example lacks %q", name)
			}
		}
	}
	if seen < 25 {
		t.Errorf("saw %d settings", seen)
	}
	for _, name := range TargetNames {
		if !strings.Contains(text, name) {
			t.Errorf("the example does not name the target %s", name)
		}
	}
}

// Flags come before the environment, which comes before the file.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("drain=\"1s\"\n[log]\nlevel=\"debug\"\nformat=\"json\"\n[[device]]\naddress=\"127.0.0.9\"\n[[device]]\naddress=\"127.0.0.8\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ROCEV2D_LOG_LEVEL": "warn", "ROCEV2D_DEVICE": "127.0.0.2, 127.0.0.3", "ROCEV2D_TOKEN": "0123456789abcdef", "ROCEV2D_ADMIN": "0.0.0.0:0"}
	from := FromEnvironment(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	c, err := Load(file, append(from, Override{"log-level", "error", "flag --log-level"}, Override{"region", "a=1MiB;write;allow=192.0.2.0/24", "flag --region"}))
	if err != nil {
		t.Fatal(err)
	}
	var devices []string
	for _, d := range c.Devices {
		devices = append(devices, d.Address)
	}
	if c.Log.Level != slog.LevelError || c.Log.Format != "json" || c.Drain != time.Second || !slices.Equal(devices, []string{"127.0.0.2", "127.0.0.3"}) ||
		c.Admin.Token != "0123456789abcdef" || len(c.Regions) != 1 || c.Regions[0].Access != ReadWrite || c.Regions[0].Size != 1<<20 {
		t.Errorf("%+v", c)
	}
	for name, want := range map[string]string{"log.level": "flag --log-level", "admin.listen": "environment ROCEV2D_ADMIN", "drain": file + ":1"} {
		if got := c.Where(name); got != want {
			t.Errorf("%s is from %q, want %q", name, got, want)
		}
	}
	for _, o := range []Override{
		{"log-level", "loud", "flag --log-level"}, {"region", "a", "flag --region"}, {"region", "a=1x", "flag --region"}, {"region", "a=1;b", "flag --region"},
		{"region", "a=1;allow=x", "flag --region"}, {"region", "a/b=1", "flag --region"}, {"drain", "x", "flag --drain"}, {"pprof", "x", "flag --pprof"},
		{"admin", "0.0.0.0:1", "flag --admin"}, {"token-file", "/nonexistent", "flag --token-file"}, {"targets", "x", "flag --targets"}, {"log-format", "x", "flag --log-format"},
	} {
		if _, err := Load(file, []Override{o}); err == nil || !strings.HasPrefix(err.Error(), o.From) {
			t.Errorf("%v: %v", o, err)
		}
	}
}

func TestAccessList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list []string
		yes  []string
		no   []string
	}{
		{nil, []string{"127.0.0.1", "127.9.9.9", "::1"}, []string{"192.0.2.1", "fd00::1"}},
		{[]string{"any"}, []string{"192.0.2.1", "fd00::1"}, nil},
		{[]string{"192.0.2.0/24", "fd00::1"}, []string{"192.0.2.77", "::ffff:192.0.2.77", "fd00::1"}, []string{"127.0.0.1", "192.0.3.1", "fd00::2"}},
		{[]string{"fe80::/10"}, []string{"fe80::1%eth0"}, []string{"fd00::1"}},
	} {
		var r Region
		if err := r.SetAllow(tt.list); err != nil {
			t.Fatal(err)
		}
		for _, a := range tt.yes {
			if !r.Allowed(netip.MustParseAddr(a)) {
				t.Errorf("%v refuses %s", tt.list, a)
			}
		}
		for _, a := range tt.no {
			if r.Allowed(netip.MustParseAddr(a)) {
				t.Errorf("%v lets %s in", tt.list, a)
			}
		}
	}
}

// A reload says what waits for a restart, and nothing of what does not.
func TestNeedRestart(t *testing.T) {
	t.Parallel()
	load := func(text string) *Config {
		c, err := parse(t, text)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const base = "[[device]]\naddress=\"a\"\n"
	old := load(base)
	if s := old.NeedRestart(load(base + "[log]\nlevel=\"debug\"\n[[region]]\nname=\"x\"\nsize=1\n[admin]\ntoken=\"0123456789abcdef\"\n")); len(s) > 0 {
		t.Errorf("%v", s)
	}
	for text, want := range map[string]string{
		"": "device", base + "[log]\nformat=\"json\"": "log.format", base + "[admin]\nlisten=\"\"": "admin.listen", base + "[admin]\npprof=true": "admin.pprof",
		base + "[targets]\nenabled=false": "targets", base + "[capture]\nmemory=\"1 MiB\"": "capture.memory",
	} {
		if s := old.NeedRestart(load(text)); !slices.Equal(s, []string{want}) {
			t.Errorf("%q: %v, want %s", text, s, want)
		}
	}
}

// FuzzParse feeds files: nothing crashes, and every error has a place.
func FuzzParse(f *testing.F) {
	b, err := os.ReadFile("../../rocev2d.example.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add("a = [\n[b]]\n'c' = \"\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		c := Default()
		if err := c.Parse("f", text); err != nil && !strings.HasPrefix(err.Error(), "f") {
			t.Errorf("%v", err)
		}
	})
}
