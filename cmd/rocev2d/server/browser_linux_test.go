package server_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

func init() { installBrowser = installChromium }

// installChromium installs the browser as the kernel matrix installs its tools.
func installChromium(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	needs := []guest.Need{{File: "chromium", Package: "chromium"}, {File: "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", Package: "fonts-dejavu-core"}}
	if err := guest.Install(ctx, needs, t.Logf); err != nil {
		t.Skip(err)
	}
	p, err := exec.LookPath("chromium")
	must(t, err)
	return p
}
