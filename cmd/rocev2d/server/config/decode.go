package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/internal/tomllines"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// Error is a mistake in the configuration.
type Error struct {
	Where   string // "FILE:LINE", "flag --NAME" or "environment NAME"
	Setting string // "region.name"; empty where the file is not TOML
	Problem string // what is wrong, and what is allowed
}

func (e *Error) Error() string {
	if e.Setting == "" {
		return e.Where + ": " + e.Problem
	}
	return e.Where + ": " + e.Setting + ": " + e.Problem
}

// document is a file that is being read.
type document struct {
	file  string
	lines map[string]int
	where map[string]string
	wrong map[string]bool
	errs  []error
}

// Parse reads the text of a configuration file over what c has. The error
// joins an *Error for each mistake.
func (c *Config) Parse(file, text string) error {
	c.File = file
	var root map[string]any
	if _, err := toml.Decode(text, &root); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return &Error{Where: fmt.Sprintf("%s:%d", file, max(pe.Position.Line, 1)), Problem: "this is not TOML: " + pe.Message}
		}
		return &Error{Where: file, Problem: err.Error()}
	}
	d := &document{file: file, lines: tomllines.Find(text), where: c.where, wrong: c.wrong}
	c.decode(d.table("", root, "a configuration"))
	return errors.Join(d.errs...)
}

func (c *Config) decode(t *table) {
	t.duration("drain", &c.Drain)
	t.text("congestion", &c.Congestion)
	t.text("strict", &c.Strict)
	t.text("profile", &c.Profile)
	if s := t.sub("log", "[log]"); s != nil {
		level := ""
		s.text("level", &level)
		s.try("level", level, c.setLevel)
		s.text("format", &c.Log.Format)
		s.end()
	}
	if s := t.sub("admin", "[admin]"); s != nil {
		s.text("listen", &c.Admin.Listen)
		s.given("token", &c.Admin.Token)
		s.given("token_file", &c.Admin.TokenFile)
		s.texts("hosts", &c.Admin.Hosts)
		s.boolean("pprof", &c.Admin.PProf)
		s.text("health", &c.Admin.Health)
		s.end()
	}
	if s := t.sub("tls", "[tls]"); s != nil {
		c.decodeTLS(s)
	}
	for _, s := range t.list("device", "a [[device]]") {
		c.Devices = append(c.Devices, s.device())
	}
	for _, s := range t.list("region", "a [[region]]") {
		c.Regions = append(c.Regions, s.region())
	}
	if s := t.sub("targets", "[targets]"); s != nil {
		c.decodeTargets(s)
	}
	if s := t.sub("programs", "[programs]"); s != nil {
		c.decodePrograms(s)
	}
	if s := t.sub("capture", "[capture]"); s != nil {
		s.bytes("memory", &c.Capture.Bytes)
		s.end()
	}
	t.end()
}

func (t *table) device() Device {
	d := Device{Regions: DefaultRegionsPort}
	t.text("address", &d.Address)
	t.number("shards", &d.Shards)
	t.bytes("receive_buffer", &d.RecvBuffer)
	t.bytes("send_buffer", &d.SendBuffer)
	t.number("regions_port", &d.Regions)
	t.boolean("shared_memory", &d.Shm)
	t.text("congestion", &d.Congestion)
	t.text("strict", &d.Strict)
	t.text("profile", &d.Profile)
	d.decodeGuard(t)
	t.end()
	return d
}

func (c *Config) decodeTargets(s *table) {
	s.boolean("enabled", &c.Targets.Enabled)
	s.texts("only", &c.Targets.Only)
	s.texts("groups", &c.Targets.Groups)
	s.text("rcopy_root", &c.Targets.Root)
	s.bytes("rcopy_largest", &c.Targets.Largest)
	s.boolean("any_peer", &c.Targets.Any)
	s.number("clients", &c.Targets.Clients)
	if p := s.sub("ports", "[targets.ports]"); p != nil {
		for _, name := range slices.Sorted(maps.Keys(p.values)) {
			var port int
			p.number(name, &port)
			c.Targets.Ports[name] = port
		}
	}
	s.end()
}

