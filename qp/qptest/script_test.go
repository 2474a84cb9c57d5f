package qptest

import (
	"testing"

	"github.com/gosoftroce/rocev2/internal/scripts"
)

// TestScripts runs every script of testdata. A script is a conversation between
// two queue pairs that reads as prose; its header says which rule it guards.
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts.Run(t, func() func(string) ([]string, error) { return newScene().run })
}
