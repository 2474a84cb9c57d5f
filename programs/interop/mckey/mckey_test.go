package mckey

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

var group = netip.MustParseAddr("239.18.0.1")

type outcome struct {
	res Result
	err error
}

// sides runs a receiver on a, and a sender on b once the receiver is a member.
func sides(ctx context.Context, a, b *verbs.Device, receiver, sender Config) (received, sent outcome) {
	receiver.Group, sender.Group, sender.Sender = group, group, true
	joined, done := make(chan struct{}), make(chan struct{})
	receiver.OnJoined = func() { close(joined) }
	go func() {
		defer close(done)
		received.res, received.err = Run(ctx, a, receiver)
	}()
	<-joined
	sent.res, sent.err = Run(ctx, b, sender)
	<-done
	return received, sent
}

// TestBothRoles runs senders and receivers in virtual time.
func TestBothRoles(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]struct{ receiver, sender Config }{
		"defaults":     {},
		"large":        {Config{Size: 4096, Messages: 50}, Config{Size: 4096, Messages: 50}},
		"send only":    {Config{}, Config{SendOnly: true}},
		"many members": {Config{Connections: 3}, Config{}},
		"many senders": {Config{Messages: 20}, Config{Connections: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t)
				start := time.Now()
				received, sent := sides(t.Context(), a, b, cfg.receiver, cfg.sender)
				if received.err != nil || sent.err != nil {
					t.Fatalf("receiver %v, sender %v", received.err, sent.err)
				}
				if d := time.Since(start); d < DefaultPause {
					t.Errorf("the sender sent after %v", d)
				}
				want := max(cfg.receiver.Messages, DefaultMessages) * max(cfg.receiver.Connections, 1)
				if received.res.Messages != want || received.res.Bytes != uint64(want*max(cfg.receiver.Size, DefaultSize)) {
					t.Errorf("the receiver has %+v, expected %d messages", received.res, want)
				}
				if received.res.From != b.Addr() {
					t.Errorf("the messages came from %v, not %v", received.res.From, b.Addr())
				}
				if received.res.Sender == 0 || received.res.Sender == verbs.MulticastQPN {
					t.Errorf("the sender is queue pair %v", received.res.Sender)
				}
			})
		})
	}
}

// TestLossIsNamed loses the last messages on the way.
func TestLossIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Seed: 7, Port: fabric.PortConfig{Loss: 0.5}}})
		received, sent := sides(t.Context(), a, b, Config{Messages: 40}, Config{Messages: 40})
		if sent.err != nil {
			t.Error(sent.err)
		}
		if !errors.Is(received.err, ErrLost) || !strings.Contains(received.err.Error(), "of 40 messages came, then nothing for 5s") {
			t.Errorf("the receiver ends with %v", received.err)
		}
	})
}

// TestReceiverWaitsForEver ends a receiver to which nothing is sent.
func TestReceiverWaitsForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := verbstest.Devices(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("enough"))
		defer cancel()
		start := time.Now()
		_, err := Run(ctx, a, Config{Group: group})
		if err == nil || !strings.Contains(err.Error(), "enough") || time.Since(start) < time.Hour {
			t.Errorf("it ends after %v with %v", time.Since(start), err)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	dev, _ := verbstest.Devices(t)
	for want, c := range map[string]Config{
		"no multicast address":  {Group: netip.MustParseAddr("192.0.2.9")},
		"different IP versions": {Group: netip.MustParseAddr("ff05::1")},
		"larger than active":    {Group: group, Size: 5000},
		"number of messages":    {Group: group, Messages: 1 << 30},
		"number of connections": {Group: group, Connections: -1},
		"does not receive":      {Group: group, SendOnly: true},
	} {
		var ce *interop.ConfigError
		if err := c.Check(dev); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
}
