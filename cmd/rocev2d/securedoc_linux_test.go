package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// walk is a shell that goes through the commands of a document.
type walk struct {
	t    *testing.T
	dir  string
	path string // of the programs
}

func (w *walk) command(text string) *exec.Cmd {
	c := exec.CommandContext(w.t.Context(), "sh", "-ec", text)
	c.Dir, c.Env = w.dir, append(os.Environ(), "PATH="+w.path+":"+os.Getenv("PATH"))
	return c
}

// run runs commands to their end, and returns what they say.
func (w *walk) run(text string) string {
	w.t.Helper()
	out, err := w.command(text).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s\n%v\n%s", text, err, out)
	}
	return string(out)
}

// background starts a server, and returns when it serves. The lines that it
// says until its end are in said then.
func (w *walk) background(text string) (said func() string) {
	w.t.Helper()
	c := w.command("exec " + text)
	var out bytes.Buffer
	c.Stdout = &out
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	lines, serves := bufio.NewScanner(stderr), make(chan bool)
	var log bytes.Buffer
	go func() {
		defer close(serves)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "waiting on") || strings.Contains(lines.Text(), "msg=ready") {
				serves <- true
			}
		}
	}()
	select {
	case ok := <-serves:
		if !ok {
			w.t.Fatalf("%s ended:\n%s", text, log.String())
		}
	case <-time.After(2 * time.Minute):
		w.t.Fatalf("%s does not serve", text)
	}
	return func() string {
		<-serves
		c.Wait()
		return out.String() + log.String()
	}
}

// shellBlock is a part of a document that is to be run.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestSecureWalkThrough runs the commands of docs/secure.md in their order, on
// one host that has the address of the server.
func TestSecureWalkThrough(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl: apt-get install openssl")
	}
	if !testnet.Isolated(t) {
		return
	}
	testnet.IP(t, "addr add 192.0.2.1/32 dev lo")
	daemon, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, dir: t.TempDir(), path: filepath.Dir(daemon)}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(w.path, "rocev2"), "../rocev2").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../docs/secure.md")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		var servers []func() string
		rest := block[1]
		for rest != "" {
			before, server, after := cutBackground(rest)
			said.WriteString(w.run(before))
			if rest = after; server != "" {
				servers = append(servers, w.background(server))
			}
		}
		for _, s := range servers {
			if !strings.Contains(block[1], "rocev2d --config") { // which serves on
				said.WriteString(s())
			}
		}
	}
	if len(blocks) != 6 {
		t.Errorf("%d blocks of commands", len(blocks))
	}
	for _, want := range []string{
		"secured: packets by AES-GCM-128, keys by TLS 1.3 with CN=server\n",         // the client of perf
		"secured: packets by AES-GCM-128, keys by TLS 1.3 with CN=backup.example\n", // its server
		`"secured":true,"cipher":"AES-GCM-128"`,
		"ACCESS\npublic        1048576  read-only\nsecured", // and no other
		"backup        1048576  read-write\npublic        1048576  read-only\nshared        1048576  read-only\n",
		"|for the owner|",
		"keys by TLS 1.3 with a peer that has the same secret\n",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("nothing says %q:\n%s", want, said.String())
		}
	}
}

// cutBackground cuts a block at the first command that runs in the background.
func cutBackground(block string) (before, server, after string) {
	for line := range strings.Lines(block) {
		if cmd, ok := strings.CutSuffix(line, " &\n"); ok {
			before, after, _ = strings.Cut(block, line)
			return before, cmd, after
		}
	}
	return block, "", ""
}
