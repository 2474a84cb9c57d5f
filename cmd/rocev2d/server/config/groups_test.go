package config

import (
	"os/user"
	"runtime"
	"strconv"
	"testing"
)

// A member of a group that the configuration names may share the ports, by
// the name of the group and by its number. A user whom the system does not
// know is in no group.
func TestMembersOfGroups(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("users of Windows have no numbers")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(me.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	g, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Skip("the group of this process has no name: " + err.Error())
	}
	for _, tc := range []struct {
		groups []string
		uid    uint32
		want   bool
	}{
		{nil, uint32(uid), false},
		{[]string{g.Name}, uint32(uid), true},
		{[]string{g.Gid}, uint32(uid), true},
		{[]string{"4123456789"}, uint32(uid), false},
		{[]string{g.Name}, 4123456789, false},
	} {
		member, err := (&Programs{Groups: tc.groups}).Member()
		if err != nil {
			t.Fatal(err)
		}
		if got := member(tc.uid); got != tc.want {
			t.Errorf("groups %q: user %d is a member: %v, want %v", tc.groups, tc.uid, got, tc.want)
		}
	}
}
