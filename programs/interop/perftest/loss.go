package perftest

import (
	"errors"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
)

// errPeerDone says that the peer has sent everything, and that nothing of it is
// under way any more.
var errPeerDone = errors.New("the peer has sent all its messages")

// lossQuiet is for how long nothing arrives once the peer says that it is
// through: what is missing then is lost.
const lossQuiet = 500 * time.Millisecond

// patience returns for how long nothing may come while the peer must answer.
func (c *Config) patience() time.Duration {
	if c.Service.Reliable() {
		return c.IdleTimeout
	}
	return c.LossTimeout
}

// lost reports whether err, which ended a wait, says that the messages that are
// still missing do not come any more.
func (f *flow) lost(err error) bool {
	if f.s.cfg.Service.Reliable() || !f.recvs {
		return false
	}
	return errors.Is(err, errPeerDone) || f.received > 0 && f.sends && errors.Is(err, interop.ErrNoProgress)
}
