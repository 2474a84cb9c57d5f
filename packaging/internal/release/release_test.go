package release

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// Packagers sort a commit before a tag before the tag.
func TestPackageVersion(t *testing.T) {
	t.Parallel()
	for module, want := range map[string]string{
		"1.2.3":                             "1.2.3",
		"1.2.3-rc.1":                        "1.2.3~rc.1",
		"0.0.0-20260102030405-0123456789ab": "0.0.0~20260102030405.0123456789ab",
		"1.2.4-0.20260102030405-0123456789ab+dirty": "1.2.4~0.20260102030405.0123456789ab+dirty",
	} {
		if got := packageVersion(module); got != want {
			t.Errorf("the version %s is %s of a package, want %s", module, got, want)
		}
	}
}

// A bill of materials is made of what Go has written into a program: here of
// this test, where it is Go's version alone. TestRelease looks for modules.
func TestBillOfMaterials(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := billOfMaterials([]string{self}, time.Unix(1<<30, 0))
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range b.Components {
		found[c.Name] = c.Version != "" && c.PURL == "pkg:golang/"+c.Name+"@"+c.Version
	}
	if b.Format != "CycloneDX" || b.Metadata.Timestamp != "2004-01-10T13:37:04Z" || !found["std"] {
		t.Errorf("the bill of materials is\n%s", text)
	}
}

// The same files have the same bytes, whenever they are packed.
func TestTarball(t *testing.T) {
	t.Parallel()
	list := []file{{name: "a", text: []byte("one"), mode: 0o755}, {name: "b/c", text: []byte("two"), mode: 0o644}}
	first, err := tarball("x", list, time.Unix(1<<30, 0))
	if err != nil {
		t.Fatal(err)
	}
	second, err := tarball("x", list, time.Unix(1<<30, 0))
	if err != nil || string(first) != string(second) {
		t.Errorf("two archives of the same files differ: %v", err)
	}
}
