package lab

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"
)

// The plots of docs/fabric.md are those of the scenarios that it names.
func drawingsOfTheManual(t *testing.T) {
	t.Parallel()
	for name, plots := range map[string][]string{
		"incast": {"queues", "rates"}, "unfairness": {"rates"}, "victim": {"rates"}, "permutation": {"slowdowns"}, "websearch": {"slowdowns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Text(name)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			r := play(t, s)
			drawn := map[string][]byte{}
			for _, p := range r.Plots() {
				var b bytes.Buffer
				if err := p.WriteSVG(&b); err != nil {
					t.Fatal(err)
				}
				drawn[p.Name] = b.Bytes()
			}
			for _, p := range plots {
				if runtime.GOARCH != "amd64" && len(drawn[p]) > 0 {
					continue // coordinates are rounded floats
				}
				goldenFile(t, filepath.Join("..", "..", "docs", "fabric", name+"-"+p+".svg"), string(drawn[p]))
			}
		})
	}
}
