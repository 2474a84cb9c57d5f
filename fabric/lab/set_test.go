package lab

import (
	"strings"
	"testing"
)

// Set changes one setting, wherever it stands, or adds it, and nothing else.
func TestSet(t *testing.T) {
	t.Parallel()
	const text = "# a comment\nname = \"x\" # kept\n\n[network]\ntopology = \"star\"\nhosts    = 4\n[[traffic]]\nkind = \"incast\"\nsenders = 3\n[[traffic]]\nkind = \"flow\"\n"
	for _, c := range []struct{ key, value, want string }{
		{"network.hosts", "8", "hosts = 8\n[[traffic]]"},
		{"network.routing", "spray", "[network]\nrouting = \"spray\"\ntopology"},
		{"network.rate", "25Gb/s", "rate = \"25Gb/s\""},
		{"network.lossy", "true", "lossy = true"},
		{"network.red", `{ kmin = "5KB", kmax = "6KB", pmax = 0.5 }`, `red = { kmin = "5KB"`},
		{"adapter.control", "dcqcn,ai=5M", "[adapter]\ncontrol = \"dcqcn,ai=5M\"\n"},
		{"adapter.control", `"window"`, "control = \"window\"\n"},
		{"seed", "7", "seed = 7\n# a comment"},
		{"name", "1979-05-27", "name = \"1979-05-27\"\n"},
		{"traffic.1.to", "2", "[[traffic]]\nto = 2\nkind = \"flow\""},
		{"traffic.0.senders", "2", "senders = 2\n[[traffic]]\nkind = \"flow\""},
	} {
		got, err := Set([]byte(text), c.key, c.value)
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s = %s: %v\n%s", c.key, c.value, err, got)
		}
	}
	const tables = "[network]\nred = { kmin = \"5KB\", kmax = \"9KB\", pmax = 0.5 } # marks\n[[traffic]]\nkind = \"flow\"\ntcp = { mss = 1000, ecn = true }\n[[traffic]]\nkind = \"flow\"\n[traffic.tcp]\nmss = 1000\n[[traffic]]\nkind = \"flow\"\n"
	for _, c := range []struct{ key, value, want string }{
		{"network.red.pmax", "0.25", "red = { kmax = \"9KB\", kmin = \"5KB\", pmax = 2.5e-01 }\n"},
		{"traffic.0.tcp.mss", "2000", "tcp = { ecn = true, mss = 2000 }\n"},
		{"traffic.0.tcp.min_rto", "5ms", "tcp = { ecn = true, min_rto = \"5ms\", mss = 1000 }\n"},
		{"traffic.1.tcp.mss", "2000", "[traffic.tcp]\nmss = 2000\n"},
		{"traffic.1.tcp.min_rto", "5ms", "[traffic.tcp]\nmin_rto = \"5ms\"\nmss = 1000\n"},
		{"traffic.2.tcp.mss", "2000", "[[traffic]]\ntcp.mss = 2000\nkind"},
		{"network.switch.int", "true", "[network]\nswitch.int = true\n"},
	} {
		got, err := Set([]byte(tables), c.key, c.value)
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s = %s: %v\n%s", c.key, c.value, err, got)
		}
	}
	for key, want := range map[string]string{
		"traffic.2.to": "has 2 tables [[traffic]]", "traffic.to": "name one by its number", "network.hosts.x": "network.hosts", "": "has a name", "name.x": "name is no table",
	} {
		if got, err := Set([]byte(text), key, "1"); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, ".hosts")) {
			t.Errorf("%q: %v\n%s", key, err, got)
		}
	}
	// Settings that do not stand in lines of their own are not guessed at.
	for _, odd := range []string{"network = { topology = \"star\", hosts = 4 }\n", "network.hosts = 4\n", "[network]\nhosts = [\n4,\n]\n"} {
		if got, err := Set([]byte(odd), "network.hosts", "5"); err != nil && !strings.Contains(err.Error(), "in a line of its own") {
			t.Errorf("%q: %v\n%s", odd, err, got)
		}
	}
	if _, err := Set([]byte("= 1"), "seed", "1"); err == nil {
		t.Error("what is no TOML is changed")
	}
}

// FuzzSet: whatever is set in whatever text, nothing panics, and what comes out
// has the setting.
func FuzzSet(f *testing.F) {
	f.Add("[network]\nhosts = 4\n", "network.hosts", "5")
	f.Add("a.b = 1\n[[c]]\n", "c.0.x", "[1, 2]")
	f.Add("[[c]]\nt = { x = 1, y = [1.5, \"z\"] }\n[[c]]\n[c.t]\nx = 1", "c.0.t.x", "5")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		if out, err := Set([]byte(text), key, value); err == nil {
			if _, err := Set(out, key, value); err != nil {
				t.Errorf("it can be set once: %v\n%q", err, out)
			}
		}
	})
}

// Settings and their units are in the summary that programs read.
func TestSummary(t *testing.T) {
	t.Parallel()
	r := play(t, small())
	s := r.Summary()
	done, failed, last := r.Done()
	if s.Completed != done || s.Failed != failed || s.LastUs != float64(last)/1e6 || s.Hosts != 8 || s.Seed != 7 || s.Events == 0 ||
		len(s.Digest) != 16 || s.Slowdown.N != done || s.Slowdown.P95 < 1 || len(s.Bands) == 0 || s.LongestByte == 0 || s.Sent != r.Totals.Sent {
		t.Errorf("%+v", s)
	}
}

// Mistakes of a text that was changed are told with the lines that it had
// before, and what was set with the line of its table, or none.
func TestParseChanged(t *testing.T) {
	t.Parallel()
	const text = "[network]\ntopology = \"pair\"\nrate = \"10Gb/s\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1KB\"\nsrc_port = 70000\n"
	for _, c := range []struct{ set, want string }{
		{"network.delay=2s", "line 1: network.delay is 2s"},
		{"network.rate=9Tb/s", "line 1: network.rate is 9Tb/s"},
		{"adapter.mtu=1024", "line 4: traffic 1, flow: src_port is 70000"},
		{"seed=7", "line 4: traffic 1, flow: src_port is 70000"},
		{"adapter.turn=0B", "adapter.turn is 0: it is above 0"},
		{"network.rate=0b/s", "line 1: network.rate is 0: it is "},
		{"traffic.0.queue_pairs=0", "line 4: traffic.queue_pairs is 0"},
		{"adapter.turn=1GiB", "adapter.turn is 1GiB"},
		{"adapter.turn=x", "adapter.turn: \"x\" is no number of bytes"},
		{"traffic.0.to=x", "traffic.to: it must be a whole number"},
		{"network.foo=1", "line 1: there is no setting \"network.foo\""},
		{"foo.bar=1", "there is no setting \"foo\""},
	} {
		key, value, _ := strings.Cut(c.set, "=")
		changed, err := Set([]byte(text), key, value)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseChanged([]byte(text), changed)
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.set, err, c.want)
		}
	}
}
