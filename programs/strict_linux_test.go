package programs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// TestStrict runs wrong programs and right ones in strict mode, as the
// environment says or as the device's file does.
func TestStrict(t *testing.T) {
	t.Parallel()
	lib, check := beside(t), program(t, "verbs")
	for _, c := range []struct {
		name, rules, profile, want string
	}{
		{"unsignaled", "on", "", "unsignaled"},
		{"signaled", "on", "", ""},
		{"signaledex", "on", "mlx5", ""},
		{"overrun", "", "mlx5", "cq-overrun"},
		{"stale", "on", "rxe", "stale-key"},
		{"fork", "on", "", "fork"},
		{"fork", "on,-fork", "", ""},
		{"forkpoll", "on", "", "fork"},
		{"forkpoll", "on", "rxe", "fork"},
		{"forkpost", "on", "mlx5", "fork"},
		{"again", "on", "", "bad-access"},
		{"counters", "on", "efa", ""},
	} {
		for _, byFile := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				report := filepath.Join(t.TempDir(), "report")
				if err := os.WriteFile(report, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				env := []string{EnvReport + "=" + report}
				var config verbs.Config
				if byFile {
					config.Strict, config.Profile = c.rules, c.profile
				} else {
					env = append(env, EnvStrict+"="+c.rules, EnvProfile+"="+c.profile)
				}
				h := hostOf(t, Config{}, config)
				cmd := preloaded(t, lib, h.config.Dir, check, c.name)
				cmd.Env = append(cmd.Env, env...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				found, err := ReadFindings(report, c.rules, c.profile)
				if err != nil || found.Devices != 1 {
					t.Errorf("%+v, %v", found, err)
				}
				switch {
				case c.want == "" && len(found.List) > 0, c.want != "" && (len(found.List) != 1 || found.List[0].Rule != c.want):
					t.Errorf("found %+v, want %q", found.List, c.want)
				case c.name == "again" && found.List[0].Count != 6:
					t.Errorf("%d times, want 6", found.List[0].Count)
				case c.name == "stale" && found.List[0].WRID != 0x51:
					t.Errorf("%+v", found.List[0])
				}
			})
		}
	}
}
