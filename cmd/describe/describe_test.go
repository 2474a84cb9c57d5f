package describe

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/spf13/cobra"
)

// The hidden command describes what help shows of a program, and no more.
func TestDescribe(t *testing.T) {
	t.Parallel()
	run := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "tool", Short: "A tool", Long: "It <works>."}
	sub := &cobra.Command{Use: "do WHAT", Short: "Do it", Example: "  tool do x", RunE: run}
	sub.Flags().IntP("size", "s", 7, "`bytes` of each")
	sub.Flags().Bool("secret", false, "not shown")
	if err := sub.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	hidden := &cobra.Command{Use: "gone", Short: "Not shown", Hidden: true, RunE: run}
	root.AddCommand(sub, hidden, New())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Use: "help", Hidden: true, RunE: run})
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"describe"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	var got Command
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := Command{Use: "tool", Short: "A tool", Long: "It <works>.", Commands: []Command{{
		Use: "do WHAT", Short: "Do it", Example: "  tool do x", Runnable: true,
		Flags: []Flag{{Name: "size", Shorthand: "s", Type: "int", Default: "7", Usage: "`bytes` of each"}},
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("described is\n%+v, want\n%+v", got, want)
	}
}
