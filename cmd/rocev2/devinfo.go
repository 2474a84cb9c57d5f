package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// devinfoFlags are the flags of devinfo.
type devinfoFlags struct {
	device  string
	verbose bool
	json    bool
	inUse   bool // another process has the device
}

// open opens the device to look at it: at another port if some process has it.
func (f *devinfoFlags) open(addr netip.Addr) (*verbs.Device, error) {
	dev, err := verbs.OpenAddr(addr, verbs.Config{Sealing: true})
	if !errors.Is(err, syscall.EADDRINUSE) {
		return dev, err
	}
	free, e := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if e != nil {
		return nil, err
	}
	port := free.LocalAddr().(*net.UDPAddr).Port
	free.Close()
	f.inUse = true
	return verbs.OpenAddr(addr, verbs.Config{Port: uint16(port), Sealing: true})
}

func newDevinfo(io streams) *cobra.Command {
	var f devinfoFlags
	cmd := &cobra.Command{
		Use:   "devinfo",
		Short: "Show what a device can do, its port and its GID table",
		Long: `Show a device and the state of its port, as ibv_devinfo does. -v adds all
limits, the offloads and the GID table.

The port is down if no packet can get through: the interface that has the
address is down (physical state DISABLED) or has no carrier (POLLING). The
command also shows a device that another process has open.`,
		Example: "  rocev2 devinfo\n  rocev2 devinfo -d 127.0.0.1 -v\n  rocev2 devinfo -d eth0 --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			dev, err := openDevice(io, f.device, "", f.open)
			if err != nil {
				return err
			}
			defer dev.Close()
			return printDevice(io, dev, f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "device", "d", deviceUsage)
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "show all attributes and the GID table")
	fs.BoolVar(&f.json, "json", false, "print everything as one JSON object")
	return cmd
}

func printDevice(io streams, dev *verbs.Device, f devinfoFlags) error {
	p := dev.QueryPort()
	p.UDPPort = verbs.UDPPort
	device, port, gids := deviceAttrs(dev), portAttrs(p), dev.GIDs()
	sealed := dev.SealedMTU(dev.Addr())
	port.long("sealed_mtu", sealed.Bytes(), "%d (%d), of secured connections", sealed.Bytes(), sealed)
	if c, secured := dev.GuardCounters(); secured {
		hosts := hostList(dev.KeyHosts())
		port.add("packets", "sealed", "sealed, none in clear (docs/secure.md)")
		port.add("key_hosts", hosts, "%s", cmp.Or(strings.Join(hosts, ", "), "none yet: the first packet to a host begins a handshake"))
		port.long("sealed_dropped", c.Dropped(), "%d packets, by this process", c.Dropped())
	} else {
		port.add("packets", "clear", "in clear")
	}
	port.long("in_use", f.inUse, "%s", yes(f.inUse))
	if f.json {
		port.add("gids", gidList(gids), "")
		device.add("ports", []attrs{port}, "")
		b, err := json.MarshalIndent(device, "", "  ")
		if err != nil {
			return err
		}
		_, err = io.out.Write(append(b, '\n'))
		return err
	}
	w := &lines{}
	w.list(0, device, f.verbose)
	w.add(2, "port", "1")
	w.list(3, port[1:], f.verbose)
	if f.verbose {
		for i, g := range gidList(gids) {
			w.add(3, fmt.Sprintf("GID[%3d]", i), "%s (%s), %s", g.GID, g.Address, g.Type)
		}
	}
	_, err := io.out.Write(w.b)
	return err
}

// hostList returns addresses as texts.
func hostList(hosts []netip.Addr) []string {
	list := []string{}
	for _, h := range hosts {
		list = append(list, h.String())
	}
	return list
}

// attr is an attribute: its value for JSON, and as text.
type attr struct {
	name  string
	value any
	text  string
	long  bool // shown with -v only
}

// attrs are an object in JSON, its members in this order.
type attrs []attr

// add adds an attribute; without a format its text is its value.
func (a *attrs) add(name string, value any, format string, args ...any) {
	text := fmt.Sprint(value)
	if format != "" {
		text = fmt.Sprintf(format, args...)
	}
	*a = append(*a, attr{name: name, value: value, text: text})
}

// long adds an attribute that is shown with -v only.
func (a *attrs) long(name string, value any, format string, args ...any) {
	a.add(name, value, format, args...)
	(*a)[len(*a)-1].long = true
}

