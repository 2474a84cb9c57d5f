package scripts

import "testing"

// A script survives parsing, and a broken one is refused.
func TestScriptParser(t *testing.T) {
	t.Parallel()
	blocks, tail, err := parse("# rule\n\nqp ab\n----\n\n# next\npost a send id=1\ndeliver\n----\na> X\nb> Y\n")
	if err != nil || len(blocks) != 2 || len(tail) != 0 {
		t.Fatalf("%d blocks, tail %q, %v", len(blocks), tail, err)
	}
	b := blocks[1]
	if b.line != 7 || len(b.commands) != 2 || len(b.want) != 2 || len(b.before) != 2 {
		t.Errorf("second block is %+v", b)
	}
	for _, bad := range []string{"----\n", "# x\ncq a\n", "cq a\n\n----\n"} {
		if _, _, err := parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
