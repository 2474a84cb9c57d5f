package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

func newVersion(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			return printVersion(io)
		},
	}
}

// printVersion prints the version, and that of perftest as its programs do.
func printVersion(io streams) error {
	_, err := fmt.Fprintf(io.out, "rocev2 %s\n%s %s/%s\nperftest exchange\nVersion: %s\n",
		buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, perftest.Version)
	return err
}

// buildVersion is the module's version, or the commit it was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = " commit " + s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " with local changes"
		}
	}
	return info.Main.Version + commit + dirty
}
