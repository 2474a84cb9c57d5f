// Command mkpreload builds the preload library into the folder of its source,
// from where package programs carries it inside.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gosoftroce/rocev2/programs"
)

func main() {
	file := filepath.Join("programs", "preload", programs.BuiltName())
	if err := programs.Build(context.Background(), file); err != nil {
		fmt.Fprintln(os.Stderr, "mkpreload:", err)
		os.Exit(1)
	}
}
