package tomllines

import "testing"

func TestLines(t *testing.T) {
	t.Parallel()
	got := Find("a = 1\n\"b\" = [\n  \"x = 1\", # ]\n  '''\ny = 2\n''' ]\nc = \"\"\"\nz = 3 \\\"\"\"\"\n  [ t . u ] # comment\nd = \"#[\"\n[[v]]\ne=1\n[[v]]\ne=2\n")
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
