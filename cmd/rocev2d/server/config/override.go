package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/internal/regular"
)

// Override is a setting that a flag or the environment gives in place of the
// file.
type Override struct {
	Name  string // of the setting, see Overridable
	Value string
	From  string // "flag --log-level", "environment ROCEV2D_LOG_LEVEL"
}

// Overridable is a setting that a flag and an environment variable can give.
// A list is replaced as a whole; its entries are separated by commas in the
// environment, and repeated as flags.
type Overridable struct {
	Name, Help string
	List       bool // the flag may be repeated
	Secret     bool // no flag: all users see the arguments of a process
	Filled     bool // an empty value is a mistake, also in the environment, where it stands for none elsewhere
	set        func(c *Config, value string) error
}

// Environment returns the name of the environment variable: ROCEV2D_LOG_LEVEL
// for log-level.
func (o *Overridable) Environment() string {
	return "ROCEV2D_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// Overrides are the settings that flags and the environment can give.
var Overrides = []Overridable{
	{Name: "device", List: true, Help: "`address` of this host, or interface, to open a device on (repeatable)", set: addDevice},
	{Name: "region", List: true, Help: "export memory: `NAME=SIZE`, then options after semicolons: write, tls, file=PATH, allow=ADDRESS, allow=CN=NAME (repeatable)", set: addRegion},
	{Name: "admin", Help: "`HOST:PORT` of the page, the metrics and the JSON interface; \"off\" for none", set: func(c *Config, v string) error {
		if c.Admin.Listen = v; v == "off" {
			c.Admin.Listen = ""
		}
		return nil
	}},
	{Name: "health", Help: "`HOST:PORT` where the probes /healthz and /readyz are answered, and nothing else, without a token; \"off\" for none", set: func(c *Config, v string) error {
		if c.Admin.Health = v; v == "off" {
			c.Admin.Health = ""
		}
		return nil
	}},
	{Name: "token", Filled: true, Secret: true, Help: "token that the admin listener asks for", set: func(c *Config, v string) error {
		c.Admin.Token, c.Admin.TokenFile = v, ""
		return nil
	}},
	{Name: "token-file", Filled: true, Help: "`FILE` with the token that the admin listener asks for", set: func(c *Config, v string) error {
		c.Admin.TokenFile, c.Admin.Token = v, ""
		return nil
	}},
	{Name: "tls-cert", Filled: true, Help: "`FILE` with the certificate for secured connections of clients of regions (PEM; docs/secure.md)", set: func(c *Config, v string) error { c.TLS.Cert = v; return nil }},
	{Name: "tls-key", Filled: true, Help: "`FILE` with the private key of --tls-cert", set: func(c *Config, v string) error { c.TLS.Key = v; return nil }},
	{Name: "tls-ca", Filled: true, Help: "`FILE` with the authority that has issued the certificates of clients", set: func(c *Config, v string) error { c.TLS.CA = v; return nil }},
	{Name: "psk", Filled: true, Help: "`FILE` with a secret that clients have, too, in place of certificates", set: func(c *Config, v string) error { c.TLS.PSK = v; return nil }},
	{Name: "targets", Help: "`on`, off, or the names of those to run, separated by commas", set: setTargets},
	{Name: "programs", Help: "`DIR` of what unmodified verbs programs of this host need to use the devices; \"off\" for none", set: func(c *Config, v string) error {
		if c.Programs.Dir = v; v == "off" {
			c.Programs.Dir = ""
		}
		return nil
	}},
	{Name: "programs-users", Help: "`users` whose programs may share the ports of the devices, separated by commas, or \"any\"", set: func(c *Config, v string) error {
		c.Programs.setUsers(strings.Split(v, ","))
		return nil
	}},
	{Name: "programs-groups", Help: "`groups` whose members' programs may share the ports, too, separated by commas", set: func(c *Config, v string) error {
		c.Programs.Groups = strings.Split(v, ",")
		return nil
	}},
	{Name: "strict", Help: "strict mode of the devices, which behave like adapters then, by `rules`: on, all, off, or names (docs/strict.md)", set: func(c *Config, v string) error {
		c.Strict = v
		return nil
	}},
	{Name: "profile", Help: "the limits of an adapter for the devices, `mlx5`, rxe or efa, and strict mode", set: func(c *Config, v string) error {
		c.Profile = v
		return nil
	}},
	{Name: "congestion", Help: "congestion `control` of the devices: window (the default), static, dcqcn, dcqcn-adapter, dcqcn-host, swift or timely, with options such as dcqcn,line=25G", set: func(c *Config, v string) error {
		c.Congestion = v
		return nil
	}},
	{Name: "log-level", Help: "`level` of what is logged: debug, info, warn or error", set: (*Config).setLevel},
	{Name: "log-format", Help: "`format` of the log: text or json", set: func(c *Config, v string) error { c.Log.Format = v; return nil }},
	{Name: "drain", Help: "how long transfers may go on after SIGTERM, as a `time` such as 10s", set: func(c *Config, v string) (err error) {
		if c.Drain, err = time.ParseDuration(v); err != nil {
			err = fmt.Errorf("%q is not a time; write it as 500ms, 10s or 1m", v)
		}
		return err
	}},
	{Name: "pprof", Help: "serve the profiles of the process on the admin listener: `true` or false", set: func(c *Config, v string) (err error) {
		if c.Admin.PProf, err = strconv.ParseBool(v); err != nil {
			err = fmt.Errorf("%q is neither true nor false", v)
		}
		return err
	}},
}

// setting is the name that a setting has in the file, for those that Check may
// complain of.
func setting(c *Config, name string) string {
	switch name {
	case "device":
		return fmt.Sprintf("device.%d", len(c.Devices)-1)
	case "region":
		return fmt.Sprintf("region.%d", len(c.Regions)-1)
	case "admin":
		return "admin.listen"
	case "health":
		return "admin.health"
	case "token":
		return "admin.token"
	case "token-file":
		return "admin.token_file"
	case "tls-cert", "tls-key", "tls-ca":
		return "tls." + strings.TrimPrefix(name, "tls-")
	case "psk":
		return "tls.psk_file"
	case "targets":
		return "targets.only"
	case "programs":
		return "programs.directory"
	case "programs-users":
		return "programs.users"
	case "programs-groups":
		return "programs.groups"
	case "log-level":
		return "log.level"
	case "log-format":
		return "log.format"
	case "pprof":
		return "admin.pprof"
	}
	return name
}

// apply sets what overrides say. A later one wins, and the first of a list
// replaces what was there.
func (c *Config) apply(list []Override) error {
	var errs []error
	begun := map[string]string{}
	for _, o := range list {
		i := slices.IndexFunc(Overrides, func(s Overridable) bool { return s.Name == o.Name })
		if i < 0 {
			errs = append(errs, &Error{Where: o.From, Problem: fmt.Sprintf("there is no setting %q", o.Name)})
			continue
		}
		if Overrides[i].List && begun[o.Name] != o.From {
			begun[o.Name] = o.From
			c.clear(o.Name)
		}
		if o.Value == "" && Overrides[i].Filled {
			c.wrong[setting(c, o.Name)] = true
			errs = append(errs, &Error{o.From, setting(c, o.Name), errEmpty.Error()})
			continue
		}
		if err := Overrides[i].set(c, o.Value); err != nil {
			errs = append(errs, &Error{Where: o.From, Problem: err.Error()})
			continue
		}
		c.where[setting(c, o.Name)] = o.From
	}
	return errors.Join(errs...)
}

// clear empties a list.
func (c *Config) clear(name string) {
	if name == "device" {
		c.Devices = nil
	} else {
		c.Regions = nil
	}
	maps.DeleteFunc(c.wrong, func(w string, _ bool) bool { return strings.HasPrefix(w, name+".") })
	for w := range c.where {
		if strings.HasPrefix(w, name+".") {
			delete(c.where, w)
		}
	}
}

func addDevice(c *Config, v string) error {
	c.Devices = append(c.Devices, Device{Address: v, Regions: DefaultRegionsPort})
	return nil
}

// addRegion reads NAME=SIZE[;write][;tls][;file=PATH][;allow=ADDRESS]...
func addRegion(c *Config, v string) error {
	parts := strings.Split(v, ";")
	name, size, ok := strings.Cut(parts[0], "=")
	if !ok {
		return fmt.Errorf("%q is not NAME=SIZE, such as scratch=64MiB", v)
	}
	r := Region{Name: name, Access: ReadOnly}
	var allow []string
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(p, "=")
		switch {
		case p == "write":
			r.Access = ReadWrite
		case p == "tls":
			r.TLS = true
		case key == "file":
			r.File = value
		case key == "allow":
			allow = append(allow, value)
		default:
			return fmt.Errorf("%q: there is no option %q; there are write, tls, file=PATH and allow=ADDRESS", v, p)
		}
	}
	if size != "" {
		n, err := ParseSize(size)
		if err != nil {
			return err
		}
		r.Size = int64(n)
	}
	if err := r.SetAllow(allow); err != nil {
		return err
	}
	c.Regions = append(c.Regions, r)
	return nil
}

