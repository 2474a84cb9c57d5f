package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/verbs"
)

func newAsyncwatch(io streams) *cobra.Command {
	var device string
	var lines bool
	cmd := &cobra.Command{
		Use:   "asyncwatch",
		Short: "Print the asynchronous events of a device as they come",
		Long: `Print the asynchronous events of a device, a line for each, as ibv_asyncwatch
does, until interrupted.

The events are those of the port and of the device: its interface goes down or
comes back, its address is taken away or comes back. Events of a queue pair, or
of another object, go to the program that made it. The command also watches a
device that another process has open.`,
		Example: "  rocev2 asyncwatch -d eth0\n  rocev2 asyncwatch -d 192.0.2.7 --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var f devinfoFlags
			dev, err := openDevice(io, device, "", f.open)
			if err != nil {
				return err
			}
			defer dev.Close()
			return watchEvents(cmd.Context(), io, dev.Addr().String(), dev.AsyncEvent, lines)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&device}, "ib-dev", "d", deviceUsage)
	fs.Var(deviceFlag{&device}, "device", "the same as --ib-dev")
	fs.MarkHidden("device")
	fs.BoolVar(&lines, "json", false, "print each event as a JSON object")
	return cmd
}

// asyncEvent is the JSON form of an event.
type asyncEvent struct {
	Time   time.Time `json:"time"`
	Device string    `json:"device"`
	Event  string    `json:"event"`
	Number int       `json:"number"` // that of ibv_event_type
	Port   int       `json:"port"`
}

// watchEvents prints what next returns, until ctx ends.
func watchEvents(ctx context.Context, io streams, device string, next func(context.Context) (verbs.AsyncEvent, error), lines bool) error {
	if !lines {
		if _, err := fmt.Fprintf(io.out, "%s: waiting for asynchronous events\n", device); err != nil {
			return err
		}
	}
	for {
		e, err := next(ctx)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // the user has seen enough
		}
		if err != nil {
			return err
		}
		if lines {
			err = json.NewEncoder(io.out).Encode(asyncEvent{time.Now(), device, e.Event.String(), int(e.Event), 1})
		} else {
			_, err = fmt.Fprintf(io.out, "  event_type IBV_EVENT_%v (%d), port 1\n", e.Event, e.Event)
		}
		if err != nil {
			return err
		}
	}
}
