package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
)

// What a directory says of a region is looked at before the program sees it:
// sizes that are no sizes, names that would write to a terminal, lists that do
// not end.
func TestForgedDirectory(t *testing.T) {
	t.Parallel()
	many := make([]*exported, maxRegions+1)
	for i := range many {
		many[i] = &exported{entry: dirEntry{name: fmt.Sprintf("%06d", i), size: 1}}
	}
	for name, list := range map[string][]*exported{
		"negative size":                 {{entry: dirEntry{name: "r", size: 1 << 63}}},
		"beyond the end":                {{entry: dirEntry{name: "r", addr: 1<<64 - 8, size: 16}}},
		"a name that clears the screen": {{entry: dirEntry{name: "\x1b[2J", size: 1}}, {entry: dirEntry{name: "r", size: 1 << 63}}},
		"no end":                        many,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{})
				p.b.exports.regions = list
				a, _ := p.connect()
				if _, err := a.Regions(testContext(t)); !errors.Is(err, ErrProtocol) {
					t.Errorf("the list: %v", err)
				}
				if name == "no end" {
					return
				}
				a, _ = p.connect()
				if r, err := a.Region(testContext(t), "r"); !errors.Is(err, ErrProtocol) {
					t.Errorf("%v (%v)", r, err)
				}
			})
		})
	}
}

// An access list may have IPv4 networks in the form of IPv6, and a client may
// have a link-local address, whose zone is this host's.
func TestAccessLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefix, client string
		want           bool
	}{
		{"192.0.2.0/24", "192.0.2.7", true},
		{"::ffff:192.0.2.0/120", "192.0.2.7", true},
		{"::ffff:192.0.2.0/120", "192.0.3.7", false},
		{"::ffff:0.0.0.0/96", "198.51.100.1", true},
		{"fe80::/10", "fe80::1%eth0", true},
		{"fe80::/10", "2001:db8::1", false},
	} {
		e := exported{allow: plainPrefixes([]netip.Prefix{netip.MustParsePrefix(c.prefix)})}
		if got := e.allows(asker{addr: netip.MustParseAddr(c.client)}); got != c.want {
			t.Errorf("%s for %s: %v", c.prefix, c.client, got)
		}
	}
}

// Persist of more than a request can say reaches the end: here that is not in
// the file any more.
func TestPersistOfManyBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if strconv.IntSize < 64 {
			t.Skip("there is no such memory in a process of 32 bits: run it in one of 64")
		}
		size := int64(5 << 30)
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		must(t, err)
		defer f.Close()
		if err := f.Truncate(size); err != nil {
			t.Skipf("the file system of %s has no files of %d bytes (set TMPDIR to another, such as ext4 or xfs): %v", f.Name(), size, err)
		}
		p := newPair(t, pairConfig{})
		if _, err := p.b.exports.export("r", Region{File: f, Writable: true, Persistent: true}); err != nil {
			t.Skipf("the file system of %s has no persistent regions (set TMPDIR to a disk): %v", f.Name(), err)
		}
		a, _ := p.connect()
		ctx := testContext(t)
		r, err := a.Region(ctx, "r")
		must(t, err)
		must(t, r.Persist(ctx, 0, int(size)))
		must(t, f.Truncate(size-1<<30))
		if err := r.Persist(ctx, 0, int(size)); err == nil {
			t.Error("what is not in the file counts as persistent")
		}
	})
}