func (c *Config) decodePrograms(s *table) {
	p := &c.Programs
	s.text("directory", &p.Dir)
	var users []string
	s.texts("users", &users)
	p.setUsers(users)
	s.texts("groups", &p.Groups)
	for name, instead := range goneFromPrograms {
		s.gone(name, instead)
	}
	s.number("queue_pairs", &p.Lease.QPs)
	s.bytes("buffers", &p.Lease.Buffers)
	s.number("cm_rate", &p.Lease.MADs)
	s.number("leases_per_user", &p.Lease.PerUser)
	s.end()
}

// goneFromPrograms are settings that there are no more, and what does their
// work.
var goneFromPrograms = map[string]string{
	"files":              "a program's files are its own now; leases_per_user bounds the processes of a user",
	"files_per_user":     "a program's files are its own now; leases_per_user bounds the processes of a user",
	"memory_regions":     "a program's memory is its own now; ulimit -l and cgroups bound it",
	"completion_entries": "a program's queues are in its own memory now; cgroups bound it",
	"queue_memory":       "a program's queues are in its own memory now; cgroups bound it",
	"user":               "there are no accounts of users any more; queue_pairs bounds each process, and leases_per_user their number",
}

func (p *Programs) setUsers(list []string) {
	p.Any = slices.Contains(list, "any")
	p.Users = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "any" })
}

func (t *table) region() Region {
	r := Region{Access: ReadOnly}
	t.text("name", &r.Name)
	var size int
	t.bytes("size", &size)
	r.Size = int64(size)
	t.given("file", &r.File)
	t.text("access", (*string)(&r.Access))
	t.given("device", &r.Device)
	t.tls(&r)
	var allow []string
	t.texts("allow", &allow)
	for _, err := range r.setAllow(allow) {
		t.fail("allow", "%s", err.Error())
	}
	t.end()
	return r
}

// SetAllow reads an access list: addresses, networks, names of certificates, or
// "any". The error joins one for each entry that is none of these.
func (r *Region) SetAllow(list []string) error { return errors.Join(r.setAllow(list)...) }

func (r *Region) setAllow(list []string) (errs []error) {
	r.Allow, r.Names, r.Any = nil, nil, false
	for _, s := range list {
		if s == "any" {
			r.Any = true
			continue
		}
		if secure.IsName(s) {
			if err := r.addName(s); err != nil {
				errs = append(errs, err)
			}
			continue
		}
		p, err := prefix(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%q is neither an address, nor a network such as 192.0.2.0/24, nor a name of a certificate such as \"CN=backup.example\", nor \"any\"", s))
			continue
		}
		r.Allow = append(r.Allow, p)
	}
	return errs
}

// prefix reads an address or a network. Those of IPv4 are IPv4, however they
// are written, because clients have them so.
func prefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p.Masked(), err
	}
	a, err := netip.ParseAddr(s)
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen()), err
}

// table is a part of the file. Its methods remember which settings there are.
type table struct {
	doc    *document
	path   string
	what   string // in errors: "a [[region]]"
	values map[string]any
	known  []string
}

func (d *document) table(path string, values map[string]any, what string) *table {
	if n := d.lines[path]; n > 0 {
		d.where[path] = fmt.Sprintf("%s:%d", d.file, n)
	}
	return &table{doc: d, path: path, what: what, values: values}
}

func (t *table) at(key string) string {
	path := join(t.path, key)
	for p := path; p != ""; {
		if n := t.doc.lines[p]; n > 0 {
			return fmt.Sprintf("%s:%d", t.doc.file, n)
		}
		i := strings.LastIndexByte(p, '.')
		p = p[:max(i, 0)]
	}
	return t.doc.file
}

func (t *table) fail(key, format string, args ...any) {
	t.doc.wrong[join(t.path, key)] = true
	t.doc.errs = append(t.doc.errs, &Error{t.at(key), withoutIndex(join(t.path, key)), fmt.Sprintf(format, args...)})
}

// withoutIndex makes "region.name" of "region.1.name": the line says which one.
func withoutIndex(path string) string {
	parts := strings.Split(path, ".")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool {
		_, err := strconv.Atoi(p)
		return err == nil
	}), ".")
}

// take returns a setting, if it is there and of the type T.
func take[T any](t *table, key, want string) (v T, ok bool) {
	t.known = append(t.known, key)
	raw, there := t.values[key]
	if !there {
		return v, false
	}
	t.doc.where[join(t.path, key)] = t.at(key)
	if v, ok = raw.(T); !ok {
		t.fail(key, "it must be %s, not %s", want, kindOf(raw))
	}
	return v, ok
}

