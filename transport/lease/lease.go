package lease

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// ErrNoOwner is the error of Open where no process owns the port and can be
// asked. Then a device may bind it itself.
var ErrNoOwner = errors.New("no owner of the port")

// ErrUnsupported is wrapped by errors on systems other than Linux.
var ErrUnsupported = errors.ErrUnsupported

// Config says what to ask for.
type Config struct {
	Shards int        // sockets, a power of two; 0 = 1
	UDP    udp.Config // its buffers are asked for; port 0 means 4791, which is the only one with owners
}

// ProgramsEnv is the environment variable with the directory of a daemon, or of
// a container's host. Owners' sockets are in port/ there.
const ProgramsEnv = "ROCEV2_PROGRAMS"

// RunEnv is the environment variable with the name of the run that a process
// belongs to: the owner remembers it with the lease.
const RunEnv = "ROCEV2_RUN"

// ownRun is the run of this process, "" if its name is none.
func ownRun() string {
	run := os.Getenv(RunEnv)
	if len(run) > 256 {
		return ""
	}
	return run
}

// SystemDir is where owners of the whole system have their sockets.
const SystemDir = "/run/rocev2/port"

// SocketName returns the name of an owner's socket in its directory: the
// address, with its zone if it is link-local, and the port if it is not 4791.
func SocketName(addr netip.Addr, port uint16) string {
	name := addr.Unmap().String()
	if port != 0 && port != rocev2.UDPPort {
		name += "_" + strconv.Itoa(int(port))
	}
	return name
}

// programsDir is the directory that the environment names, "" if it names none.
func programsDir() string {
	dir := os.Getenv(ProgramsEnv)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "port")
}
