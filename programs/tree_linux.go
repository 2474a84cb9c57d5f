package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cmNode is the device file of the connection manager.
const cmNode = "rdma_cm"

// Attributes are what programs find out of a device without opening it.
type Attributes struct {
	Name      string // rxe_eth0
	Index     int    // of its device file: uverbs0
	NodeGUID  uint64
	Interface string // eth0
	Active    bool   // the port carries traffic
	Speed     int    // Mb/s; 0 if not known
	GIDs      []GID  // the table
	GIDTable  int    // its entries
	Firmware  string
}

// GID is an entry of the table.
type GID struct {
	GID  [16]byte
	Type string // "RoCE v2"
}

func (a Attributes) node() string { return "uverbs" + strconv.Itoa(a.Index) }

// deviceNumber returns the number that stat shows. Those of verbs are Linux's.
func deviceNumber(name string) (major, minor uint32) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(name, "uverbs"), 10, 16); err == nil {
		return 231, 192 + uint32(n)
	}
	return 10, 122
}

// tree is the folder of files that programs see as sysfs and /dev.
type tree struct {
	dir      string
	hardware bool // with links to the kernel's devices
}

func (t tree) path(parts ...string) string {
	return filepath.Join(append([]string{t.dir}, parts...)...)
}

// folders are those that the tree consists of.
var folders = []string{"sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/infiniband_mad", "sys/class/infiniband_cm", "sys/class/misc", "dev/infiniband"}

// begin makes an empty tree.
func (t tree) begin() error {
	t.clear()
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

func (t tree) clear() {
	os.RemoveAll(t.path("sys"))
	os.RemoveAll(t.path("dev"))
}

// remove leaves nothing behind but the directory, if others have files there.
func (t tree) remove() {
	t.clear()
	os.Remove(t.path("socket"))
	os.Remove(t.path("lock"))
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
		if old, err := os.ReadFile(path); err == nil && string(old) == text+"\n" {
			continue
		}
		fresh := path + ".new"
		err := os.WriteFile(fresh, []byte(text+"\n"), 0o644)
		if err == nil { // what services are made with keeps others out
			err = os.Chmod(fresh, 0o644)
		}
		if err == nil {
			err = os.Rename(fresh, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// node makes a device file, which only its name counts of.
func (t tree) node(name string) error {
	path := t.path("dev/infiniband", name)
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}

func (t tree) manager() error {
	major, minor := deviceNumber(cmNode)
	return t.write("sys/class/misc/rdma_cm", map[string]string{"abi_version": "4", "dev": fmt.Sprintf("%d:%d", major, minor)})
}

func (t tree) device(a Attributes) error {
	major, minor := deviceNumber(a.node())
	err := t.write("sys/class/infiniband_verbs/"+a.node(), map[string]string{
		"ibdev":       a.Name,
		"abi_version": "2", // of the queues that librxe maps
		"dev":         fmt.Sprintf("%d:%d", major, minor),
	})
	files := map[string]string{
		"node_type":      "1: CA",
		"node_guid":      guidText(a.NodeGUID),
		"sys_image_guid": guidText(a.NodeGUID),
		"node_desc":      a.Name,
		"fw_ver":         a.Firmware,
		"hw_rev":         "0",
		"hca_type":       "rocev2",
		"board_id":       "",
		"ports/1/rate":   rateText(a.Speed),
	}
	a.port(files)
	a.parent(files)
	return errors.Join(err, t.write("sys/class/infiniband/"+a.Name, files))
}

// port adds the files of the port.
func (a Attributes) port(files map[string]string) {
	for name, text := range map[string]string{
		"link_layer": "Ethernet", "lid": "0x0", "lid_mask_count": "0", "sm_lid": "0x0", "sm_sl": "0",
		"cap_mask": "0x00010000", "pkeys/0": "0xffff", "state": stateDown, "phys_state": physDisabled,
	} {
		files["ports/1/"+name] = text
	}
	if a.Active {
		files["ports/1/state"], files["ports/1/phys_state"] = stateActive, physLinkUp
	}
	for i := range max(a.GIDTable, len(a.GIDs)) {
		// Libraries take an entry that is empty for one of this kind,
		// because Linux has no answer there. A file always has one.
		gid, kind := [16]byte{}, "IB/RoCE v1"
		if i < len(a.GIDs) {
			gid, kind = a.GIDs[i].GID, a.GIDs[i].Type
			files[fmt.Sprintf("ports/1/gid_attrs/ndevs/%d", i)] = a.Interface
		}
		files[fmt.Sprintf("ports/1/gid_attrs/types/%d", i)] = kind
		files[fmt.Sprintf("ports/1/gids/%d", i)] = gidText(gid)
	}
	for _, c := range hardwareCounters {
		files["ports/1/hw_counters/"+c.name] = "0"
	}
	files["ports/1/hw_counters/lifespan"] = "10"
}

// parent adds the files of the hardware that the device belongs to.
func (a Attributes) parent(files map[string]string) {
	files["device/numa_node"] = "-1"
	files["device/local_cpus"] = firstLine("/sys/devices/system/cpu/online_mask", "ffffffff")
	files["device/local_cpulist"] = firstLine("/sys/devices/system/cpu/online", "0")
	if a.Interface != "" {
		files["device/net/"+a.Interface+"/address"] = firstLine("/sys/class/net/"+a.Interface+"/address", "00:00:00:00:00:00")
		files["device/net/"+a.Interface+"/ifindex"] = firstLine("/sys/class/net/"+a.Interface+"/ifindex", "0")
		files["device/net/"+a.Interface+"/dev_port"] = "0"
		files["device/net/"+a.Interface+"/dev_id"] = "0x0"
	}
	files["parent"] = a.Interface
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
