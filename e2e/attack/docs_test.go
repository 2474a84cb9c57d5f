package attack

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var namedAttack = regexp.MustCompile("`(TestAttacks|TestGoodput)/([^`]+)`")

// TestDocumentedAttacksExist checks that the attacks which the documentation
// names are run by the tests that it names.
func TestDocumentedAttacksExist(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range []string{"threat-model.md", "compliance.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedAttack.FindAllSubmatch(text, -1) {
			seen++
			if !slices.ContainsFunc(All(), func(a Attack) bool {
				return a.Name == string(m[2]) && (string(m[1]) == "TestAttacks" || a.Goodput > 0)
			}) {
				t.Errorf("%s: there is no test %s/%s", name, m[1], m[2])
			}
		}
	}
	if seen < 15 {
		t.Errorf("saw %d attacks", seen)
	}
}
