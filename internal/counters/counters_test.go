package counters

import (
	"fmt"
	"testing"
)

type some struct {
	A uint64 `name:"a" help:"as"`
	B uint64 `name:"b" help:"bs"`
	C uint64
	S string
}

func TestCounters(t *testing.T) {
	t.Parallel()
	s, o := some{1, 2, 3, "s"}, some{10, 20, 30, "o"}
	Add(&s, &o)
	if s != (some{11, 22, 33, "s"}) || o != (some{10, 20, 30, "o"}) {
		t.Errorf("the sum is %v, of %v", s, o)
	}
	if Bound(&o, 15); o != (some{10, 15, 15, "o"}) {
		t.Errorf("bounded it is %v", o)
	}
	text := ""
	Each(&s, func(name string, n uint64) { text += fmt.Sprint(name, n, Help(&s, name), " ") })
	if text != "a11as b22bs " || Help(&s, "c") != "" {
		t.Errorf("got %q", text)
	}
}
