package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Where a pod finds what it gets. The paths stay the same in every version:
// pods name them, where they add to LD_PRELOAD.
const (
	PodDirectory = "/run/rocev2"
	PodLibraries = "/usr/lib/rocev2"
)

// Config is what the plugin offers. The paths are those of the node, and the
// plugin's container has the same files at the same paths.
type Config struct {
	Resource  string // what pods ask for: rocev2/port
	Ports     int    // how many of it there are
	Kubelet   string // the directory of the kubelet's socket, and of the plugin's
	Directory string // that of the daemon's sockets
	Libraries string // where the plugin has the libraries for pods
	Ready     string // URL that answers 200 while the daemon serves; "": not asked
	Interval  time.Duration
}

// Default returns the configuration of the manifests.
func Default() Config {
	return Config{
		Resource:  "rocev2/port",
		Ports:     32,
		Kubelet:   filepath.Clean(api.DevicePluginPath),
		Directory: "/run/rocev2-pods/programs",
		Libraries: "/var/lib/rocev2-pods",
		Interval:  5 * time.Second,
	}
}

// mostPorts bounds the message in which the kubelet gets them all.
const mostPorts = 10000

// mostSocket is how long the name of a socket is at most (unix(7)).
const mostSocket = len(unix.RawSockaddrUnix{}.Path) - 1

// socket is the plugin's.
func (c *Config) socket() string { return filepath.Join(c.Kubelet, fileName(c.Resource)+".sock") }

// Check returns all that is wrong with a configuration. The flags have the
// names of the errors.
func (c *Config) Check() error {
	var errs []error
	fail := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %w", flag, fmt.Errorf(format, args...)))
	}
	if err := checkResource(c.Resource); err != nil {
		fail("resource", "%w", err)
	}
	if c.Ports < 1 || c.Ports > mostPorts {
		fail("ports", "%d: it must be between 1 and %d", c.Ports, mostPorts)
	}
	if c.Interval < 100*time.Millisecond || c.Interval > time.Hour {
		fail("interval", "%v: it must be between 100ms and 1h", c.Interval)
	}
	for _, p := range []struct{ flag, path string }{{"kubelet", c.Kubelet}, {"directory", c.Directory}, {"libraries", c.Libraries}} {
		if err := checkPath(p.path); err != nil {
			fail(p.flag, "%w", err)
		}
	}
	if n := len(c.socket()); n > mostSocket {
		fail("resource", "the plugin's socket would be %s, which has %d bytes; there may be %d", c.socket(), n, mostSocket)
	}
	if c.Ready != "" {
		if u, err := url.Parse(c.Ready); err != nil {
			fail("ready", "%w", err)
		} else if u.Scheme != "http" || u.Host == "" {
			fail("ready", "%q is not an address such as http://127.0.0.1:14792/readyz", c.Ready)
		}
	}
	return errors.Join(errs...)
}

// checkResource checks a name as the kubelet does, and says what is wrong.
func checkResource(name string) error {
	domain, _, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return fmt.Errorf("%q has no domain: a resource of a device plugin is called DOMAIN/NAME, such as rocev2/port", name)
	case strings.Contains(domain, "kubernetes.io"):
		return fmt.Errorf("%q: the domain kubernetes.io is Kubernetes's own", name)
	case strings.HasPrefix(name, "requests."):
		return fmt.Errorf("%q: quotas have names that begin with \"requests.\"", name)
	}
	// A quota of it must be a name, too.
	for _, n := range []string{name, "requests." + name} {
		if msgs := validation.IsQualifiedName(n); len(msgs) > 0 {
			return fmt.Errorf("%q: %s", n, strings.Join(msgs, "; "))
		}
	}
	return nil
}

// checkPath checks a path of the node, which the kubelet gives to a container
// runtime.
func checkPath(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("%q is not an absolute path", path)
	case filepath.Clean(path) == "/":
		return errors.New("a pod would get all files of the node")
	case filepath.Clean(path) != path: // "/run/x/" has another directory above it
		return fmt.Errorf("%q: write it as %q", path, filepath.Clean(path))
	case strings.ContainsAny(path, ":,\n"):
		return fmt.Errorf("%q: container runtimes take no colons and commas in the path of a mount", path)
	}
	return nil
}

// directoryAt returns an error that says what to do where there is no
// directory.
func directoryAt(path, hint string) error {
	switch st, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s: %s", path, hint)
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	}
	return nil
}

// executable returns an error for a file system from which nothing can be
// loaded, in pods neither: a mount of the directory has the same option.
func executable(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s is mounted noexec, so pods could load no library from there: choose another directory of the node (--libraries)", path)
	}
	return nil
}
