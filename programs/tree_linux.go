package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs"
	"github.com/gosoftroce/rocev2/verbs"
)

// cmNode is the device file of the connection manager.
const cmNode = "rdma_cm"

// attributes are what programs find out of a device without opening it.
type attributes struct {
	name  string // rxe_eth0
	index int    // of its device file: uverbs0
	addr  netip.Addr
	guid  uint64
	port  verbs.PortAttr
	gids  []verbs.GID
	opens verbs.Config // how a program's device is opened
}

// text is that of the device file, see the documentation of the package.
func (a attributes) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "address=%v\nname=%s\nindex=%d\nguid=%016x\nleased=1\n", a.addr, a.name, a.index, a.guid)
	if a.opens.Loopback {
		b.WriteString("loopback=1\n")
	}
	if a.opens.SharedMemory {
		b.WriteString("shm=1\n")
	}
	if a.opens.Strict != "" {
		fmt.Fprintf(&b, "strict=%s\n", a.opens.Strict)
	}
	if a.opens.Profile != "" {
		fmt.Fprintf(&b, "profile=%s\n", a.opens.Profile)
	}
	return b.String()
}

func (a attributes) node() string { return "uverbs" + strconv.Itoa(a.index) }

// deviceNumber returns the number that stat shows. Those of verbs are Linux's.
func deviceNumber(name string) (major, minor uint32) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(name, "uverbs"), 10, 16); err == nil {
		return 231, 192 + uint32(n)
	}
	return 10, 122
}

// tree is the folder of files that programs see as sysfs and /dev. It is made
// beside its place, and shown as a whole.
type tree struct {
	dir      string
	hardware bool // with links to the kernel's devices
	shown    bool
}

// hiddenFolder has what is not shown yet.
const hiddenFolder = "next"

