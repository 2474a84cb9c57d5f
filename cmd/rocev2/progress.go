package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress shows on standard error how far a long run is.
type progress struct {
	io      streams
	on, tty bool

	mu    sync.Mutex
	start time.Time
	last  time.Time
	shown bool // a line stands that must be wiped
}

// A run shows progress after progressAfter, and then every progressEvery.
const (
	progressAfter    = 2 * time.Second
	progressEvery    = 500 * time.Millisecond
	progressEveryLog = 2 * time.Second // where lines cannot be overwritten
)

// newProgress makes one that shows if standard error is a terminal, or if the
// user asks for it.
func newProgress(io streams, asked bool) *progress {
	p := &progress{io: io, start: time.Now()}
	if f, ok := io.err.(*os.File); ok {
		if st, err := f.Stat(); err == nil {
			p.tty = st.Mode()&os.ModeCharDevice != 0
		}
	}
	p.on = asked || p.tty
	return p
}

// show says how many of total operations are through; total 0 means that time
// bounds the run.
func (p *progress) show(what string, done, total uint64) {
	p.say(func(ran time.Duration) string {
		if total > 0 {
			return fmt.Sprintf("%s: %d of %d (%d %%), %v", what, done, total, done*100/total, ran)
		}
		return fmt.Sprintf("%s: %d done, %v", what, done, ran)
	})
}

// say shows a line, if it is time for one. The function makes it from how long
// the run has lasted, in whole seconds.
func (p *progress) say(line func(ran time.Duration) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	every := progressEvery
	if !p.tty {
		every = progressEveryLog
	}
	if !p.on || now.Sub(p.start) < progressAfter || now.Sub(p.last) < every {
		return
	}
	p.last = now
	text := line(now.Sub(p.start).Round(time.Second))
	if !p.tty {
		fmt.Fprintln(p.io.err, text)
		return
	}
	fmt.Fprintf(p.io.err, "\r\x1b[K%s", text)
	p.shown = true
}

// clear wipes the line before something else is printed.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.io.err, "\r\x1b[K")
		p.shown = false
	}
}
