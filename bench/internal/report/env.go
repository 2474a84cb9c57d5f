// Package report turns the rows of a run into what people read: JSON with
// everything, a Markdown report that begins with what was to be reached, and
// plots.
package report

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/machine"
)

// Environment says where and how rows were measured. It is part of every row.
type Environment struct {
	Commit string `json:"commit"` // with "+changes" if the tree had any
	Kernel string `json:"kernel"`
	machine.Processor
	Go      string        `json:"go"`
	Time    time.Time     `json:"time"` // of the beginning
	Grid    string        `json:"grid"` // "full" or "quick"
	Warm    time.Duration `json:"warm_ns"`
	Measure time.Duration `json:"measure_ns"`
}

// Here describes this machine and the tree in the current directory.
func Here() Environment {
	return Environment{Commit: commit(), Kernel: kernel(), Processor: machine.Here(), Go: runtime.Version(), Time: time.Now().UTC()}
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	c := strings.TrimSpace(string(out))
	// What a run itself writes does not count as a change.
	if out, err := exec.Command("git", "status", "--porcelain", "--", ":/", ":(top,exclude)bench/report", ":(top,exclude)README.md").Output(); err == nil && len(out) > 0 {
		c += "+changes"
	}
	return c
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(b))
}