// MarshalJSON writes the object.
func (a attrs) MarshalJSON() ([]byte, error) {
	var o ordered
	for _, m := range a {
		o.add(m.name, m.value)
	}
	return o.MarshalJSON()
}

// capabilities are those that the device has, of ibv_device_cap_flags.
var capabilities = []struct {
	name string
	bit  int
}{
	{"CURR_QP_STATE_MOD", 7},  // Modify takes the current state
	{"PORT_ACTIVE_EVENT", 10}, // an event tells when the port works again
	{"RC_RNR_NAK_GEN", 12},    // a responder without a receive says so
	{"SRQ_RESIZE", 13},        // shared receive queues grow and shrink
	{"MEM_WINDOW", 17},        // of type 1
	{"XRC", 20},
	{"MEM_MGT_EXTENSIONS", 21}, // fast registration, LOCAL_INV, SEND and READ with invalidate
	{"MEM_WINDOW_TYPE_2B", 24}, // bound to a queue pair and its protection domain
}

// capFlags returns the capabilities as a number and in words.
func capFlags() (flags int, names string) {
	var list []string
	for _, c := range capabilities {
		flags |= 1 << c.bit
		list = append(list, c.name)
	}
	return flags, strings.Join(list, ", ")
}

// services are the transport services of the device, as `rocev2 perf -c` and
// `rocev2 pingpong -t` name them.
func services() (names []string) {
	for _, s := range interop.Services {
		names = append(names, s.String())
	}
	return names
}

func deviceAttrs(dev *verbs.Device) (l attrs) {
	a := dev.Query()
	l.add("hca_id", dev.Addr().String(), "")
	l.add("transport", "InfiniBand", "InfiniBand (0)")
	l.add("fw_ver", buildVersion(), "")
	l.add("node_guid", guid(a.NodeGUID), "")
	l.add("sys_image_guid", guid(a.NodeGUID), "")
	l.add("vendor_id", a.VendorID, "0x%04x", a.VendorID)
	l.add("vendor_part_id", 0, "")
	l.add("hw_ver", 0, "0x0")
	l.add("phys_port_cnt", a.PortCount, "")
	l.long("max_mr_size", a.MaxMRSize, "0x%x", a.MaxMRSize)
	l.long("max_qp", a.MaxQP, "")
	l.long("max_qp_wr", a.MaxQPWR, "")
	flags, names := capFlags()
	l.long("transport_services", services(), "%s", strings.Join(services(), ", "))
	l.long("device_cap_flags", flags, "0x%08x (%s)", flags, names)
	l.long("max_sge", a.MaxSGE, "")
	l.long("max_sge_rd", a.MaxSGE, "")
	l.long("max_inline_data", a.MaxInline, "")
	l.long("max_cq", a.MaxCQ, "")
	l.long("max_cqe", a.MaxCQE, "")
	l.long("num_comp_vectors", a.CompletionVectors, "")
	l.long("hca_core_clock", a.CoreClock, "%d kHz", a.CoreClock)
	l.long("max_cq_count", a.MaxModerationCount, "")
	l.long("max_cq_period", a.MaxModerationPeriod.Microseconds(), "%d us", a.MaxModerationPeriod.Microseconds())
	l.long("max_mr", a.MaxMR, "")
	l.long("max_pd", a.MaxPD, "")
	l.long("max_qp_rd_atom", a.MaxDestRdAtomic, "")
	l.long("max_res_rd_atom", a.MaxDestRdAtomic*a.MaxQP, "")
	l.long("max_qp_init_rd_atom", a.MaxRdAtomic, "")
	l.long("atomic_cap", "ATOMIC_HCA", "ATOMIC_HCA (1)")
	l.long("max_mw", a.MaxMW, "")
	l.long("max_ah", a.MaxAH, "")
	l.long("max_xrcd", a.MaxXRCD, "")
	l.long("max_srq", a.MaxSRQ, "")
	l.long("max_srq_wr", a.MaxSRQWR, "")
	l.long("max_srq_sge", a.MaxSGE, "")
	l.long("max_mcast_grp", a.MaxGroup, "")
	l.long("max_total_mcast_qp_attach", a.MaxAttach, "")
	l.long("max_pkeys", 1, "")
	return l
}

