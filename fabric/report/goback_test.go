package report_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/report"
)

// The report says of a window that go-back-n does not use.
func TestHintOfGoBackN(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[string]bool{"go-back-n": true, "selective": false} {
		r, err := lab.Run(t.Context(), lab.Scenario{Network: lab.Network{Topology: "pair"}, Adapter: lab.Adapter{Recovery: recovery, Window: 1 << 20}, Traffic: []lab.Traffic{{Kind: "flow", To: 1, Bytes: 9}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(report.Hints(r), func(h string) bool {
			return strings.HasPrefix(h, "Window: traffic 1 has one of 1MiB, of which go-back-n uses")
		}); got != want {
			t.Errorf("%s: %q", recovery, report.Hints(r))
		}
	}
}
