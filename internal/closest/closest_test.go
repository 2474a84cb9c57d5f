package closest

import (
	"strings"
	"testing"
)

func TestQuestion(t *testing.T) {
	t.Parallel()
	names := []string{"perf", "ping", "pingpong", "sim", "incast", "write_bw", "write_lat", "ls", "level", "format"}
	for word, want := range map[string]string{
		"pref": "perf", "prf": "perf", "perff": "perf", "PERF": "perf", "pin": "ping", "pingpnog": "pingpong", "pingpon": "pingpong",
		"incats": "incast", "incst": "incast", "incas": "incast", "wirte_bw": "write_bw", "write-bw": "write_bw", "write_lta": "write_lat",
		"lst": "ls", "levl": "level", "simm": "sim", "form": "format",
		"": "", "x": "", "s": "", "colour": "", "outcast": "", "bench": "", strings.Repeat("perf", 1000): "",
	} {
		got := Question(word, names)
		if want != "" {
			want = " (do you mean " + want + "?)"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Question("perf", nil); got != "" {
		t.Error(got)
	}
}

func TestFlag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ long, short, want string }{
		{"sise", "", "size"}, {"", "size", "size"}, {"s", "szie=5", "size"}, {"colour", "", ""}, {"", "x", ""}, {"", "", ""},
	} {
		if c.want != "" {
			c.want = " (do you mean --" + c.want + "?)"
		}
		if got := Flag(c.long, c.short, []string{"seed", "size"}); got != c.want {
			t.Errorf("--%s, -%s: %q, want %q", c.long, c.short, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abcd", "bacd", 1}, {"abc", "axc", 1}, {"abc", "abxc", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.n {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.n)
		}
	}
}
