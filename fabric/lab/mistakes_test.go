package lab

import (
	"strings"
	"testing"
)

// Mistakes of a scenario are said together, each with its line.
func TestMistakesTogether(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"seeed = 1\n[network]\nspins = 2\n[[traffic]]\nkid = \"ring\"\n[adapter]\nmtuu = 5\n": {
			`line 1: there is no setting "seeed"`, `line 3: there is no setting "network.spins"`, `line 5: there is no setting "traffic.kid"`, `line 7: there is no setting "adapter.mtuu"`,
		},
		"until = \"1ms\"\nlimit = \"1ms\"\n[network]\ntopology = \"star\"\nk = 4\nleaves = 2\nflowlet_gap = \"1us\"\n[[failure]]\nkind = \"rate\"\nnode = \"s0\"\n[[failure]]\nkind = \"switch\"\ncable = 2\n": {
			"line 2: limit is for", "line 7: network.flowlet_gap is for", "line 3: network, star: it has no leaves", "line 3: network, star: it has no k",
			"line 8: failure 1, rate: it has no node", "line 11: failure 2, switch: it has no cable",
		},
		"cores = 99\n[network]\ntopology = \"star\"\nhosts = 4\nrouting = \"ecpm\"\ndelay = \"2s\"\nred = { kmin = \"10KB\", kmax = \"5KB\" }\n[adapter]\ntimeout = 32\n": {
			"line 1: cores is 99", "there is no traffic", "line 5: network.routing is \"ecpm\"", "line 6: network.delay is 2s", "line 7: network.red.kmin is", "line 9: adapter.timeout is 32",
		},
		"[network]\ntopology = \"star\"\n[adapter]\nmtu = 1500\nentropy = \"x\"\n[[traffic]]\nkind = \"ring\"\ncontrol = \"dcqn\"\n[[traffic]]\nkind = \"ring\"\nrecovery = \"x\"\n": {
			"line 5: adapter.entropy is \"x\"", "line 4: adapter.mtu", "line 6: traffic 1, ring", "line 9: traffic 2, ring: recovery is",
		},
	} {
		s, err := Parse([]byte(text))
		if err == nil {
			err = Check(s)
		}
		if err == nil {
			t.Errorf("%q is no mistake", text)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		for _, w := range want {
			found := false
			for _, line := range lines {
				found = found || strings.Contains(line, w)
			}
			if !found {
				t.Errorf("%s\nit should say %q too", err, w)
			}
		}
	}
}

// A setting that is just above its limit is not told as the limit itself.
func TestMistakesAreExact(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"adapter.turn=65537B":           "adapter.turn is 65537B: it is at most 64KiB",
		"adapter.window=1073741825B":    "adapter.window is 1073741825B: it is at most 1GiB",
		"traffic.0.window=1073741825B":  "window is 1073741825B: it is at most 1GiB",
		"traffic.0.bytes=17179869185B":  "bytes is 17179869185B: a flow has at most 16GiB",
		"traffic.0.rate=999999b/s":      "rate is 999.999kb/s: it is 1Mb/s to 4Tb/s",
		"network.rate=8000000000001b/s": "network.rate is 8000000000001b/s: it is 1Mb/s to 8Tb/s",
		"network.delay=1000000000001ps": "network.delay is 1000000000001ps: it is at most 1s",
		"adapter.notify=1000.5ns":       "adapter.notify is 1000500ps: it is whole nanoseconds",
	} {
		text := "[network]\ntopology = \"pair\"\n[adapter]\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1KB\"\n"
		key, value, _ := strings.Cut(set, "=")
		changed, err := Set([]byte(text), key, value)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(changed)
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", set, err, want)
		}
	}
}

// All settings that are 0 where they may not be are said, up to ten of a list
// of tables.
func TestZerosTogether(t *testing.T) {
	t.Parallel()
	text := "[network]\ntopology = \"pair\"\nrate = \"0b/s\"\ndelay = \"0us\"\n" + strings.Repeat("[[traffic]]\nkind = \"flow\"\nqueue_pairs = 0\n", 50)
	_, err := Parse([]byte(text))
	if err == nil {
		t.Fatal("it is read")
	}
	for _, want := range []string{"line 3: network.rate is 0", "line 4: network.delay is 0", "line 7: traffic.queue_pairs is 0", "line 10: traffic.queue_pairs is 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if n := len(mistakes(err)); n > mostMistakes+2 {
		t.Errorf("%d mistakes are said", n)
	}
}
