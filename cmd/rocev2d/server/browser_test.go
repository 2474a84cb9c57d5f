//go:build unix

package server_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium that is driven over its DevTools protocol, by
// a pipe.
type browser struct {
	t       *testing.T
	in      *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	events  map[string]chan json.RawMessage
	console []string // errors that the page has logged
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// installBrowser installs one, where that is possible, and returns its path.
var installBrowser func(t *testing.T) string

// newBrowser starts a browser, or skips the test where there is none.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("the page is looked at with a browser with ROCEV2_E2E=1 (make test-programs)")
	}
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" && installBrowser != nil {
		path = installBrowser(t)
	}
	if path == "" {
		t.Skip("Chromium is not installed (on Debian: apt-get install chromium)")
	}
	fromUs, in, err := os.Pipe()
	must(t, err)
	out, toUs, err := os.Pipe()
	must(t, err)
	args := []string{"--headless", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(), "--disable-gpu", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage", "--force-color-profile=srgb"}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	cmd := exec.Command(path, args...)
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	fromUs.Close()
	toUs.Close()
	b := &browser{t: t, in: in, waiting: map[int]chan reply{}, events: map[string]chan json.RawMessage{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read(out) }()
	t.Cleanup(func() {
		in.Close() // it ends with its pipe
		<-read
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("chromium: %v\n%s", err, stderr.String())
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(out *os.File) {
	defer out.Close()
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			reply
		}
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			if c := b.waiting[m.ID]; c != nil {
				delete(b.waiting, m.ID)
				c <- m.reply
			}
		case m.Method == "Log.entryAdded" && bytes.Contains(m.Params, []byte(`"source":"recommendation"`)):
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded":
			b.console = append(b.console, string(m.Params))
		default:
			if c := b.events[m.Method]; c != nil {
				select {
				case c <- m.Params:
				default:
				}
			}
		}
		b.mu.Unlock()
	}
}

// call runs a command of the protocol.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	must(b.t, b.try(method, params, result))
}

func (b *browser) try(method string, params map[string]any, result any) error {
	c := make(chan reply, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return errors.New("the browser has ended")
	}
	b.next++
	id := b.next
	b.waiting[id] = c
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case r, ok := <-c:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case r.Error != nil:
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		case result != nil:
			return json.Unmarshal(r.Result, result)
		}
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%s: the browser does not answer", method)
	}
}

// loads returns what is told when the next page is loaded.
func (b *browser) loads() <-chan json.RawMessage {
	loaded := make(chan json.RawMessage, 1)
	b.mu.Lock()
	b.events["Page.loadEventFired"] = loaded
	b.mu.Unlock()
	return loaded
}

// open loads a page and waits until it is loaded.
func (b *browser) open(url string) {
	b.t.Helper()
	loaded := b.loads()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	select {
	case <-loaded:
	case <-time.After(time.Minute):
		b.t.Fatal("the page does not load")
	}
}

// eval returns the value of an expression in the page; a promise is awaited.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if e := r.ExceptionDetails; e != nil {
		b.t.Fatalf("%s\n%s %s", expression, e.Text, e.Exception.Description)
	}
	return r.Result.Value
}

// until waits in the page until a condition holds there.
func (b *browser) until(condition string) {
	b.t.Helper()
	ok := b.eval(`new Promise((done) => {
		const end = performance.now() + 20000;
		const look = () => (` + condition + `) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 20);
		look();
	})`)
	if ok != true {
		b.t.Fatalf("never true: %s\n%v\n%s", condition, b.eval("document.body.innerText"), b.problems())
	}
}

func (b *browser) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.console
}

// theme sets the colour scheme that the user prefers, and the size of the
// window.
func (b *browser) theme(scheme string, width, height int) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// screenshot writes what is to be seen.
func (b *browser) screenshot(dir, name string) {
	b.t.Helper()
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	must(b.t, err)
	if len(png) < 10000 {
		b.t.Errorf("%s: a screenshot of %d bytes: the page is empty", name, len(png))
	}
	must(b.t, os.WriteFile(filepath.Join(dir, name), png, 0o644))
}
