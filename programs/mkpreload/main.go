// Command mkpreload builds the preload library and the adapter into the folder
// of the library's source, from where package programs carries them inside.
// With an argument it builds them into that folder, as files to install.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gosoftroce/rocev2/programs"
)

func main() {
	ctx := context.Background()
	var err error
	if len(os.Args) > 1 {
		err = programs.BuildBoth(ctx, os.Args[1])
	} else {
		err = programs.Pack(ctx, filepath.Join("programs", "preload"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkpreload:", err)
		os.Exit(1)
	}
}
