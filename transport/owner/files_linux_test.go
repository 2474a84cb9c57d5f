//go:build !portable

package owner_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

// descriptors returns what the process has open, by number.
func descriptors(t *testing.T) map[int]string {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(list) == 0 {
		t.Fatal("the system does not tell which files are open", err)
	}
	all := map[int]string{}
	for _, path := range list {
		to, err := os.Readlink(path)
		if fd, e := strconv.Atoi(filepath.Base(path)); err == nil && e == nil {
			all[fd] = to // else it was of the look itself
		}
	}
	return all
}

// A device tells of all descriptors that it has, with those of its lease and of
// memory that it shares: a program that it is in may close none of them, and a
// child must have none.
func TestFilesOfLeasedDevice(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	begin(t, "owner", "127.0.0.1") // in another process
	before := descriptors(t)
	var devs [2]*verbs.Device
	for i := range devs {
		dev, err := verbs.OpenAddr(netip.MustParseAddr("127.0.0.1"), verbs.Config{SharedMemory: true, Leased: true})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		devs[i] = dev
	}
	for shared := false; !shared; { // until both have agreed on memory, packets go by UDP
		between(t, devs[0], devs[1], 1)
		shared = true
		for _, dev := range devs {
			shared = shared && dev.Stats().Link.TxShm > 0
		}
	}
	// What the beginning opens for a moment closes.
	unnamed := ""
	for end := time.Now().Add(10 * time.Second); ; {
		named := map[int]bool{}
		for _, dev := range devs {
			for _, fd := range verbs.HCA(dev).Program().Files() {
				named[fd] = true
			}
		}
		unnamed = ""
		for fd, to := range descriptors(t) {
			if before[fd] == "" && !named[fd] {
				unnamed += fmt.Sprintf("%d: %s\n", fd, to)
			}
		}
		if unnamed == "" || time.Now().After(end) {
			break
		}
	}
	if unnamed != "" {
		t.Errorf("the devices do not tell of\n%s", unnamed)
	}
}
