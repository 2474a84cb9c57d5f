package lab

import (
	"strings"
	"testing"
)

// TestOversubscription: of hosts that all send to other switches, each has its
// share of what goes up.
func TestOversubscription(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		network string
		links   int
		rate    Rate // of all hosts together, at most
	}{
		{"topology = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts_per_leaf = 4\n", 16 + 8, 80 * Gbps},
		{"topology = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts_per_leaf = 4\noversubscription = 1\n", 16 + 8, 160 * Gbps},
		{"topology = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts_per_leaf = 4\noversubscription = 4\n", 16 + 8, 40 * Gbps},
		{"topology = \"fat-tree\"\nk = 4\n", 16 + 16 + 16, 160 * Gbps},
		{"topology = \"fat-tree\"\nk = 4\noversubscription = 2\n", 16 + 8 + 8, 80 * Gbps},
		{"topology = \"fat-tree\"\nk = 4\noversubscription = 2\ncore_oversubscription = 2\n", 16 + 8 + 4, 40 * Gbps},
	} {
		text := "until = \"3ms\"\nwarm = \"1ms\"\n[network]\n" + test.network + "rate = \"10Gb/s\"\nrouting = \"spray\"\n"
		text += "[[traffic]]\nkind = \"permutation\"\nacross = 4\n"
		s := parsed(t, text)
		g, err := s.Network.graph()
		if err != nil || len(g.Links()) != test.links {
			t.Fatalf("%s: %d links, %v", test.network, len(g.Links()), err)
		}
		_, sum, _ := play(t, s).Rates()
		if sum > test.rate || sum < test.rate*4/5 {
			t.Errorf("%s: %v together; want up to %v", test.network, sum, test.rate)
		}
	}
	for settings, want := range map[string]string{
		"topology = \"leaf-spine\"\noversubscription = -1":                       "line 3: network.oversubscription is -1",
		"topology = \"leaf-spine\"\noversubscription = 1001":                     "1 to 1000",
		"topology = \"leaf-spine\"\noversubscription = 2\nup_rate = \"1Gb/s\"":   "take one of them out",
		"topology = \"leaf-spine\"\ncore_oversubscription = 2":                   "network, leaf-spine: it has no core_oversubscription",
		"topology = \"star\"\noversubscription = 2":                              "network, star: it has no oversubscription",
		"topology = \"fat-tree\"\nk = 8\noversubscription = 3":                   "both divide 4",
		"topology = \"star\"\nburst = 2":                                         "without loss none are",
		"topology = \"star\"\nber = 2.0":                                         "network.ber is 2",
		"topology = \"star\"\nloss = 0.5\nburst = 2000000":                       "network.burst is 2000000",
		"topology = \"leaf-spine\"\nspines = 9999999\noversubscription = 1000\n": "leaves",
	} {
		s, err := Parse([]byte("[network]\n" + settings + "\n[[traffic]]\nkind = \"permutation\"\nbytes = \"1B\"\n"))
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", settings, err, want)
		}
	}
}
