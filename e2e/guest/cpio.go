//go:build linux

package guest

import (
	"fmt"
	"io"
	"path"
	"sort"
	"strings"
)

// tree is the content of an initramfs: absolute path to file.
type tree map[string]node

type node struct {
	mode uint32 // type and permission bits as in stat
	data []byte // content, or a link's target
}

const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

func (t tree) file(name string, data []byte, perm uint32) { t[name] = node{modeFile | perm, data} }
func (t tree) link(name, target string)                   { t[name] = node{modeLink | 0o777, []byte(target)} }
func (t tree) dir(name string)                            { t[name] = node{mode: modeDir | 0o755} }

// writeCPIO writes the tree as a "newc" archive, which the kernel unpacks;
// directories on the way to a file are added.
func (t tree) writeCPIO(w io.Writer) error {
	all := tree{}
	for name, n := range t {
		all[name] = n
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if _, ok := t[d]; !ok {
				all.dir(d)
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names) // a directory sorts before what it holds
	for i, name := range names {
		if err := writeEntry(w, i+1, strings.TrimPrefix(name, "/"), all[name]); err != nil {
			return err
		}
	}
	return writeEntry(w, 0, "TRAILER!!!", node{})
}

func writeEntry(w io.Writer, inode int, name string, n node) error {
	// Magic, then 13 fields of 8 hexadecimal digits: inode, mode, uid, gid,
	// links, mtime, size, 4 device numbers, name length with NUL, checksum.
	h := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, n.mode, 0, 0, 1, 0, len(n.data), 0, 0, 0, 0, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(h), n.data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, (4-len(part)%4)%4)); err != nil {
			return err
		}
	}
	return nil
}
