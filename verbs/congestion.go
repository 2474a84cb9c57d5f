package verbs

import (
	"cmp"
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// ErrCongestion is wrapped by the errors about Config.Congestion and
// QPConfig.Congestion.
var ErrCongestion = cc.ErrChoice

// CheckCongestion says what is wrong with a Config.Congestion.
func CheckCongestion(text string) error {
	if text == "" {
		return nil
	}
	return cc.CheckHosts(text)
}

// notifyScopes are the names of Config.NotifyScope.
var notifyScopes = map[string]qp.NotifyScope{
	"": qp.NotifyPerQP, "qp": qp.NotifyPerQP, "peer": qp.NotifyPerPeer, "port": qp.NotifyPerPort,
}

// congestion sets the congestion control of queue pairs, and the notifications
// that go with it.
func (c *Config) congestion(h *hca.Config) error {
	if c.NotifyClass < -1 || c.NotifyClass > 255 {
		return &RangeError{What: "NotifyClass", Got: c.NotifyClass, Min: -1, Max: 255}
	}
	scope, ok := notifyScopes[c.NotifyScope]
	if !ok {
		return fmt.Errorf("field NotifyScope: %w: %q is none of qp, peer, port", ErrCongestion, c.NotifyScope)
	}
	h.NotifyInterval, h.NotifyClass, h.NotifyScope = c.NotifyInterval, c.NotifyClass, scope
	if c.Congestion == "" {
		return nil
	}
	choice, err := cc.ParseChoice(c.Congestion)
	if err != nil {
		return fmt.Errorf("field Congestion: %w", err)
	}
	every, hold := choice.Law.Notify()
	h.NotifyInterval, h.NotifyHold = cmp.Or(c.NotifyInterval, every), hold
	h.Congestion, err = choice.Maker()
	return err
}

// control gives the queue pair a congestion control of its own.
func (c *QPConfig) control(dev *Device, config *qp.Config) error {
	if c.Type == UC || c.Type == UD {
		return fmt.Errorf("field Congestion: %w: %v has none, as nothing tells it of congestion; QP.SetRateLimit bounds its rate", ErrCongestion, c.Type)
	}
	choice, err := cc.ParseChoice(c.Congestion)
	if err != nil {
		return fmt.Errorf("field Congestion: %w", err)
	}
	control, err := choice.Maker()
	if err != nil {
		return fmt.Errorf("field Congestion: %w", err)
	}
	bounds := dev.window // which the engine narrows for the peer
	if control == nil {
		config.Congestion = cc.NewWindow(bounds)
	} else {
		config.Congestion = control(bounds)
	}
	return nil
}
