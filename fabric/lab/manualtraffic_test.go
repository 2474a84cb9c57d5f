package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manualOfTraffic returns docs/fabric-traffic.md, and its blocks of TOML.
func manualOfTraffic(t *testing.T) (text string, blocks []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "fabric-traffic.md"))
	if err != nil {
		t.Fatal(err)
	}
	text = string(b)
	for _, part := range strings.Split(text, "```toml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return text, blocks
}

// The tenants of the manual come to what it says.
func TestTenantsOfTheManual(t *testing.T) {
	t.Parallel()
	text, blocks := manualOfTraffic(t)
	row := func(name string, s Scenario) {
		t.Helper()
		r := play(t, s)
		all := r.Traffics()
		line := fmt.Sprintf("| %s | %.0f µs |", name, spreadOf(all[0].iterationTimes()).Mean)
		if len(all) > 1 {
			storage := r.SlowdownsOf(1, 0, 1<<62)
			line += fmt.Sprintf(" %.2f | %.1f |", storage.Mean, storage.P99)
		} else {
			line += " | |"
		}
		if !strings.Contains(text, line+"\n") {
			t.Errorf("docs/fabric-traffic.md has no line\n%s", line)
		}
	}
	s := parsed(t, blocks[0])
	row("a class each, 50 to 10", s)
	s.Traffic[1].Class = ""
	row("both in the class for RoCE", s)
	s.Traffic = s.Traffic[:1]
	row("training alone", s)
}

// What the manual has of scenarios, and of files, is read.
func TestFilesOfTheManual(t *testing.T) {
	t.Parallel()
	text, blocks := manualOfTraffic(t)
	_, csv, _ := strings.Cut(text, "```\nstart,")
	csv, _, _ = strings.Cut("start,"+csv, "```")
	for _, block := range blocks[1:] {
		s := parsed(t, "[network]\ntopology = \"star\"\nhosts = 5\n"+block)
		files, err := s.Files()
		if named := strings.Contains(block, "file "); err != nil || named != (len(files) == 1) {
			t.Errorf("%v, %v", files, err)
		} else if !named {
			play(t, s)
			continue
		}
		if s.Traffic[0].List = csv; s.Traffic[0].Kind == "chakra" {
			s.Traffic[0].List = packed(new(tracer).node(1, etCompute, 1, nil), new(tracer).node(1, etCompute, 1, nil))
			s.Traffic[0].Groups = `{"0": [0, 1]}`
		}
		play(t, s)
	}
}
