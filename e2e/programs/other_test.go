//go:build !linux

package programs

import "testing"

func TestPrograms(t *testing.T) { t.Skip("the preloaded library is for Linux: run it there") }
