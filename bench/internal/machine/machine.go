// Package machine describes the processor of this machine: its model, caches,
// cores and mitigations. Figures of different models are not comparable.
package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Vendors, short.
const (
	AMD   = "amd"
	Intel = "intel"
	ARM   = "arm"
)

// Processor is a model of a processor, and how much of it there is.
type Processor struct {
	CPU    string `json:"cpu"`              // as the processor calls itself
	Vendor string `json:"vendor,omitempty"` // "amd", "intel", "arm" …
	Family string `json:"family,omitempty"` // ARM: the architecture
	Model  string `json:"model,omitempty"`  // ARM: the part
	// Stepping is the revision of the model.
	Stepping string  `json:"stepping,omitempty"`
	CPUs     int     `json:"cpus"`
	Cores    int     `json:"cores,omitempty"` // fewer than CPUs with SMT; 0 = unknown
	Virtual  bool    `json:"virtual,omitempty"`
	Caches   []Cache `json:"caches,omitempty"`
	// Mitigations are those in force, and vulnerabilities without one, by
	// the name that Linux has for them.
	Mitigations map[string]string `json:"mitigations,omitempty"`
}

// Cache is a cache of data of the first processor.
type Cache struct {
	Level  int `json:"level"`
	Bytes  int `json:"bytes"`
	Shared int `json:"shared,omitempty"` // CPUs of this machine that share it
}

// Here describes this machine, as far as its system tells.
func Here() Processor {
	p := Read(os.DirFS("/"))
	if p.CPUs == 0 {
		p.CPUs = runtime.NumCPU()
	}
	return p
}

// Read describes the machine of a file system with /proc and /sys of Linux.
func Read(root fs.FS) Processor {
	var p Processor
	p.cpuinfo(root)
	p.caches(root)
	files, _ := fs.ReadDir(root, "sys/devices/system/cpu/vulnerabilities") // none elsewhere
	for _, f := range files {
		if s := text(root, "sys/devices/system/cpu/vulnerabilities", f.Name()); s != "" && s != "Not affected" {
			if p.Mitigations == nil {
				p.Mitigations = map[string]string{}
			}
			p.Mitigations[f.Name()] = strings.TrimPrefix(s, "Mitigation: ")
		}
	}
	return p
}

func (p *Processor) cpuinfo(root fs.FS) {
	b, _ := fs.ReadFile(root, "proc/cpuinfo")
	cores := map[string]bool{}
	var socket string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			p.CPUs++
		case "model name":
			p.CPU = value
		case "vendor_id":
			p.Vendor = vendorOf(value)
		case "CPU implementer":
			p.Vendor = implementerOf(value)
		case "cpu family", "CPU architecture":
			p.Family = value
		case "model", "CPU part":
			p.Model = value
		case "stepping", "CPU revision":
			p.Stepping = value
		case "physical id":
			socket = value
		case "core id":
			cores[socket+"/"+value] = true
		case "flags":
			p.Virtual = p.Virtual || slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	p.Cores = len(cores)
}

// caches reads those of data that the first processor has.
func (p *Processor) caches(root fs.FS) {
	const dir = "sys/devices/system/cpu/cpu0/cache"
	files, _ := fs.ReadDir(root, dir)
	for _, f := range files {
		at := path.Join(dir, f.Name())
		level, err := strconv.Atoi(text(root, at, "level"))
		if err != nil || text(root, at, "type") == "Instruction" {
			continue
		}
		p.Caches = append(p.Caches, Cache{Level: level, Bytes: sizeOf(text(root, at, "size")), Shared: count(text(root, at, "shared_cpu_list"))})
	}
	slices.SortFunc(p.Caches, func(a, b Cache) int { return a.Level - b.Level })
}

func text(root fs.FS, dir, name string) string {
	b, _ := fs.ReadFile(root, path.Join(dir, name))
	return strings.TrimSpace(string(b))
}

// sizeOf reads 48K and 32M.
func sizeOf(s string) int {
	unit := 1
	switch {
	case strings.HasSuffix(s, "K"):
		unit = 1 << 10
	case strings.HasSuffix(s, "M"):
		unit = 1 << 20
	}
	n, _ := strconv.Atoi(strings.TrimRight(s, "KM"))
	return n * unit
}

// count counts the processors of a list like 0-3,8.
func count(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		n += b - a + 1
	}
	return n
}

// Folder is the name of the folder with the report of this model: vendor,
// family and model.
func (p *Processor) Folder() string {
	parts := []string{p.Vendor, p.Family, p.Model}
	if p.Vendor == "" {
		parts = []string{p.CPU}
	}
	return slug(strings.Join(parts, "-"))
}

func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	if out := strings.Trim(b.String(), "-"); out != "" {
		return out
	}
	return "unknown"
}

// Title names the model for people: "Intel Xeon Processor (Emerald Rapids)".
func (p *Processor) Title() string {
	name := strings.NewReplacer("(R)", "", "(TM)", "").Replace(p.CPU)
	if name = strings.Join(strings.Fields(name), " "); name == "" {
		name = "unknown processor"
	}
	if known := p.design(); known != "" {
		name += " (" + known + ")"
	}
	return name
}

// Numbers are vendor, family, model and stepping, as far as they are known.
func (p *Processor) Numbers() string {
	var parts []string
	for _, n := range [][2]string{{"", p.Vendor}, {"family ", p.Family}, {"model ", p.Model}, {"stepping ", p.Stepping}} {
		if n[1] != "" {
			parts = append(parts, n[0]+n[1])
		}
	}
	return strings.Join(parts, " ")
}

// Cached lists the caches: "L1d 48 KiB, L2 2 MiB, L3 300 MiB shared by 2".
func (p *Processor) Cached() string {
	var parts []string
	for _, c := range p.Caches {
		name, size := fmt.Sprintf("L%d", c.Level), fmt.Sprintf("%d KiB", c.Bytes>>10)
		if c.Level == 1 {
			name += "d"
		}
		if c.Bytes >= 1<<20 && c.Bytes%(1<<20) == 0 {
			size = fmt.Sprintf("%d MiB", c.Bytes>>20)
		}
		if c.Shared > 1 {
			size += fmt.Sprintf(" shared by %d", c.Shared)
		}
		parts = append(parts, name+" "+size)
	}
	return strings.Join(parts, ", ")
}
