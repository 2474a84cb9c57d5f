package main

import (
	"context"
	"encoding/json"
	"errors"
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

// An interrupt is how the command ends. It watches a device that somebody else
// has, too.
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
