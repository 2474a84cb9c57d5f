package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/internal/regular"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// TargetNames are the names that Targets.Only and Targets.Ports may have.
// Package server sets up what they stand for.
var TargetNames = []string{"perftest", "perftest_uc", "perftest_ud", "conformance", "rping", "rdma_server", "ucmatose", "cmtime", "rstream", "rcopy", "udaddy", "mckey"}

// setLevel reads a log level.
func (c *Config) setLevel(s string) error {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, l.String()) {
			c.Log.Level = l
			return nil
		}
	}
	question := closest.Question(s, []string{"debug", "info", "warn", "error"})
	return fmt.Errorf("there is no log level %q; there are debug, info, warn and error%s", s, question)
}

// checker gathers what is wrong.
type checker struct {
	c    *Config
	errs []error
}

func (k *checker) fail(setting, format string, args ...any) {
	if k.c.wrong[setting] { // it has not been read
		return
	}
	k.errs = append(k.errs, k.c.Wrong(setting, format, args...))
}

// Wrong returns an *Error that says what is wrong with a setting, and where it
// comes from.
func (c *Config) Wrong(setting, format string, args ...any) error {
	return &Error{c.Where(setting), withoutIndex(setting), fmt.Sprintf(format, args...)}
}

// Where returns where a setting comes from: a line of the file, a flag or an
// environment variable.
func (c *Config) Where(setting string) string {
	for p := setting; p != ""; {
		if w := c.where[p]; w != "" {
			return w
		}
		i := strings.LastIndexByte(p, '.')
		p = p[:max(i, 0)]
	}
	if c.File != "" {
		return c.File
	}
	return "the defaults"
}

// Check reads the file of the token, and returns what is wrong with the
// configuration, all of it. The error joins an *Error for each mistake.
func (c *Config) Check() error {
	k := &checker{c: c}
	if c.Drain < 0 || c.Drain > 10*time.Minute {
		k.fail("drain", "%v: it must be between 0s and 10m", c.Drain)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		k.fail("log.format", "%q: it must be text or json", c.Log.Format)
	}
	k.congestion("congestion", c.Congestion)
	k.strict("", c.Strict, c.Profile)
	for i := range c.Devices {
		k.congestion(fmt.Sprintf("device.%d.congestion", i), c.Devices[i].Congestion)
		k.strict(fmt.Sprintf("device.%d.", i), c.Devices[i].Strict, c.Devices[i].Profile)
	}
	k.admin(&c.Admin)
	k.devices()
	for i := range c.Regions {
		k.region(i)
	}
	k.tls()
	k.targets(&c.Targets)
	k.programs(&c.Programs)
	if c.Capture.Bytes < 64<<10 || c.Capture.Bytes > 1<<30 {
		k.fail("capture.memory", "%d: it must be between 64 KiB and 1 GiB", c.Capture.Bytes)
	}
	return errors.Join(k.errs...)
}

// congestion checks a choice of congestion control.
func (k *checker) congestion(setting, text string) {
	if text == "" {
		return
	}
	if err := cc.CheckHosts(text); err != nil {
		k.fail(setting, "%v", err)
	}
}

// strict checks strict mode: its settings have names after a prefix.
func (k *checker) strict(prefix, rules, profile string) {
	if _, err := strict.ParseSet(rules); err != nil {
		k.fail(prefix+"strict", "%v", err)
	}
	if profile == "" {
		return
	}
	if _, err := strict.ProfileNamed(profile); err != nil {
		k.fail(prefix+"profile", "%v", err)
	}
}

// minToken is how many characters a token has at least, and maxToken how many
// bytes its file has at most.
const (
	minToken = 16
	maxToken = 4096
)

func (k *checker) admin(a *Admin) {
	if a.TokenFile != "" {
		if a.Token != "" && k.c.where["admin.token"] != k.c.where["admin.token_file"] {
			k.fail("admin.token_file", "there is also a token: give one of the two")
		} else if b, err := regular.Read(a.TokenFile, maxToken); err != nil {
			k.fail("admin.token_file", "%v", err)
		} else if a.Token = strings.TrimSpace(string(b)); a.Token == "" {
			k.fail("admin.token_file", "%s has nothing in it", a.TokenFile)
		} else {
			k.c.where["admin.token"] = k.c.where["admin.token_file"]
		}
	}
	if a.Token != "" && (len(a.Token) < minToken || strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		k.fail("admin.token", "a token has at least %d characters, and no blanks; \"openssl rand -hex 16\" makes one", minToken)
	}
	k.listener("admin.health", a.Health)
	if a.Health != "" && a.Health == a.Listen && !strings.HasSuffix(a.Health, ":0") {
		k.fail("admin.health", "%q is admin.listen already, which answers the probes, too; take another port", a.Health)
	}
	host := k.listener("admin.listen", a.Listen)
	if host != "" && !loopback(host) && a.Token == "" && a.TokenFile == "" {
		k.fail("admin.listen", "%q can be reached from other hosts, so it needs a token: set token_file, or listen on 127.0.0.1", a.Listen)
	}
}

