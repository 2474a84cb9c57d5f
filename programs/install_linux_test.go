package programs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/gosoftroce/rocev2/internal/testprogram"
)

// TestInstall has a folder contain both libraries, with names of their source.
func TestInstall(t *testing.T) {
	t.Parallel()
	testprogram.NeedCC(t)
	dir := t.TempDir()
	file, err := Install(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"librocev2-preload-", "librocev2-adapter-"} {
		lib, err := os.ReadFile(filepath.Join(dir, name+contents(preload)+".so"))
		if err != nil || !bytes.Contains(lib, mark()) {
			t.Errorf("%s: it does not say its source (%v)", name, err)
		}
	}
	if want := filepath.Join(dir, "librocev2-preload-"+contents(preload)+".so"); file != want {
		t.Errorf("got %s, want %s", file, want)
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("it is made again (%v)", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v (%v)", entries, err)
	}
}

// TestPack carries both libraries, and finds them again.
func TestPack(t *testing.T) {
	t.Parallel()
	testprogram.NeedCC(t)
	dir := t.TempDir()
	if err := Pack(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{LibraryName, AdapterName} {
		if _, err := os.Stat(filepath.Join(dir, built(name))); err != nil {
			t.Error(err)
		}
	}
}

// What an older program has installed is not taken for what this one carries:
// the adapter has other contents where the whole module has changed, and not
// the library's source.
func TestInstalledNameChangesWithTheAdapter(t *testing.T) {
	t.Parallel()
	carried := func(adapter string) string {
		return contents(fstest.MapFS{
			"preload/" + built(LibraryName): {Data: []byte("library")},
			"preload/" + built(AdapterName): {Data: []byte(adapter)},
		})
	}
	if carried("old") == carried("new") {
		t.Error("two adapters have one name")
	}
	if got := contents(fstest.MapFS{}); got != Hash() {
		t.Errorf("without libraries the name has %s, want %s", got, Hash())
	}
}
