package report_test

import (
	"strings"
	"testing"
)

// The report says what each tenant has come to, and nothing of that where
// there is one traffic without a name.
func TestReportOfTenants(t *testing.T) {
	t.Parallel()
	const (
		network = "[network]\ntopology = \"star\"\nhosts = 4\n"
		incast  = "[[traffic]]\nkind = \"incast\"\nsenders = 3\nbytes = \"10KB\"\n"
		caption = "What each traffic has come to"
	)
	text := network + incast + "[[traffic]]\nname = \"<training>\"\nkind = \"ring\"\nbytes = \"64KiB\"\niterations = 3\n"
	r, err := play(t, text, true)
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, reportOf(t, r, text))
	for _, want := range []string{caption, "1, incast", "2, <training>", "64KiB", "most, µs"} {
		if !strings.Contains(page.text, want) {
			t.Errorf("there is no %q in %q", want, page.text)
		}
	}
	if strings.Contains(page.text, "without an end, Gb/s") {
		t.Error("there is a column in which no traffic has anything")
	}
	if r, err = play(t, network+incast, true); err != nil {
		t.Fatal(err)
	}
	if page := read(t, reportOf(t, r, network+incast)); strings.Contains(page.text, caption) {
		t.Error("one traffic without a name has a table")
	}
}
