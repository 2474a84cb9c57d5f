package faces

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// Browser returns the executable of a Chromium, "" if there is none.
func Browser() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	return ""
}

// firstPaint opens a page in a headless browser, and returns when it was first
// painted with content, in milliseconds after the navigation began: the median
// of some loads. The page is loaded once before, so that the browser itself has
// started.
func firstPaint(ctx context.Context, url string) (ms float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	fromUs, in, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	out, toUs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "rocebench-chromium")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	args := []string{"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-dev-shm-usage"}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	cmd := exec.CommandContext(ctx, Browser(), args...)
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	fromUs.Close()
	toUs.Close()
	d := &devtools{in: in, out: bufio.NewReaderSize(out, 1<<20)}
	defer func() { // it ends with its pipe
		in.Close()
		out.Close()
		_ = cmd.Wait()
	}()
	if err := d.attach(); err != nil {
		return 0, err
	}
	var all []float64
	for range 6 {
		if ms, err = d.paint(url); err != nil {
			return 0, err
		}
		all = append(all, ms)
	}
	return stats.Median(all[1:]), nil
}

// devtools speaks the DevTools protocol over a pipe, one command at a time.
type devtools struct {
	in      *os.File
	out     *bufio.Reader
	session string
	id      int
}

func (d *devtools) call(method string, params map[string]any, result any) error {
	d.id++
	m := map[string]any{"id": d.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if d.session != "" {
		m["sessionId"] = d.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := d.in.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		line, err := d.out.ReadBytes(0)
		if err != nil {
			return fmt.Errorf("the browser has ended: %w", err)
		}
		var r struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		switch err := json.Unmarshal(line[:len(line)-1], &r); {
		case err != nil:
			return err
		case r.ID != d.id: // an event
		case r.Error != nil:
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		case result != nil:
			return json.Unmarshal(r.Result, result)
		default:
			return nil
		}
	}
}

func (d *devtools) attach() error {
	var target struct{ TargetID string }
	if err := d.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := d.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	d.session = attached.SessionID
	return d.call("Page.enable", nil, nil)
}

// paint loads a page and returns its first contentful paint.
func (d *devtools) paint(url string) (float64, error) {
	if err := d.call("Page.navigate", map[string]any{"url": url}, nil); err != nil {
		return 0, err
	}
	const expression = `new Promise((done) => {
		const end = performance.now() + 20000;
		const look = () => {
			const p = performance.getEntriesByName("first-contentful-paint")[0];
			p ? done(p.startTime) : performance.now() > end ? done(-1) : setTimeout(look, 20);
		};
		look();
	})`
	var r struct {
		Result           struct{ Value float64 }
		ExceptionDetails *struct{ Text string }
	}
	if err := d.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r); err != nil {
		return 0, err
	}
	if r.ExceptionDetails != nil {
		return 0, errors.New(r.ExceptionDetails.Text)
	}
	if r.Result.Value < 0 {
		return 0, errors.New("the page is never painted")
	}
	return r.Result.Value, nil
}