// gone refuses a setting that there is no more, and says what to do instead.
func (t *table) gone(key, instead string) {
	if _, there := t.values[key]; there {
		t.known = append(t.known, key)
		t.fail(key, "there is no such setting any more: %s", instead)
	}
}

func kindOf(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case int64, float64, bool:
		return fmt.Sprint(v)
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	}
	return "a date"
}

func (t *table) text(key string, to *string) {
	if v, ok := take[string](t, key, "a text in quotes"); ok {
		*to = v
	}
}

// given is as text. What is given is not empty: it would stand for less than
// the user wants, such as connections in clear.
func (t *table) given(key string, to *string) {
	if t.text(key, to); t.values[key] == "" {
		t.fail(key, "%s", errEmpty)
	}
}

// errEmpty is what is wrong with a setting that must not be empty.
var errEmpty = errors.New("given, but empty: give a value, or leave the setting out")

func (t *table) boolean(key string, to *bool) {
	if v, ok := take[bool](t, key, "true or false"); ok {
		*to = v
	}
}

func (t *table) number(key string, to *int) {
	if v, ok := take[int64](t, key, "a number"); ok {
		if v < 0 || v > math.MaxInt32 {
			t.fail(key, "%d: it must be between 0 and %d", v, math.MaxInt32)
			return
		}
		*to = int(v)
	}
}

func (t *table) try(key, value string, set func(string) error) {
	if value == "" {
		return
	}
	if err := set(value); err != nil {
		t.fail(key, "%s", err.Error())
	}
}

func (t *table) duration(key string, to *time.Duration) {
	if v, ok := take[string](t, key, `a time in quotes, such as "10s"`); ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.fail(key, `%q is not a time; write it as "500ms", "10s" or "1m"`, v)
			return
		}
		*to = d
	}
}

func (t *table) bytes(key string, to *int) {
	if n, ok := t.values[key].(int64); ok && n >= 0 && n <= math.MaxInt {
		t.number64(key, to)
		return
	}
	if v, ok := take[string](t, key, `a size: a number of bytes, or a text such as "64 MiB"`); ok {
		n, err := ParseSize(v)
		if err != nil {
			t.fail(key, "%s", err.Error())
			return
		}
		*to = n
	}
}

func (t *table) number64(key string, to *int) {
	v, _ := take[int64](t, key, "a number")
	*to = int(v)
}

func (t *table) texts(key string, to *[]string) {
	list, ok := take[[]any](t, key, `a list of texts, such as ["192.0.2.0/24"]`)
	if !ok {
		return
	}
	*to = nil
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			t.fail(key, "%s is not a text in quotes", kindOf(v))
			continue
		}
		*to = append(*to, s)
	}
}

// sub returns the table under a key, or nil.
func (t *table) sub(key, what string) *table {
	v, ok := take[map[string]any](t, key, "a table, which begins with a line "+what)
	if !ok {
		return nil
	}
	return t.doc.table(join(t.path, key), v, what)
}

// list returns the tables of an array.
func (t *table) list(key, what string) (list []*table) {
	v, _ := take[[]map[string]any](t, key, fmt.Sprintf("a list of tables, of which each begins with a line [[%s]]", key))
	for i, m := range v {
		list = append(list, t.doc.table(fmt.Sprintf("%s.%d", join(t.path, key), i), m, what))
	}
	return list
}

// end complains of settings that do not exist.
func (t *table) end() {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if !slices.Contains(t.known, key) {
			t.fail(key, "there is no such setting; %s has %s%s", t.what, strings.Join(t.known, ", "), closest.Question(key, t.known))
		}
	}
}

var units = []struct {
	name   string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes, with a unit or without.
func ParseSize(s string) (int, error) {
	text := strings.TrimSpace(s)
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := text[len(number):]
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	for _, u := range units {
		if err == nil && n >= 0 && u.name == unit {
			if n*u.factor >= math.MaxInt {
				return 0, fmt.Errorf("%q is more than this machine can address", s)
			}
			return int(n * u.factor), nil
		}
	}
	return 0, fmt.Errorf("%q is not a size; write it as a number of bytes, or with a unit: \"4096\", \"64 KiB\", \"1.5 GiB\", \"10 MB\"", s)
}

// join returns the name of a setting in a table.
func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}
