package verbs

import (
	"cmp"
	"fmt"
	"time"

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
	_, err := cc.ParseChoice(text)
	return err
}

// adapterNotifyInterval is the least time between two notifications with which
// adapters ship (MIN_TIME_BETWEEN_CNPS of mlxconfig).
const adapterNotifyInterval = 4 * time.Microsecond

// congestion returns what makes the congestion control of queue pairs, and the
// interval of notifications that goes with it.
func (c *Config) congestion() (func(qp.WindowConfig) qp.Controller, time.Duration, error) {
	if c.NotifyClass < -1 || c.NotifyClass > 255 {
		return nil, 0, fmt.Errorf("%w", &RangeError{What: "NotifyClass", Got: c.NotifyClass, Min: -1, Max: 255})
	}
	if c.Congestion == "" {
		return nil, c.NotifyInterval, nil
	}
	choice, err := cc.ParseChoice(c.Congestion)
	if err != nil {
		return nil, 0, fmt.Errorf("field Congestion: %w", err)
	}
	control, err := choice.Maker()
	interval := c.NotifyInterval
	if choice.Law == cc.LawDCQCNAdapter {
		interval = cmp.Or(interval, adapterNotifyInterval)
	}
	return control, interval, err
}

// control gives the queue pair a congestion control of its own.
func (c *QPConfig) control(dev *Device, config *qp.Config) error {
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
