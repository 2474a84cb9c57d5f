// Command release builds the files of a release of the commit that is checked
// out, and checks that a second build gives the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/gosoftroce/rocev2/packaging/internal/release"
)

func main() {
	repository := flag.String("repository", "..", "the repository")
	out := flag.String("out", "../dist", "the `folder` of the release")
	var usual []string
	for _, p := range release.Usual {
		usual = append(usual, p.String())
	}
	platforms := flag.String("platforms", strings.Join(usual, ","), "the `platforms`, separated by commas")
	changes := flag.Bool("changes", false, "build the files of the working tree, not those of the commit")
	again := flag.Bool("check", true, "build twice, and compare")
	cold := flag.Bool("cold", false, "have the second build compile everything again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *repository, *out, *platforms, *changes, *again, *cold); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, repository, out, platforms string, changes, again, cold bool) error {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return err
	}
	c := release.Config{Repository: repository, Out: out, Changes: changes, Log: os.Stderr}
	for name := range strings.SplitSeq(platforms, ",") {
		p, err := release.ParsePlatform(name)
		if err != nil {
			return err
		}
		c.Platforms = append(c.Platforms, p)
	}
	names, err := release.Build(ctx, c)
	if err != nil {
		return err
	}
	if again {
		fmt.Fprintln(os.Stderr, "building all of it again, to compare")
		c.Cold = cold
		if err := release.Check(ctx, c); err != nil {
			return fmt.Errorf("the second build differs:\n%w", err)
		}
		fmt.Fprintln(os.Stderr, "both builds have the same bytes")
	}
	for _, name := range names {
		fmt.Println(filepath.Join(out, name))
	}
	return nil
}
