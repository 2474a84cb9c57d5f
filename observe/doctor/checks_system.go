package doctor

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/internal/procfs"
	"github.com/gosoftroce/rocev2/verbs"
)

// counters looks at what the system has dropped of UDP since it started.
func (d *checks) counters() {
	if !d.linux("counters", "the counters of UDP") {
		return
	}
	c, err := procfs.Counters(d.Proc)
	if err != nil {
		d.notChecked("counters", "", "they cannot be read: %v", err)
		return
	}
	clean := true
	for _, w := range []struct{ name, means, advice, command string }{
		{"RcvbufErrors", "datagrams were dropped because a socket's receive buffer was full (of any program, since the start)", "give devices larger buffers, see net.core.rmem_max, or pace the senders", "nstat -az UdpRcvbufErrors Udp6RcvbufErrors"},
		{"SndbufErrors", "datagrams were not sent because there was no room", "give devices larger send buffers, see net.core.wmem_max", "nstat -az UdpSndbufErrors Udp6SndbufErrors"},
		{"InCsumErrors", "datagrams arrived with a wrong UDP checksum", "something on the way corrupts packets: a cable, an adapter, its offloads", "nstat -az UdpInCsumErrors Udp6InCsumErrors"},
	} {
		if c[w.name] > 0 {
			clean = false
			d.add(Finding{Check: "counters", Subject: w.name, Status: Warning, Text: fmt.Sprintf("%d %s", c[w.name], w.means), Advice: w.advice, Command: w.command})
		}
	}
	other := int64(c["InErrors"]) - int64(c["RcvbufErrors"]) - int64(c["InCsumErrors"])
	if other > 0 {
		clean = false
		d.add(Finding{Check: "counters", Subject: "InErrors", Status: Warning, Text: fmt.Sprintf("%d datagrams were dropped on arrival for other reasons, such as a socket's filter", other)})
	}
	if clean {
		d.ok("counters", "", "no UDP datagram was dropped of %d", c["InDatagrams"])
	}
	sockets, err := procfs.UDPSockets(d.Proc)
	if err != nil {
		d.notChecked("counters", "", "the list of sockets cannot be read: %v", err)
	}
	for _, s := range sockets {
		if s.Local.Port() == verbs.UDPPort && s.Drops > 0 {
			d.add(Finding{Check: "counters", Subject: s.Local.String(), Status: Warning, Text: fmt.Sprintf("%d datagrams were dropped at this socket", s.Drops), Advice: "its program is too slow for what comes, or its buffer too small"})
		}
	}
}

// unprivileged looks at whether an ordinary user may have the port.
func (d *checks) unprivileged() {
	if !d.linux("privilege", "whether ordinary users may have the port") {
		return
	}
	const name = "net.ipv4.ip_unprivileged_port_start"
	start, ok := procfs.SysctlInt(d.Proc, name)
	caps, known := d.effective()
	switch {
	case !ok:
		d.notChecked("privilege", name, "it cannot be read")
	case start <= verbs.UDPPort:
		d.ok("privilege", name, "%d: ordinary users may have port %d", start, verbs.UDPPort)
	case known && caps&(1<<capNetBind) != 0:
		d.ok("privilege", name, "%d: only processes with CAP_NET_BIND_SERVICE may have port %d, as this one has", start, verbs.UDPPort)
	default:
		d.add(Finding{Check: "privilege", Subject: name, Status: Problem, Text: fmt.Sprintf("%d: ordinary users may not have port %d", start, verbs.UDPPort), Advice: "lower it, or give the program CAP_NET_BIND_SERVICE", Command: "sysctl -w " + name + "=1024"})
	}
}

// ephemeral looks at whether the system may give the port to a program by
// chance.
func (d *checks) ephemeral() {
	if d.OS != "linux" {
		return // as above: said once
	}
	const name = "net.ipv4.ip_local_port_range"
	text, _ := procfs.Sysctl(d.Proc, name)
	f := strings.Fields(text)
	if len(f) != 2 {
		d.notChecked("privilege", name, "it cannot be read")
		return
	}
	low, _ := strconv.Atoi(f[0])
	high, _ := strconv.Atoi(f[1])
	reserved, _ := procfs.Sysctl(d.Proc, "net.ipv4.ip_local_reserved_ports")
	switch {
	case verbs.UDPPort < low || verbs.UDPPort > high:
		d.ok("privilege", name, "%d to %d: no program gets port %d by chance", low, high, verbs.UDPPort)
	case inRanges(reserved, verbs.UDPPort):
		d.ok("privilege", name, "%d to %d without port %d, which is reserved", low, high, verbs.UDPPort)
	default:
		d.add(Finding{Check: "privilege", Subject: name, Status: Warning, Text: fmt.Sprintf("%d to %d: any program may get port %d by chance", low, high, verbs.UDPPort),
			Advice: "reserve it", Command: fmt.Sprintf("sysctl -w net.ipv4.ip_local_reserved_ports=%s", strings.Trim(reserved+","+strconv.Itoa(verbs.UDPPort), ","))})
	}
}

