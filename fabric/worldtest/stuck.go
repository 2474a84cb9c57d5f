package worldtest

import (
	"fmt"
	"runtime"
	"strings"
)

// bubble returns what the traces of the goroutines of this bubble have in
// common, "" outside of one.
func bubble() string {
	b := make([]byte, 256)
	line, _, _ := strings.Cut(string(b[:runtime.Stack(b, false)]), "\n")
	_, name, ok := strings.Cut(line, "synctest bubble ")
	if !ok {
		return ""
	}
	return "synctest bubble " + name // up to the colon
}

// exceeded ends a test that has taken all its time: its programs wait for each
// other, while timers of connections go on for ever.
func (w *World) exceeded() {
	w.t.Errorf("worldtest: the test goes on after %v of virtual time (Config.Limit). Its goroutines:\n%s", w.cfg.Limit, stacks())
	w.closeDevices()
}

// mostStacks bounds what a test tells of its goroutines.
const mostStacks = 16

// stacks returns where the goroutines of this bubble wait, but for those of the
// devices.
func stacks() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	own := bubble()
	var text strings.Builder
	n := 0
	for _, stack := range strings.Split(string(all), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if !strings.Contains(head, own) || strings.Contains(stack, "hca.(*shard).start") || strings.Contains(stack, "(*World).exceeded") {
			continue
		}
		if n++; n <= mostStacks {
			fmt.Fprintf(&text, "\n%s\n", stack)
		}
	}
	if n > mostStacks {
		fmt.Fprintf(&text, "\n… and %d more\n", n-mostStacks)
	}
	return text.String()
}
