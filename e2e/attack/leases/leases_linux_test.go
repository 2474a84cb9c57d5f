//go:build !portable

package leases

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

func TestMain(m *testing.M) {
	if os.Getenv(ChildEnv) != "" {
		if err := Child(context.Background()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAttacks runs every attack on a rocev2d, in its short version. They run
// one after the other: each has the port of the same address.
func TestAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("attacks on a daemon: run without -short")
	}
	if !testnet.Isolated(t) {
		return
	}
	daemon := filepath.Join(t.TempDir(), "rocev2d")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", daemon, "github.com/gosoftroce/rocev2/cmd/rocev2d").CombinedOutput(); err != nil {
		t.Fatalf("go build rocev2d: %v\n%s", err, out)
	}
	for _, a := range All() {
		t.Run(a.Name, func(t *testing.T) {
			r, err := a.Run(t.Context(), Options{Daemon: daemon, Scale: Short})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("sent %d, %v", r.Sent, r.Figures)
			for _, b := range r.Broken {
				t.Error(b)
			}
			if t.Failed() {
				t.Logf("what was done: %s; must hold: %s", r.What, r.Must)
			}
		})
	}
}
