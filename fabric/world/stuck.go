package world

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// mostNamed is how many programs an error names.
const mostNamed = 8

// Waiting says of the programs that have not returned by what function they
// wait, and where in their source, on a line each: of the first eight. It is
// for errors, between two calls of RunFor.
func (w *World) Waiting() string {
	if w.playing || w.closed {
		return ""
	}
	w.tasks.run() // what has not begun does not wait
	return w.tasks.waiting(mostNamed)
}

// waiting says what each program waits for, for at most that many of them.
func (s *scheduler) waiting(most int) string {
	var text strings.Builder
	for i, t := range s.all {
		if i == most {
			fmt.Fprintf(&text, "\n\t… and %d more", len(s.all)-most)
			break
		}
		fmt.Fprintf(&text, "\n\thost %d: %s", t.host.number, s.ask(t))
	}
	return text.String()
}

// ask has t say where it waits.
func (s *scheduler) ask(t *program) string {
	t.asked = true
	s.step(t)
	return t.where
}

// waits are the packages whose functions wait for others.
var waits = map[string]bool{"hca": true, "verbs": true, "task": true, "world": true}

// whereabouts says by which function the program waits that calls it, and from
// where that is called.
func whereabouts() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	by := ""
	for {
		f, more := frames.Next()
		dir, name := path.Split(f.Function)
		pkg, _, _ := strings.Cut(name, ".")
		if dir == "" && pkg == "iter" {
			return by + " of a task"
		}
		if !strings.Contains(dir, "/rocev2/") || !waits[pkg] {
			return fmt.Sprintf("%s, called by %s (%s:%d)", by, name, path.Base(f.File), f.Line)
		}
		if !strings.HasPrefix(name, "world.(*scheduler)") {
			by = name
		}
		if !more {
			return by
		}
	}
}
