package programs

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := buildOnce(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
