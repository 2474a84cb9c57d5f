package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// closedDaemon says how a user comes to the daemon of the system, if there is
// one in a directory that the user may not enter. Otherwise it is "".
func closedDaemon(dir string) string {
	if !errors.Is(unix.Access(dir, unix.X_OK), unix.EACCES) {
		return ""
	}
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	gid := strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Gid), 10)
	group := gid
	if g, err := user.LookupGroupId(gid); err == nil {
		group = g.Name
	}
	name := "USER"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("the daemon of the system (%s) is for members of the group %s: to join it, have root run usermod -aG %s %s, and log in again", dir, group, group, name)
}