// inRanges reports whether a list such as "1,5-9" has a number.
func inRanges(list string, n int) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool {
		from, to, isRange := strings.Cut(strings.TrimSpace(s), "-")
		low, err := strconv.Atoi(from)
		if err != nil {
			return false
		}
		high := low
		if isRange {
			high, err = strconv.Atoi(to)
		}
		return err == nil && low <= n && n <= high
	})
}

// ipv6 looks at whether IPv6 is there.
func (d *checks) ipv6() {
	if !d.linux("ipv6", "whether IPv6 is on") {
		return
	}
	off, ok := procfs.SysctlInt(d.Proc, "net.ipv6.conf.all.disable_ipv6")
	switch {
	case !ok:
		d.add(Finding{Check: "ipv6", Status: Warning, Text: "the kernel has no IPv6: devices have IPv4 addresses only", Advice: "start it with ipv6.disable=0 if peers need IPv6"})
	case off != 0:
		d.add(Finding{Check: "ipv6", Status: Warning, Text: "IPv6 is off: devices have IPv4 addresses only", Advice: "turn it on if peers need it", Command: "sysctl -w net.ipv6.conf.all.disable_ipv6=0"})
	default:
		d.ok("ipv6", "", "it is on")
	}
}

// reversePath looks at the filter by which Linux drops what comes from where it
// would not send to. The larger of the two settings counts.
func (d *checks) reversePath() {
	if !d.linux("rp_filter", "the reverse path filter") {
		return
	}
	all, _ := procfs.SysctlInt(d.Proc, "net.ipv4.conf.all.rp_filter")
	ifaces := d.interfaces()
	several := len(ifaces) > 1
	for _, ifi := range ifaces {
		own, ok := procfs.SysctlInt(d.Proc, "net/ipv4/conf/"+ifi.Name+"/rp_filter")
		switch v := max(all, own); {
		case !ok:
			d.notChecked("rp_filter", ifi.Name, "it cannot be read")
		case v == 1 && several:
			d.add(Finding{Check: "rp_filter", Subject: ifi.Name, Status: Warning, Text: "strict (1): a packet is dropped without a word if the answer would leave by another interface, as with two interfaces in one network",
				Advice: "make it loose", Command: "sysctl -w net/ipv4/conf/" + ifi.Name + "/rp_filter=2"})
		default:
			d.ok("rp_filter", ifi.Name, "%d: no obstacle", v)
		}
	}
}

// effective returns the capabilities of this process.
func (d *checks) effective() (uint64, bool) {
	text, ok := procfs.Field(d.Proc, "self/status", "CapEff")
	caps, err := strconv.ParseUint(text, 16, 64)
	return caps, ok && err == nil
}

// capabilities says what this process may do beyond an ordinary one.
func (d *checks) capabilities() {
	if !d.linux("capabilities", "the capabilities of this process") {
		return
	}
	caps, ok := d.effective()
	if !ok {
		d.notChecked("capabilities", "", "they cannot be read")
		return
	}
	var have []string
	for _, c := range []struct {
		bit        int
		name, what string
	}{
		{capNetAdmin, "CAP_NET_ADMIN", "buffers beyond the limits, and the rules of firewalls"},
		{capNetRaw, "CAP_NET_RAW", "capture of packets by rocev2 dump"},
		{capIPCLock, "CAP_IPC_LOCK", "locked memory without limit"},
	} {
		if caps&(1<<c.bit) != 0 {
			have = append(have, c.name+" ("+c.what+")")
		}
	}
	if have == nil {
		d.ok("capabilities", "", "none, and none is needed; live capture needs CAP_NET_RAW")
		return
	}
	d.ok("capabilities", "", "none is needed; this process has %s", strings.Join(have, ", "))
}

// memory looks at the limit that RDMA of a kernel needs and this software does
// not.
func (d *checks) memory() {
	if !d.linux("memory", "the limit of locked memory") {
		return
	}
	limit, ok := d.lockedLimit()
	if !ok {
		d.notChecked("memory", "", "the limit of locked memory cannot be read")
		return
	}
	huge := "none"
	if n, ok := procfs.Field(d.Proc, "meminfo", "HugePages_Total"); ok && n != "0" {
		huge = n
	}
	d.ok("memory", "", "memory is not locked, so neither the limit of locked memory (%s) nor huge pages (%s reserved) matter here; a program on a kernel's RDMA device needs the limit (ulimit -l unlimited)", limit, huge)
}

// lockedLimit returns the soft limit of locked memory, in words.
func (d *checks) lockedLimit() (string, bool) {
	data, err := fs.ReadFile(d.Proc, "self/limits")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(data)) {
		rest, found := strings.CutPrefix(line, "Max locked memory")
		if f := strings.Fields(rest); found && len(f) > 0 {
			if f[0] == "unlimited" {
				return f[0], true
			}
			return f[0] + " bytes", true
		}
	}
	return "", false
}
