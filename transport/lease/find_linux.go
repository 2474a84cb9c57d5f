//go:build !portable

package lease

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/userdir"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// userBases returns the directories that this user's may be in. There may be
// several: a service and a shell of one user need not have the same
// environment.
func userBases() (list []string) {
	if d := userdir.Runtime(); d != "" {
		list = append(list, filepath.Join(d, "rocev2"))
	}
	return append(list, filepath.Join(os.TempDir(), userdir.Name()))
}

// UserDirs returns the directories where owners of this user have their
// sockets, one network namespace each. The user's own directories are made if
// they are not there.
func UserDirs() []string { return userDirs(func(string) bool { return true }) }

// userDirs returns those below bases that want says.
func userDirs(want func(base string) bool) (list []string) {
	name := "port-" + strconv.FormatUint(udp.OwnNamespace(), 16)
	for _, base := range userBases() {
		if !want(base) {
			continue
		}
		f, err := userdir.Open(base)
		if err != nil {
			continue
		}
		list = append(list, filepath.Join(f.Name(), name))
		f.Close()
	}
	return list
}

// exists reports whether there is something at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// place is a directory where an owner may have its socket.
type place struct {
	dir  string
	here bool // it counts only if it is of this network namespace
}

// places returns where to look, in order.
func places() (list []place) {
	if dir := programsDir(); dir != "" {
		list = append(list, place{dir: dir})
	}
	for _, dir := range userDirs(exists) {
		list = append(list, place{dir: dir})
	}
	return append(list, place{dir: SystemDir, here: true})
}

// Sockets returns the paths of the sockets of owners that this process finds,
// one for each address and port.
func Sockets() (list []string) {
	names := map[string]bool{}
	for _, p := range places() {
		dir, err := os.ReadDir(p.dir)
		if err != nil {
			continue // there is none, or it is not for this user
		}
		for _, e := range dir {
			if e.Type() == os.ModeSocket && !strings.HasPrefix(e.Name(), ".") && !names[e.Name()] {
				names[e.Name()] = true
				list = append(list, filepath.Join(p.dir, e.Name()))
			}
		}
	}
	return list
}

// Dial connects to a socket by its path, which may be longer than the address
// of a socket.
func Dial(path string) (*net.UnixConn, error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path))
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
}
