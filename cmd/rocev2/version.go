package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/cmd/build"
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
	_, err := fmt.Fprintf(io.out, "%sperftest exchange\nVersion: %s\n", build.Read().Text("rocev2"), perftest.Version)
	return err
}

// buildVersion is the module's version, and the commit it was built from.
func buildVersion() string { return build.Read().Short() }
