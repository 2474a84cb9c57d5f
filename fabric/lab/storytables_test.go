package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tables of two stories are what comes out.
func TestTablesOfTheStories(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "fabric-stories.md"))
	if err != nil {
		t.Fatal(err)
	}
	says := func(format string, args ...any) {
		t.Helper()
		if want := fmt.Sprintf(format, args...); !strings.Contains(string(manual), want) {
			t.Errorf("docs/fabric-stories.md does not say\n%s", want)
		}
	}
	for _, rate := range []string{"100", "50", "25"} {
		s := story(t, "slow-nic", [2]string{"failure.0.rate", rate + "Gb/s"})
		says("| %s Gb/s | %.0f µs | ", rate, s.Traffic[0].Iteration.Mean)
		if rate == "25" {
			says("the switch queues for the slow cable up to %d KB, marks", s.LongestByte/1000)
		}
	}
	text, err := Text("flap")
	if err != nil {
		t.Fatal(err)
	}
	row := func(name string, s Scenario) {
		t.Helper()
		r := play(t, s).Summary()
		says("| %s | %.0f µs | %.2f | %.1f | %d |\n", name, r.Traffic[0].Iteration.Mean, r.Traffic[1].Slowdown.Mean, r.Traffic[1].Slowdown.P99, r.Dropped)
	}
	s := parsed(t, string(text))
	row("weights 50 and 10", s)
	s.Traffic[1].DSCP = 26
	row("both in the class for RoCE", s)
	s = parsed(t, string(text))
	s.Failures = nil
	row("no flaps", s)
}
