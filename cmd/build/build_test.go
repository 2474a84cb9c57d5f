package build

import (
	"runtime"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

func TestText(t *testing.T) {
	t.Parallel()
	i := Info{Module: "v1.2.3", Commit: "0123456789abcdef0123456789abcdef01234567", Date: "2026-01-02T03:04:05Z"}
	want := "rocev2 v1.2.3 commit 0123456789ab\ndate 2026-01-02T03:04:05Z\n" +
		runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\nICRC by " + rocev2.ICRCFeatures() + "\n"
	if got := i.Text("rocev2"); got != want {
		t.Errorf("the text is\n%s, want\n%s", got, want)
	}
	i.Dirty = true
	if got := i.Short(); !strings.HasSuffix(got, "0123456789ab with local changes") {
		t.Errorf("the version is %q, and does not tell of local changes", got)
	}
	if got := (Info{}).Text("rocev2"); !strings.HasPrefix(got, "rocev2 (unknown)\n") || strings.Contains(got, "date") {
		t.Errorf("without anything known the text is\n%s", got)
	}
}
