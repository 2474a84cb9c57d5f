// Package manual makes manual pages and completions of the commands, from what
// they say of themselves and from the documents.
package manual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Header is what all pages of a release have in common.
type Header struct {
	Version string
	Date    time.Time
}

// commit is the end of the version of a commit that has no tag.
var commit = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})`)

// source is what a page names as its source: of a commit without a tag its
// name alone, as the line has no room for more.
func (h Header) source() string {
	if m := commit.FindStringSubmatch(h.Version); m != nil {
		return "rocev2 " + m[1]
	}
	return "rocev2 " + h.Version
}

// description is what the hidden command "describe" prints (cmd/describe).
type description struct {
	Use      string        `json:"use"`
	Aliases  []string      `json:"aliases"`
	Short    string        `json:"short"`
	Long     string        `json:"long"`
	Example  string        `json:"example"`
	Runnable bool          `json:"runnable"`
	Flags    []flag        `json:"flags"`
	Commands []description `json:"commands"`
}

type flag struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand"`
	Type      string `json:"type"`
	Default   string `json:"default"`
	Alone     string `json:"alone"`
	Usage     string `json:"usage"`
}

// Command makes a command, which does nothing, of what "describe" of a program
// prints.
func Command(text []byte) (*cobra.Command, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var root description
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("what describe prints: %w", err)
	}
	return root.command(), nil
}

func (d *description) command() *cobra.Command {
	c := &cobra.Command{Use: d.Use, Aliases: d.Aliases, Short: d.Short, Long: fenced(d.Long), Example: d.Example, DisableAutoGenTag: true}
	if d.Runnable {
		c.Run = func(*cobra.Command, []string) {}
	}
	c.CompletionOptions.DisableDefaultCmd = true
	for _, f := range d.Flags {
		kind := f.Type
		if f.Default == "" {
			kind = "string" // the page shows it as ""
		}
		added := c.Flags().VarPF(&value{kind, f.Default}, f.Name, f.Shorthand, f.Usage)
		added.NoOptDefVal = f.Alone
	}
	for i := range d.Commands {
		c.AddCommand(d.Commands[i].command())
	}
	return c
}

// fenced marks the indented lines of a text as lines that stay as they are.
func fenced(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented != inside {
			b.WriteString("```\n")
			inside = indented
		}
		b.WriteString(line + "\n")
	}
	if inside {
		b.WriteString("```\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// value is a flag's value that is never set.
type value struct{ kind, text string }

var _ pflag.Value = (*value)(nil)

func (v *value) String() string   { return v.text }
func (v *value) Type() string     { return v.kind }
func (v *value) Set(string) error { return nil }

// Pages makes a page for a command and for each one below it. Names are those
// of files, with the section.
func Pages(root *cobra.Command, section string, h Header) (map[string][]byte, error) {
	pages := map[string][]byte{}
	var add func(c *cobra.Command) error
	add = func(c *cobra.Command) error {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		var b bytes.Buffer
		err := doc.GenMan(c, &doc.GenManHeader{
			Title: strings.ToUpper(name), Section: section, Date: &h.Date, Source: h.source(), Manual: "RoCEv2",
		}, &b)
		if err != nil {
			return fmt.Errorf("manual page of %s: %w", c.CommandPath(), err)
		}
		pages[name+"."+section] = finish(b.Bytes(), h.Date)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				if err := add(sub); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return pages, add(root)
}

var (
	picture = regexp.MustCompile(`(?m)^!\[.*\]\(.*\)\n`)
	link    = regexp.MustCompile(`\[([^\]\n]+)\]\(([^)\n]+)\)`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// Document makes a page of a document of this repository: its text as it is,
// without pictures, and without what stands below the line cut, if that is not
// "". What links name as a document of the repository, the page names so, too.
func Document(text []byte, name, section, short, cut string, h Header) []byte {
	body := string(text)
	if cut != "" {
		body, _, _ = strings.Cut(body, cut)
	}
	body = comment.ReplaceAllString(picture.ReplaceAllString(body, ""), "")
	body = link.ReplaceAllString(body, "$1")
	_, body, _ = strings.Cut(body, "\n") // the title
	title := fmt.Sprintf("%% %q %q %q %q %q\n", strings.ToUpper(name), section, h.Date.Format("Jan 2006"), h.source(), "RoCEv2")
	page := md2man.Render([]byte(title + "# NAME\n" + name + " - " + short + "\n\n# DESCRIPTION\n" + body))
	return finish(page, h.Date)
}

// Configuration makes a page of an example of the daemon's configuration: its
// comments are the text, and its settings stand as they are.
func Configuration(example []byte, name, section, short string, h Header) []byte {
	var b strings.Builder
	settings := false // inside a block of settings
	for line := range strings.Lines(string(example)) {
		line = strings.TrimSuffix(line, "\n")
		switch text, isText := strings.CutPrefix(line, "#"); {
		case isText && !strings.HasPrefix(text, ":") && strings.HasPrefix(line, "#"):
			if settings {
				b.WriteString("```\n\n")
			}
			settings = false
			b.WriteString(escape(strings.TrimSpace(text)) + "\n")
		case strings.HasPrefix(line, "["):
			if settings {
				b.WriteString("```\n")
			}
			settings = false
			b.WriteString("\n## " + strings.NewReplacer("[", `\[`, "]", `\]`).Replace(line) + "\n\n")
		case line == "":
			if settings {
				b.WriteString("```\n")
			}
			settings = false
			b.WriteString("\n")
		default:
			if !settings {
				b.WriteString("\n```\n")
			}
			settings = true
			b.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#:"), " ") + "\n")
		}
	}
	if settings {
		b.WriteString("```\n")
	}
	return Document([]byte("\n"+b.String()), name, section, short, "", h)
}

// escape has Markdown take a line as plain text.
func escape(s string) string {
	return strings.NewReplacer("_", `\_`, "*", `\*`, "<", `\<`, "[", `\[`, "]", `\]`, "`", "\\`").Replace(s)
}

// Completions returns the scripts that complete the command lines of a program,
// by the name of the shell. They ask the program itself.
func Completions(program string) (map[string][]byte, error) {
	c := &cobra.Command{Use: program}
	var bash, zsh, fish bytes.Buffer
	if err := c.GenBashCompletionV2(&bash, true); err != nil {
		return nil, err
	}
	if err := c.GenZshCompletion(&zsh); err != nil {
		return nil, err
	}
	if err := c.GenFishCompletion(&fish, true); err != nil {
		return nil, err
	}
	return map[string][]byte{"bash": bash.Bytes(), "zsh": zsh.Bytes(), "fish": fish.Bytes()}, nil
}