// listener checks where HTTP is served, and returns the host: "" if it is not
// served, or wrong.
func (k *checker) listener(setting, where string) (host string) {
	if where == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(where)
	if err != nil {
		k.fail(setting, "%q is not HOST:PORT, such as %q", where, DefaultAdmin)
		return ""
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		k.fail(setting, "%q: a port is a number from 0 to 65535, not %q", where, port)
	} else if n == 4791 {
		k.fail(setting, "%q: 4791 is the UDP port of RoCEv2; take another number, to keep the two apart", where)
	}
	if host == "" {
		return "::" // every address
	}
	return host
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func (k *checker) devices() {
	seen := map[string]int{}
	for i := range k.c.Devices {
		d := &k.c.Devices[i]
		at := fmt.Sprintf("device.%d", i)
		if d.Address == "" {
			k.fail(at+".address", "it is missing; it is an address of this host, such as \"192.0.2.1\", or an interface, such as \"eth0\"")
		} else if first, twice := seen[d.Address]; twice {
			k.fail(at+".address", "%q is the device of %s already", d.Address, k.c.Where(fmt.Sprintf("device.%d", first)))
		}
		seen[d.Address] = i
		if d.Shards < 0 || d.Shards > 64 || d.Shards&(d.Shards-1) != 0 {
			k.fail(at+".shards", "%d: it must be a power of two up to 64", d.Shards)
		}
		k.port(at+".regions_port", d.Regions)
		k.guard(d, at)
	}
}

func (k *checker) port(setting string, n int) {
	if n < 0 || n > 65535 {
		k.fail(setting, "%d: a port is a number from 1 to 65535, and 0 means none", n)
	}
}

// MaxName is how long the name of a region may be, in bytes.
const MaxName = 64

func (k *checker) region(i int) {
	r := &k.c.Regions[i]
	at := fmt.Sprintf("region.%d", i)
	if why := badName(r.Name); why != "" {
		k.fail(at+".name", "%s", why)
	}
	for j := range i {
		o := &k.c.Regions[j]
		if o.Name == r.Name && (o.Device == r.Device || o.Device == "" || r.Device == "") {
			k.fail(at+".name", "%q is the name of the region of %s already", r.Name, k.c.Where(fmt.Sprintf("region.%d", j)))
		}
	}
	if r.Access != ReadOnly && r.Access != ReadWrite {
		k.fail(at+".access", "%q: it must be %q or %q", r.Access, ReadOnly, ReadWrite)
	}
	switch {
	case r.Size == 0 && r.File == "" && k.c.where[at+".size"] != "":
		k.fail(at+".size", "0: a region without a file needs a size, such as \"64 MiB\"")
	case r.Size < 0 || r.Size == 0 && r.File == "":
		k.fail(at+".size", "it is missing; a region without a file needs a size, such as \"64 MiB\"")
	case r.File != "" && !filepath.IsAbs(r.File):
		k.fail(at+".file", "%q is not an absolute path", r.File)
	}
	if r.Device != "" && !slices.ContainsFunc(k.c.Devices, func(d Device) bool { return d.Address == r.Device }) {
		k.fail(at+".device", "there is no [[device]] with the address %q", r.Device)
	}
}

// badName says what is wrong with the name of a region, or nothing.
func badName(name string) string {
	switch {
	case name == "":
		return "it is missing; clients find the region by it"
	case len(name) > MaxName:
		return fmt.Sprintf("%q is too long: a name has at most %d characters", name, MaxName)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Sprintf("%q: a name has letters, digits, '.', '_' and '-' only", name)
		}
	}
	return ""
}

func (k *checker) targets(t *Targets) {
	for _, name := range t.Only {
		if !slices.Contains(TargetNames, name) {
			k.fail("targets.only", "there is no target %q; there are %s%s", name, strings.Join(TargetNames, ", "), closest.Question(name, TargetNames))
		}
	}
	for name, port := range t.Ports {
		if !slices.Contains(TargetNames, name) {
			k.fail("targets.ports."+name, "there is no such target; there are %s%s", strings.Join(TargetNames, ", "), closest.Question(name, TargetNames))
		}
		k.port("targets.ports."+name, port)
	}
	for _, g := range t.Groups {
		if a, err := netip.ParseAddr(g); err != nil || !a.IsMulticast() {
			k.fail("targets.groups", "%q is not a multicast address, such as \"239.1.2.3\"", g)
		}
	}
	if t.Root != "" && !filepath.IsAbs(t.Root) {
		k.fail("targets.rcopy_root", "%q is not an absolute path", t.Root)
	}
	if t.Clients < 1 || t.Clients > 4096 {
		k.fail("targets.clients", "%d: it must be between 1 and 4096", t.Clients)
	}
}

func (k *checker) programs(p *Programs) {
	if p.Dir != "" && !filepath.IsAbs(p.Dir) {
		k.fail("programs.directory", "%q is not an absolute path", p.Dir)
	}
	if len(filepath.Join(p.Dir, "socket")) > maxSocketPath {
		k.fail("programs.directory", "%q is too long: the address of a Unix socket has at most %d bytes", p.Dir, maxSocketPath)
	}
	const leastBuffer = 64 << 10
	if b := p.Lease.Buffers; b != 0 && (b < leastBuffer || b > 1<<30) {
		k.fail("programs.buffers", "%d: it must be between 64 KiB and 1 GiB, or 0", b)
	}
	if _, err := p.UIDs(); err != nil {
		k.fail("programs.users", "%v", err)
	}
	if _, err := p.gids(); err != nil {
		k.fail("programs.groups", "%v", err)
	}
}

const maxSocketPath = 107