func setTargets(c *Config, v string) error {
	c.Targets.Enabled, c.Targets.Only = v != "off", nil
	if v != "on" && v != "off" {
		c.Targets.Only = strings.Split(v, ",")
	}
	return nil
}

// FromEnvironment returns what the environment says.
func FromEnvironment(lookup func(string) (string, bool)) (list []Override) {
	for i := range Overrides {
		o := &Overrides[i]
		v, ok := lookup(o.Environment())
		if !ok || v == "" && !o.Filled {
			continue
		}
		values := []string{v}
		if o.List {
			values = strings.Split(v, ",")
		}
		for _, v := range values {
			list = append(list, Override{o.Name, strings.TrimSpace(v), "environment " + o.Environment()})
		}
	}
	return list
}

// maxFile is how many bytes a file of the configuration has at most.
const maxFile = 16 << 20

// Load reads a file, if its name is not empty, applies overrides in their
// order, and checks the result. The error joins an *Error for each mistake:
// only a file that is not TOML hides others.
func Load(file string, overrides []Override) (*Config, error) {
	c := Default()
	var read error
	if file != "" {
		text, err := regular.Read(file, maxFile)
		if err != nil {
			return nil, &Error{Where: file, Problem: err.Error()}
		}
		var broken *Error
		if read = c.Parse(file, string(text)); errors.As(read, &broken) && broken.Setting == "" {
			return nil, read
		}
	}
	applied := c.apply(overrides)
	if err := errors.Join(read, applied, c.Check()); err != nil {
		return nil, err
	}
	return c, nil
}