// path returns that of a file that programs see.
func (t tree) path(parts ...string) string {
	dir := t.dir
	if !t.shown {
		dir = filepath.Join(dir, hiddenFolder)
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

// beside returns the path of a file that they do not.
func (t tree) beside(name string) string { return filepath.Join(t.dir, name) }

// folders are those that the tree consists of.
var folders = []string{"sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/infiniband_mad", "sys/class/infiniband_cm", "sys/class/misc", "dev/infiniband"}

// begin makes an empty tree. That of a daemon that was killed stays until show.
func (t tree) begin() error {
	t.clear()
	if err := makeFolder(t.beside("port")); err != nil {
		return err
	}
	for _, f := range folders {
		if err := makeFolder(t.path(f)); err != nil {
			return err
		}
	}
	if t.hardware {
		t.link()
	}
	return t.write("sys/class/infiniband_verbs", map[string]string{"abi_version": "6"})
}

// show has programs see the tree: all of it, and in the place of an old one.
func (t *tree) show() error {
	for _, top := range []string{"dev", "sys"} { // a program looks at sys first
		from, to := t.path(top), t.beside(top)
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
		if err != nil {
			_ = os.RemoveAll(to) // there is none, or the file system cannot exchange
			err = os.Rename(from, to)
		}
		if err != nil {
			return err
		}
	}
	t.shown = true
	return os.RemoveAll(t.beside(hiddenFolder))
}

// makeFolder makes a folder, and those above it that are not there. Programs of
// other users may enter what it makes, whatever the umask of the daemon is.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeFolder(filepath.Dir(path)); err == nil {
			err = os.Mkdir(path, 0o755)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return os.MkdirAll(path, 0o755) // an error if it is no folder
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// link has programs find the devices of the kernel. The connection manager is
// ours.
func (t tree) link() {
	for _, f := range folders {
		if f == "sys/class/misc" {
			continue
		}
		entries, err := os.ReadDir("/" + f)
		if err != nil {
			continue // the kernel has none
		}
		for _, e := range entries {
			if e.Name() == cmNode || e.Name() == "abi_version" {
				continue
			}
			to := filepath.Join("/", f, e.Name())
			if real, err := filepath.EvalSymlinks(to); err == nil {
				to = real // also where the name of the folder means ours
			}
			// What cannot be linked is not seen.
			_ = os.Symlink(to, t.path(f, e.Name()))
		}
	}
}

// free returns the first index from i on whose device file the kernel has not.
func (t tree) free(i int) int {
	for {
		_, err := os.Lstat(t.path("dev/infiniband/uverbs" + strconv.Itoa(i)))
		if err != nil {
			return i
		}
		i++
	}
}

// clear removes what was not shown.
func (t tree) clear() {
	os.RemoveAll(t.beside(hiddenFolder))
	old, _ := filepath.Glob(t.beside(freshFile + "*")) // the pattern is right
	for _, name := range old {
		os.Remove(name)
	}
}

// remove removes all but the directory, which stays if others have files there.
func (t tree) remove() {
	t.clear()
	os.RemoveAll(t.beside("sys"))
	os.RemoveAll(t.beside("dev"))
	os.Remove(t.beside("port")) // empty now, or others have sockets there
	os.Remove(t.beside(holdSocket))
	os.Remove(t.beside("lock"))
	os.Remove(t.dir)
}

func (t tree) has(path string) bool {
	_, err := os.Lstat(t.path(path))
	return err == nil
}

// write makes files of a folder. A reader sees the old contents or the new.
func (t tree) write(folder string, files map[string]string) error {
	for name, text := range files {
		path := t.path(folder, name)
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		if err := t.replace(path, text+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// freshFile begins the names of files that are being made. They are not in the
// folders that programs list.
const freshFile = "new-"

func (t tree) replace(path, text string) error {
	f, err := os.CreateTemp(t.dir, freshFile)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	// What services are made with keeps others out.
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// node makes a device file. The preloaded library opens it in the place of the
// program. Its text says where the device is, so no other user may write it.
func (t tree) node(name, text string) error {
	path := t.path("dev/infiniband", name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

func (t tree) manager() error {
	major, minor := deviceNumber(cmNode)
	if err := t.node(cmNode, ""); err != nil {
		return err
	}
	return t.write("sys/class/misc/rdma_cm", map[string]string{"abi_version": "4", "dev": fmt.Sprintf("%d:%d", major, minor)})
}

func (t tree) device(a attributes) error {
	major, minor := deviceNumber(a.node())
	err := t.write("sys/class/infiniband_verbs/"+a.node(), map[string]string{
		"ibdev":       a.name,
		"abi_version": "2", // of the queues that librxe maps
		"dev":         fmt.Sprintf("%d:%d", major, minor),
	})
	files := map[string]string{
		"node_type":      "1: CA",
		"node_guid":      guidText(a.guid),
		"sys_image_guid": guidText(a.guid),
		"node_desc":      a.name,
		"fw_ver":         "",
		"hw_rev":         "0",
		"hca_type":       "rocev2",
		"board_id":       "",
	}
	a.addPort(files)
	a.parent(files)
	return errors.Join(err, t.write("sys/class/infiniband/"+a.name, files), t.node(a.node(), a.text()))
}

// addPort adds the files of the port.
func (a attributes) addPort(files map[string]string) {
	for name, text := range map[string]string{
		"link_layer": "Ethernet", "lid": "0x0", "lid_mask_count": "0", "sm_lid": "0x0", "sm_sl": "0",
		"cap_mask": "0x00010000", "pkeys/0": "0xffff",
	} {
		files["ports/1/"+name] = text
	}
	maps.Copy(files, portFiles(a.port))
	for i := range max(uverbs.GIDTable, len(a.gids)) {
		// Libraries take an entry that is empty for one of this kind,
		// because Linux has no answer there. A file always has one.
		gid, kind := [16]byte{}, "IB/RoCE v1"
		if i < len(a.gids) {
			gid, kind = a.gids[i].Bytes(), a.gids[i].Type
			files[fmt.Sprintf("ports/1/gid_attrs/ndevs/%d", i)] = a.port.Interface
		}
		files[fmt.Sprintf("ports/1/gid_attrs/types/%d", i)] = kind
		files[fmt.Sprintf("ports/1/gids/%d", i)] = gidText(gid)
	}
	for _, c := range hardwareCounters {
		files["ports/1/hw_counters/"+c.name] = "0"
	}
	files["ports/1/hw_counters/lifespan"] = "1000" // ms, of one that is read often
}

// parent adds the files of the hardware that the device belongs to.
func (a attributes) parent(files map[string]string) {
	files["device/numa_node"] = "-1"
	files["device/local_cpus"] = firstLine("/sys/devices/system/cpu/online_mask", "ffffffff")
	files["device/local_cpulist"] = firstLine("/sys/devices/system/cpu/online", "0")
	if a.port.Interface != "" {
		files["device/net/"+a.port.Interface+"/address"] = firstLine("/sys/class/net/"+a.port.Interface+"/address", "00:00:00:00:00:00")
		files["device/net/"+a.port.Interface+"/ifindex"] = firstLine("/sys/class/net/"+a.port.Interface+"/ifindex", "0")
		files["device/net/"+a.port.Interface+"/dev_port"] = "0"
		files["device/net/"+a.port.Interface+"/dev_id"] = "0x0"
	}
	files["parent"] = a.port.Interface
}

func firstLine(name, otherwise string) string {
	b, err := fs.ReadFile(os.DirFS("/"), strings.TrimPrefix(name, "/"))
	if err != nil {
		return otherwise
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

func guidText(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

func gidText(g [16]byte) string {
	var groups []string
	for i := 0; i < len(g); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", g[i], g[i+1]))
	}
	return strings.Join(groups, ":")
}

// rateText is the speed as sysfs has it, a width and a signalling rate.
func rateText(mbps int) string {
	for _, r := range []struct {
		gbps int
		text string
	}{{400, "400 Gb/sec (4X NDR)"}, {200, "200 Gb/sec (4X HDR)"}, {100, "100 Gb/sec (4X EDR)"}, {56, "56 Gb/sec (4X FDR)"},
		{40, "40 Gb/sec (4X QDR)"}, {25, "25 Gb/sec (1X EDR)"}, {10, "10 Gb/sec (4X SDR)"}} {
		if mbps >= r.gbps*1000 {
			return r.text
		}
	}
	return "2.5 Gb/sec (1X SDR)"
}
