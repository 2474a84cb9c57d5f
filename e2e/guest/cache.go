//go:build linux

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CacheEnv names the environment variable that moves the cache.
const CacheEnv = "ROCEV2_E2E_CACHE"

// RefreshEnv names the environment variable that, when set, makes Prepare look
// for newer packages instead of using what the cache has.
const RefreshEnv = "ROCEV2_E2E_REFRESH"

// cacheDir returns the directory for everything downloaded or built.
func cacheDir() (string, error) {
	if d := os.Getenv(CacheEnv); d != "" {
		return filepath.Abs(d)
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (set %s)", err, CacheEnv)
	}
	return filepath.Join(d, "rocev2", "e2e"), nil
}

// lock takes the cache for this process; the returned function gives it back.
// The kernel releases it too when the process dies.
func lock(dir string, logf func(string, ...any)) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		logf("waiting for another run that fills %s", dir)
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// recipe is raised whenever what a manifest describes would be built
// differently, so that older ones are not used.
const recipe = 3

// manifest records what the cache holds, by package version.
type manifest struct {
	Recipe int
	Images []Image
}

// Image is a bootable kernel with its initramfs.
type Image struct {
	Line      string // "6.1" or "6.12"
	Release   string // as uname -r has it
	Package   string // name and version of the kernel's package
	Userland  string // the Debian release of the programs in the guest
	Kernel    string // path of the kernel
	Initramfs string // path of the initramfs without the agent
}

func readManifest(dir string) (*manifest, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return nil, false
	}
	var m manifest
	if json.Unmarshal(b, &m) != nil || m.Recipe != recipe || len(m.Images) == 0 {
		return nil, false
	}
	for _, i := range m.Images {
		for _, p := range []string{i.Kernel, i.Initramfs} {
			if _, err := os.Stat(p); err != nil {
				return nil, false
			}
		}
	}
	return &m, true
}

func (m *manifest) write(dir string) error {
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "manifest.json"), append(b, '\n'), 0o644)
}

// writeFile replaces a file so that a reader sees the old or the new content,
// never a part.
func writeFile(path string, b []byte, mode os.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
