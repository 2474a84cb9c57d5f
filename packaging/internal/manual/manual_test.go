package manual

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

const described = `{"use":"tool","short":"A tool","runnable":false,"commands":[{"use":"do_it [flags] WHAT","short":"Do it","long":"It writes rdma_server and *p.","runnable":true,
	"flags":[{"name":"size","shorthand":"s","type":"int","default":"7","usage":"` + "`bytes`" + ` of each"},{"name":"name","type":"value","usage":"of it"}]}]}`

var header = Header{Version: "1.2.3", Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}

// plain is a page as a reader sees it, where mandoc is installed.
func plain(t *testing.T, page []byte) string {
	t.Helper()
	if _, err := exec.LookPath("mandoc"); err != nil {
		t.Skip("mandoc is not installed (on Debian: apt-get install mandoc)")
	}
	cmd := exec.Command("sh", "-c", `mandoc -T ascii | sed 's/.\x08//g'`)
	cmd.Stdin = strings.NewReader(string(page))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func TestPages(t *testing.T) {
	t.Parallel()
	c, err := Command([]byte(described))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := Pages(c, "1", header)
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) != 2 || pages["tool.1"] == nil || pages["tool-do_it.1"] == nil {
		t.Fatalf("%d pages, want tool.1 and tool-do_it.1", len(pages))
	}
	text := plain(t, pages["tool-do_it.1"])
	for _, want := range []string{"It writes rdma_server and *p.", "--size=7", `--name=""`, "rocev2 1.2.3"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q: %s", want, text)
		}
	}
	if _, err := Command([]byte(`{"use":"x","colour":"red"}`)); err == nil {
		t.Error("a description with an unknown member is accepted")
	}
}

// The version of a commit without a tag is longer than its place at the foot of
// a page.
func TestVersionOfACommit(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.2.3": "rocev2 1.2.3", "0.0.0-20260102030405-0123456789ab": "rocev2 0123456789ab", "1.2.4-0.20260102030405-0123456789ab+dirty": "rocev2 0123456789ab",
	} {
		if got := (Header{Version: version}).source(); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	text := "# Title\n\n![A picture](x.png)\n\nSee [other](other.md).\n\n| a | b |\n| --- | --- |\n| one | `two` |\n\n<!-- cells -->\ngone\n"
	got := plain(t, Document([]byte(text), "rocev2-x", "7", "what it is", "<!-- cells -->", header))
	for _, want := range []string{"rocev2-x - what it is", "See other.", "one", "two"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q: %s", want, got)
		}
	}
	if strings.Contains(got, "gone") || strings.Contains(got, "picture") {
		t.Errorf("the page has what it should not: %s", got)
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	got := plain(t, Configuration([]byte("# What drain_is.\ndrain = \"10s\"\n\n[log]\n# A level.\n#: level = \"info\"  # or more\n"), "x.toml", "5", "an example", header))
	for _, want := range []string{"What drain_is. drain = \"10s\" [log] A level. level = \"info\" # or more"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page is %s, want %s", got, want)
		}
	}
}

// What the makers of pages write has warnings of mandoc and of groff: a date
// that cannot be parsed, tabs in filled text, and tables wider than a line.
func TestPagesHaveNoWarnings(t *testing.T) {
	t.Parallel()
	c, err := Command([]byte(described))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := Pages(c, "1", header)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a long cell ", 9)
	pages["table.7"] = Document([]byte("# T\n\n| a | b | c |\n| --- | --- | --- |\n| `"+
		strings.Repeat("name_of_", 9)+"` | `"+long+"` | "+long+" |\n\nAfter.\n"), "table", "7", "a table", "", header)
	for name, page := range pages {
		for _, check := range []struct{ program, script string }{
			{"mandoc", "mandoc -T lint -W warning"},
			{"groff", "groff -t -man -ww -T utf8 -K utf8 -rLL=80n 2>&1 > /dev/null"},
		} {
			if _, err := exec.LookPath(check.program); err != nil {
				t.Logf("%s is not installed (on Debian: apt-get install mandoc groff)", check.program)
				continue
			}
			cmd := exec.Command("sh", "-c", check.script)
			cmd.Stdin = strings.NewReader(string(page))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %s: %v\n%s\n%s", name, check.program, err, out, page)
			}
		}
	}
}

// Lines that are indented stay as they are: a list of names and what they mean.
func TestIndentedLines(t *testing.T) {
	t.Parallel()
	got := fenced("Fields:\n\n  a   first\n  b   second\n\nMore.\n  c")
	if want := "Fields:\n\n```\n  a   first\n  b   second\n```\n\nMore.\n```\n  c\n```"; got != want {
		t.Errorf("fenced gives %q, want %q", got, want)
	}
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	c, err := Completions("tool")
	if err != nil {
		t.Fatal(err)
	}
	for shell, want := range map[string]string{"bash": "__start_tool", "zsh": "#compdef tool", "fish": "complete -c tool"} {
		if !strings.Contains(string(c[shell]), want) {
			t.Errorf("the script for %s has no %q", shell, want)
		}
	}
}
