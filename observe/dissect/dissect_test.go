package dissect_test

import (
	"errors"
	"io"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

// seen is what a test keeps of a packet.
type seen struct {
	number uint64
	line   string
	fields []dissect.Field
	dissect.Analysis
}

// packets reads a capture to its end.
func packets(t testing.TB, c *dissect.Capture) (all []seen) {
	t.Helper()
	for {
		p, err := c.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seen{p.Number, dissect.Line(p), dissect.Fields(p), p.Analysis})
	}
}
