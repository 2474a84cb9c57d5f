// Package describe has a command describe itself and its subcommands, for
// manual pages and for other programs that need to know its flags.
package describe

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command is a command as its help shows it.
type Command struct {
	Use      string    `json:"use"`
	Aliases  []string  `json:"aliases,omitempty"`
	Short    string    `json:"short"`
	Long     string    `json:"long,omitempty"`
	Example  string    `json:"example,omitempty"`
	Runnable bool      `json:"runnable"`
	Flags    []Flag    `json:"flags,omitempty"`
	Commands []Command `json:"commands,omitempty"`
}

// Flag is a flag of a command.
type Flag struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand,omitempty"`
	Type      string `json:"type"`
	Default   string `json:"default,omitempty"`
	Alone     string `json:"alone,omitempty"` // what it means without a value
	Usage     string `json:"usage"`
}

// Of describes a command. What its help does not show is left out.
func Of(c *cobra.Command) Command {
	d := Command{Use: c.Use, Aliases: c.Aliases, Short: c.Short, Long: c.Long, Example: c.Example, Runnable: c.Runnable()}
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" || f.Name == "help" {
			return
		}
		d.Flags = append(d.Flags, Flag{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Usage})
	})
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			d.Commands = append(d.Commands, Of(sub))
		}
	}
	return d
}

// Print prints the description of a whole program as JSON.
func Print(w io.Writer, root *cobra.Command) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(Of(root))
}

// New is the hidden command "describe", which prints the program that it is
// part of.
func New() *cobra.Command {
	return &cobra.Command{
		Use:    "describe",
		Short:  "Print all commands and flags as JSON",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return Print(c.OutOrStdout(), c.Root()) },
	}
}