// portAttrs begins with the number of the port.
func portAttrs(p verbs.PortAttr) (l attrs) {
	l.add("port", 1, "")
	l.add("state", p.State.String(), "%v (%d)", p.State, p.State)
	if p.DownReason != "" {
		l.add("down_reason", p.DownReason, "")
	}
	l.add("max_mtu", p.MaxMTU.Bytes(), "%d (%d)", p.MaxMTU.Bytes(), p.MaxMTU)
	l.add("active_mtu", p.ActiveMTU.Bytes(), "%d (%d)", p.ActiveMTU.Bytes(), p.ActiveMTU)
	l.add("sm_lid", 0, "")
	l.add("port_lid", 0, "")
	l.add("port_lmc", 0, "0x00")
	l.add("link_layer", p.LinkLayer, "")
	l.long("phys_state", p.PhysState.String(), "%v (%d)", p.PhysState, p.PhysState)
	l.long("interface", p.Interface, "%s", orUnknown(p.Interface, p.Interface != ""))
	l.long("link_mtu", p.LinkMTU, "%d bytes of an IP packet", p.LinkMTU)
	l.long("speed_mbps", p.Speed, "%s", orUnknown(fmt.Sprint(p.Speed), p.Speed > 0))
	l.long("max_msg_sz", p.MaxMessage, "0x%x", p.MaxMessage)
	l.long("gid_tbl_len", p.GIDTable, "")
	l.long("pkey_tbl_len", p.PKeyTable, "")
	l.long("udp_port", p.UDPPort, "")
	l.long("source_ports", p.SourcePorts, "%s", yes(p.SourcePorts))
	l.long("ecn", p.ECN, "%s", yes(p.ECN))
	l.long("full_icrc", p.FullICRC, "%s", icrcCheck(p.FullICRC))
	l.long("native_only", p.NativeOnly, "%s", takenBy(p.NativeOnly))
	l.long("gso", p.SegmentOffload, "%s", yes(p.SegmentOffload))
	l.long("gro", p.ReceiveOffload, "%s", yes(p.ReceiveOffload))
	l.long("recv_buffer", p.RecvBuffer, "%s", orUnknown(fmt.Sprintf("%d bytes", p.RecvBuffer), p.RecvBuffer > 0))
	l.long("send_buffer", p.SendBuffer, "%s", orUnknown(fmt.Sprintf("%d bytes", p.SendBuffer), p.SendBuffer > 0))
	return l
}

func orUnknown(text string, known bool) string {
	if known {
		return text
	}
	return "unknown"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// takenBy says which peers take what the device sends.
func takenBy(native bool) string {
	if native {
		return "yes: adapters and kernels drop what is sent over IPv4, whose Identification this system chooses; use IPv6"
	}
	return "no: any peer takes what is sent"
}

func icrcCheck(full bool) string {
	if full {
		return "all 32 bits"
	}
	return "all 32 bits if the peer's IPv4 Identification is known, else 16"
}

// gidEntry is an entry of the GID table as it is shown.
type gidEntry struct {
	GID     string `json:"gid"`
	Address string `json:"address"`
	Type    string `json:"type"`
}

func gidList(gids []verbs.GID) []gidEntry {
	list := []gidEntry{}
	for _, g := range gids {
		b := g.Bytes()
		list = append(list, gidEntry{groups(b[:]), g.Addr.String(), g.Type})
	}
	return list
}

// lines collects "name: value" with the values aligned.
type lines struct{ b []byte }

// list adds attributes; the first of a device is its name and not indented.
func (l *lines) list(indent int, list attrs, long bool) {
	for i, a := range list {
		if a.long && !long {
			continue
		}
		if i == 1 && indent == 0 {
			indent = 1
		}
		l.add(indent, a.name, "%s", a.text)
	}
}

func (l *lines) add(indent int, name, format string, args ...any) {
	const column = 40
	for range indent {
		l.b = append(l.b, "        "...)
	}
	l.b = fmt.Appendf(l.b, "%-*s", max(column-8*indent, len(name)+2), name+":")
	l.b = fmt.Appendf(l.b, format, args...)
	l.b = append(l.b, '\n')
}

func guid(v uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

// groups writes a GID as the field's tools do: eight groups of four digits.
func groups(b []byte) string {
	var s []byte
	for i := 0; i+1 < len(b); i += 2 {
		if i > 0 {
			s = append(s, ':')
		}
		s = fmt.Appendf(s, "%02x%02x", b[i], b[i+1])
	}
	return string(s)
}
