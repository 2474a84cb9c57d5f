package strangers

import (
	"strings"
	"testing"
	"time"
)

// The table has each flood, with all clients that connected during it, and says
// what did not hold.
func TestText(t *testing.T) {
	t.Parallel()
	r := Result{Victim: "rocev2d", Load: 20, Before: 17, After: 19, Broken: []string{"it has ended"}, Floods: []Flood{{
		What: "regions 2000/s from one address", Rate: 1999, Most: 40, Failures: []string{"native: gone"},
		Honest: []Honest{honest("native", []time.Duration{3 * time.Millisecond, time.Millisecond, time.Second}), honest("foreign", nil)},
	}}}
	var b, idle strings.Builder
	if err := Text(&b, []Result{r}); err != nil {
		t.Fatal(err)
	}
	if err := Text(&idle, []Result{{Load: 0.5}}); err != nil || strings.Contains(idle.String(), "BUSY") {
		t.Errorf("%v:\n%s", err, idle.String())
	}
	for _, want := range []string{"regions 2000/s", "1999", "3ms", "1s", "foreign", "40", "failed: regions 2000/s from one address: native: gone", "BROKEN rocev2d: it has ended", "BUSY rocev2d: before the floods 20 threads"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
