package hca

import (
	"os"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// besideLink is a link that can be waited for together with another file, which
// is never readable.
type besideLink struct{ meddler }

func (l *besideLink) WaitAlso(*os.File, func()) error { return nil }
func (l *besideLink) WaitAtMost(time.Duration)        {}

// restless has always work.
type restless struct{}

func (restless) Look() bool              { return false }
func (restless) Sleep() bool             { return true }
func (restless) Awake()                  {}
func (restless) Polling(clock.Time) bool { return false }
func (restless) Attend(bool)             {}
func (restless) Notified() bool          { return false }

// A device whose programs ring all the time can be closed.
func TestCloseBesideWork(t *testing.T) {
	t.Parallel()
	for _, spin := range []int{1, defaultSpin} {
		l := &besideLink{}
		a, _ := newMeddled(t, Config{Spin: spin}, &l.meddler)
		s := a.shard()
		s.aside.Store(&besides{restless{}, l})
		s.link.Wake()
		ended := make(chan error, 1)
		go func() { ended <- a.dev.Close() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the device does not close")
		}
	}
}
