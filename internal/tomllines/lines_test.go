package tomllines

import "testing"

func TestLines(t *testing.T) {
	t.Parallel()
	got := Find("a = 1\n\"b\" = [\n  \"x = 1\", # ]\n  '''\ny = 2\n''' ]\nc = \"\"\"\nz = 3 \\\"\"\"\"\n  [ t . u ] # comment\nd = \"#[\"\n[[v]]\ne=1\n[[v]]\ne=2\n")
	more := Find("[[v]]\n[v.w]\nx = 1\n[[v]]\n[v.w]\nx = { a = 1, 'b' = \"c = }, d = 2\", e = { f = 3 }, g = [ 1, 2 ], h.i = 1 } # { j = 1 }\n[vv.w]\nx = {}\n")
	for path, line := range map[string]int{"v.0": 1, "v.0.w": 2, "v.0.w.x": 3, "v.1": 4, "v.1.w": 5, "v.1.w.x": 6, "v.1.w.x.a": 6, "v.1.w.x.b": 6, "v.1.w.x.e": 6,
		"v.1.w.x.g": 6, "v.1.w.x.h.i": 6, "vv.w": 7, "vv.w.x": 8} {
		if more[path] != line {
			t.Errorf("%s is in line %d, want %d", path, more[path], line)
		}
		delete(more, path)
	}
	if len(more) > 0 {
		t.Errorf("found, and not there: %v", more)
	}
	for path, line := range map[string]int{"a": 1, "b": 2, "c": 7, "t.u": 9, "t.u.d": 10, "v.0": 11, "v.0.e": 12, "v.1": 13, "v.1.e": 14} {
		if got[path] != line {
			t.Errorf("%s is in line %d, want %d", path, got[path], line)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("found, and not there: %v", got)
	}
}
