package transport

import (
	"errors"
	"net/netip"
	"testing"
)

// A link that receives no multicast says so, and a wrapper passes the calls on.
func TestGroupsUnsupported(t *testing.T) {
	t.Parallel()
	group := netip.MustParseAddr("239.1.2.3")
	l := plainLink{}
	for _, link := range []Link{l, Wrapper{l}} {
		if err := JoinGroup(link, group); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("join: %v", err)
		}
		if err := LeaveGroup(link, group); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("leave: %v", err)
		}
	}
	j := &joiner{}
	if JoinGroup(Wrapper{Wrapper{j}}, group) != nil || j.joined != group {
		t.Errorf("joined %v", j.joined)
	}
	if LeaveGroup(Wrapper{j}, group) != nil || j.joined.IsValid() {
		t.Errorf("still in %v", j.joined)
	}
}

// joiner is a link that can join a group.
type joiner struct {
	plainLink
	joined netip.Addr
}

func (j *joiner) JoinGroup(g netip.Addr) error { j.joined = g; return nil }
func (j *joiner) LeaveGroup(netip.Addr) error  { j.joined = netip.Addr{}; return nil }

func TestCheckGroup(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1%lo")
	for _, c := range []struct {
		local netip.Addr
		group string
		want  string // empty: refused
	}{
		{four, "224.0.0.1", "224.0.0.1"},
		{four, "::ffff:239.255.255.255", "239.255.255.255"},
		{netip.MustParseAddr("::ffff:10.0.0.1"), "239.0.0.1", "239.0.0.1"},
		{six, "ff02::1%lo", "ff02::1"},
		{six, "ff00::", "ff00::"},
		{six, "239.0.0.1", ""},
		{six, "::ffff:239.0.0.1", ""},
		{four, "ff02::1", ""},
		{four, "240.0.0.0", ""},
		{four, "223.255.255.255", ""},
		{four, "255.255.255.255", ""},
		{six, "fe80::1", ""},
		{six, "::", ""},
	} {
		got, err := CheckGroup(c.local, netip.MustParseAddr(c.group))
		if (c.want == "") != errors.Is(err, ErrNotGroup) || err == nil && got.String() != c.want {
			t.Errorf("%s on %v: %v, %v", c.group, c.local, got, err)
		}
	}
	if _, err := CheckGroup(four, netip.Addr{}); !errors.Is(err, ErrNotGroup) {
		t.Errorf("no address: %v", err)
	}
}
