//go:build linux

package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/internal/debian"
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

// recipe is raised whenever what a manifest describes would be built
// differently, so that older ones are not used.
const recipe = 4

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

// Missing says why no guest can be booted at once, without installing or
// fetching anything; "" if one can.
func Missing() string {
	if os.Geteuid() != 0 {
		return "kernel guests need root"
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "kernel guests need TAP devices: " + err.Error()
	}
	if pkgs := debian.Missing(hostNeeds); len(pkgs) > 0 {
		return "kernel guests need " + strings.Join(pkgs, ", ")
	}
	dir, err := cacheDir()
	if err != nil {
		return err.Error()
	}
	if _, ok := readManifest(dir); !ok {
		return "no images of kernel guests in " + dir + " (make e2e-rxe fetches them)"
	}
	return ""
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

// Tools returns what the guests' programs are, by the packages that the images
// were made of: "rdma-core 44.0-2, perftest 4.5+0.17-1". It is "" where the
// cache has them no more.
func Tools() string {
	dir, err := cacheDir()
	if err != nil {
		return ""
	}
	var list []string
	for _, p := range []struct{ source, pkg string }{{"rdma-core", "rdmacm-utils"}, {"perftest", "perftest"}} {
		debs, _ := filepath.Glob(filepath.Join(dir, "apt", "cache", "archives", p.pkg+"_*.deb")) // the pattern is good
		var newest string
		var when time.Time
		for _, d := range debs {
			if st, err := os.Stat(d); err == nil && st.ModTime().After(when) {
				newest, when = filepath.Base(d), st.ModTime()
			}
		}
		if f := strings.Split(newest, "_"); len(f) == 3 {
			list = append(list, p.source+" "+strings.ReplaceAll(f[1], "%3a", ":"))
		}
	}
	return strings.Join(list, ", ")
}
