package report_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/report"
	"github.com/gosoftroce/rocev2/fabric/sweep"
)

// The report of a run has what TCP has come to, and its timeouts, and that of
// many runs has lines for each tenant.
func TestReportOfTCP(t *testing.T) {
	t.Parallel()
	const text = "[network]\ntopology = \"star\"\nhosts = 3\nqueue_max = \"4KB\"\n[[traffic]]\nname = \"<b>tcp</b>\"\nkind = \"incast\"\nsenders = 2\nbytes = \"300KB\"\ntransport = \"tcp\"\ntcp.min_rto = \"5ms\"\n" +
		"[[traffic]]\nname = \"roce\"\nkind = \"permutation\"\nbytes = \"9KB\"\n"
	r, err := play(t, text, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.TCP.Timeouts == 0 || !slices.ContainsFunc(report.Hints(r), func(h string) bool { return strings.HasPrefix(h, "TCP has waited for ") }) {
		t.Errorf("%+v, %q", r.TCP, report.Hints(r))
	}
	if page := reportOf(t, r, text); !strings.Contains(page, "fast recoveries") || strings.Contains(page, "<b>tcp") {
		t.Error("the page does not tell of TCP, or has the name of a tenant as it is")
	}
	p := &sweep.Plan{Name: "tcp", Text: []byte(text), Seeds: []uint64{1, 2}}
	var list []*sweep.Record
	if err := sweep.Play(t.Context(), p, p.Runs(1, 1), 1, func(r *sweep.Record) error { list = append(list, r); return nil }); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := report.WriteSweep(&b, "tcp", p.Text, list, nil); err != nil || !strings.Contains(b.String(), "roce: slowdown, p99") || strings.Contains(b.String(), "<b>tcp") {
		t.Errorf("%v\n%s", err, &b)
	}
}
