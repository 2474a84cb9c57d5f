package config

import (
	"reflect"
	"slices"
)

// NeedRestart returns the settings in which next differs from c and that the
// daemon reads only when it starts. All others take effect at a reload: regions
// and their access lists, certificates, the level of the log, the token, hosts,
// drain.
func (c *Config) NeedRestart(next *Config) (settings []string) {
	for _, s := range []struct {
		name     string
		old, new any
	}{
		{"device", c.Devices, next.Devices},
		{"congestion", c.Congestion, next.Congestion},
		{"strict", c.Strict, next.Strict},
		{"profile", c.Profile, next.Profile},
		{"tls", c.TLS.Given(), next.TLS.Given()}, // other files are taken at once
		{"admin.listen", c.Admin.Listen, next.Admin.Listen},
		{"admin.health", c.Admin.Health, next.Admin.Health},
		{"admin.pprof", c.Admin.PProf, next.Admin.PProf},
		{"log.format", c.Log.Format, next.Log.Format},
		{"targets", c.Targets, next.Targets},
		{"programs", c.Programs, next.Programs},
		{"capture.memory", c.Capture.Bytes, next.Capture.Bytes},
	} {
		if !reflect.DeepEqual(s.old, s.new) {
			settings = append(settings, s.name)
		}
	}
	return settings
}

// Same reports whether two regions are the same memory with the same rights, so
// that a reload may keep it: the access lists may differ.
func (r Region) Same(o Region) bool {
	return r.Name == o.Name && r.Size == o.Size && r.File == o.File && r.Access == o.Access && r.Device == o.Device && r.TLS == o.TLS
}

// SameAllow reports whether the access lists are the same.
func (r Region) SameAllow(o Region) bool {
	return r.Any == o.Any && slices.Equal(r.Allow, o.Allow) && slices.Equal(r.Names, o.Names)
}
