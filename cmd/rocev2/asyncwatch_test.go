package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// events returns a source of events, after which there is only the end.
func events(end error, list ...verbs.Event) func(context.Context) (verbs.AsyncEvent, error) {
	return func(context.Context) (verbs.AsyncEvent, error) {
		if len(list) == 0 {
			return verbs.AsyncEvent{}, end
		}
		e := list[0]
		list = list[1:]
		return verbs.AsyncEvent{Event: e}, nil
	}
}

func TestAsyncwatchForms(t *testing.T) {
	t.Parallel()
	gone := errors.New("the device is gone")
	var out buffer
	io := streams{out: &out, err: &out}
	if err := watchEvents(t.Context(), io, "192.0.2.7", events(gone, verbs.EventPortError, verbs.EventPortActive), false); !errors.Is(err, gone) {
		t.Errorf("error is %v; expected %v", err, gone)
	}
	want := "192.0.2.7: waiting for asynchronous events\n  event_type IBV_EVENT_PORT_ERR (10), port 1\n  event_type IBV_EVENT_PORT_ACTIVE (9), port 1\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nexpected\n%s", out.String(), want)
	}
	out.b.Reset()
	if err := watchEvents(t.Context(), io, "192.0.2.7", events(gone, verbs.EventPortError), true); !errors.Is(err, gone) {
		t.Errorf("error is %v; expected %v", err, gone)
	}
	var e asyncEvent
	if err := json.Unmarshal([]byte(out.String()), &e); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if e.Event != "PORT_ERR" || e.Number != 10 || e.Device != "192.0.2.7" || e.Port != 1 || e.Time.IsZero() {
		t.Errorf("%+v", e)
	}
}

// An interrupt is how the command ends. It also watches a device that is in
// use.
func TestAsyncwatchIsInterrupted(t *testing.T) {
	t.Parallel()
	dev, err := verbs.Open(freeAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out := &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}
	go func() {
		out.await("waiting for asynchronous events")
		cancel()
	}()
	var errs buffer
	code := run(ctx, []string{"asyncwatch", "-d", dev.Addr().String()}, streams{in: strings.NewReader(""), out: out, err: &errs})
	if code != exitOK {
		t.Errorf("exit status %d: %s", code, errs.String())
	}
}

// TestAsyncwatchTellsOfThePort takes the interface of a device down and up, in
// a network of its own.
func TestAsyncwatchTellsOfThePort(t *testing.T) {
	t.Parallel()
	needsNetworkOfItsOwn(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell does what it is told while the command runs.
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "sh", "-ec", `
ip link add watch0 type veth peer name watch1
ip addr add 10.98.2.1/24 dev watch0
ip link set watch1 up
ip link set watch0 up
"$0" asyncwatch -d watch0 &
watcher=$!
while read -r command; do eval "$command"; done
wait $watcher
`, self)
	cmd.Env = append(os.Environ(), demoPeerEnv+"=1")
	var errs buffer
	cmd.Stderr = &errs
	tell, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, step := range []struct{ want, then string }{
		{"waiting for asynchronous events", "ip link set watch0 down"},
		{"  event_type IBV_EVENT_PORT_ERR (10), port 1", "ip link set watch0 up"},
		{"  event_type IBV_EVENT_PORT_ACTIVE (9), port 1", "kill -INT $watcher"},
	} {
		for found := false; !found; {
			if !lines.Scan() {
				t.Fatalf("the command ended before %q: %v, %s", step.want, cmd.Wait(), errs.String())
			}
			found = strings.Contains(lines.Text(), step.want)
		}
		if _, err := io.WriteString(tell, step.then+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	tell.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
}
