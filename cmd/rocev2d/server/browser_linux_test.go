package server_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/debian"
)

func init() { installBrowser = installChromium }

// installChromium installs the browser as the kernel matrix installs its tools.
func installChromium(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, err := os.UserCacheDir()
	dir = cmp.Or(os.Getenv("ROCEV2_E2E_CACHE"), filepath.Join(dir, "rocev2", "e2e")) // as the kernel matrix has it
	if err != nil && !filepath.IsAbs(dir) {
		t.Skip(err)
	}
	needs := []debian.Need{{File: "chromium", Package: "chromium"}, {File: "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", Package: "fonts-dejavu-core"}}
	var missing *debian.Unavailable
	if err := debian.Install(ctx, dir, needs, t.Logf); errors.As(err, &missing) {
		t.Skip(err)
	} else {
		must(t, err)
	}
	p, err := exec.LookPath("chromium")
	must(t, err)
	return p
}
