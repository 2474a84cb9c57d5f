//go:build linux

package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wantedModules are loaded in every guest with what they depend on; those with
// a question mark only if the kernel has them.
var wantedModules = []string{
	"virtio_pci?", "virtio_net", "crc32_generic?", "crc32_pclmul?",
	"ib_uverbs", "rdma_ucm", "ib_umad", "rdma_rxe",
	"sch_netem", "sch_ingress", "cls_matchall", "act_mirred", "ifb",
}

// modules finds and unpacks the modules of one kernel.
type modules struct {
	root    string // lib/modules/RELEASE
	busybox string // decompresses
	path    map[string]string
	builtin map[string]bool
	done    map[string]bool
	order   []module
}

type module struct {
	name string
	elf  []byte
}

func newModules(root, busybox string) (*modules, error) {
	m := &modules{root: root, busybox: busybox, path: map[string]string{}, builtin: map[string]bool{}, done: map[string]bool{}}
	b, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for _, l := range strings.Fields(string(b)) {
		m.builtin[moduleName(l)] = true
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".ko") {
			m.path[moduleName(p)] = p
		}
		return err
	})
	return m, err
}

func moduleName(p string) string {
	name, _, _ := strings.Cut(filepath.Base(p), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// add appends the module and, before it, what it depends on.
func (m *modules) add(ctx context.Context, name string, optional bool) error {
	name = moduleName(name)
	if m.done[name] || m.builtin[name] {
		return nil
	}
	m.done[name] = true
	p := m.path[name]
	if p == "" && optional {
		return nil
	}
	if p == "" {
		return fmt.Errorf("%s has no module %s", m.root, name)
	}
	b, err := m.read(ctx, p)
	if err != nil {
		return err
	}
	hard, soft, err := moduleDepends(b)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	for _, d := range soft {
		if err := m.add(ctx, d, true); err != nil {
			return err
		}
	}
	for _, d := range hard {
		if err := m.add(ctx, d, false); err != nil {
			return err
		}
	}
	m.order = append(m.order, module{name, b})
	return nil
}

// read returns a module's ELF file, decompressed.
func (m *modules) read(ctx context.Context, p string) ([]byte, error) {
	var tool string
	switch filepath.Ext(p) {
	case ".xz":
		tool = "xzcat"
	case ".gz":
		tool = "zcat"
	default:
		return os.ReadFile(p)
	}
	out, err := exec.CommandContext(ctx, m.busybox, tool, p).Output()
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", p, err)
	}
	return out, nil
}

// moduleDepends reads the section .modinfo: KEY=VALUE strings, NUL terminated.
func moduleDepends(b []byte) (hard, soft []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, nil, fmt.Errorf("no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, nil, err
	}
	for e := range strings.SplitSeq(string(info), "\x00") {
		switch k, v, _ := strings.Cut(e, "="); k {
		case "depends":
			hard = append(hard, strings.FieldsFunc(v, func(r rune) bool { return r == ',' })...)
		case "softdep":
			if pre, ok := strings.CutPrefix(v, "pre: "); ok {
				pre, _, _ = strings.Cut(pre, "post:")
				soft = append(soft, strings.Fields(pre)...)
			}
		}
	}
	return hard, soft, nil
}
