// Package report turns the rows of a run into what people read: JSON with
// everything, a Markdown report that begins with what was to be reached, and
// plots.
package report

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Environment says where and how rows were measured. It is part of every row.
type Environment struct {
	Commit  string        `json:"commit"` // with "+changes" if the tree had any
	Kernel  string        `json:"kernel"`
	CPU     string        `json:"cpu"`
	CPUs    int           `json:"cpus"`
	Go      string        `json:"go"`
	Time    time.Time     `json:"time"` // of the beginning
	Grid    string        `json:"grid"` // "full" or "quick"
	Warm    time.Duration `json:"warm_ns"`
	Measure time.Duration `json:"measure_ns"`
}

// Here describes this machine and the tree in the current directory.
func Here() Environment {
	return Environment{Commit: commit(), Kernel: kernel(), CPU: cpu(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Time: time.Now().UTC()}
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	c := strings.TrimSpace(string(out))
	// What a run itself writes does not count as a change.
	if out, err := exec.Command("git", "status", "--porcelain", "--", ":/", ":(top,exclude)bench/report").Output(); err == nil && len(out) > 0 {
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

func cpu() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}
