package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/verbs"
)

func newDevinfo(io streams) *cobra.Command {
	var device string
	cmd := &cobra.Command{
		Use:   "devinfo",
		Short: "Show what a device can do, its port and its GID table",
		Long: `Show the attributes of a device, of its port and its GID table, in the manner of
ibv_devinfo -v.`,
		Example: "  rocev2 devinfo\n  rocev2 devinfo -d 127.0.0.1\n  rocev2 devinfo -d eth0",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			dev, err := openDevice(io, device, "")
			if err != nil {
				return err
			}
			defer dev.Close()
			return printDevice(io, dev)
		},
	}
	cmd.Flags().StringVarP(&device, "device", "d", "", deviceUsage)
	return cmd
}

func printDevice(io streams, dev *verbs.Device) error {
	a, p := dev.Query(), dev.QueryPort()
	w := &lines{}
	w.add(0, "hca_id", "%v", dev.Addr())
	w.add(1, "transport", "InfiniBand (0)")
	w.add(1, "fw_ver", "%s", buildVersion())
	w.add(1, "node_guid", "%s", guid(a.NodeGUID))
	w.add(1, "sys_image_guid", "%s", guid(a.NodeGUID))
	w.add(1, "vendor_id", "0x%06x", a.VendorID)
	w.add(1, "phys_port_cnt", "%d", a.PortCount)
	w.add(1, "max_mr_size", "0x%x", a.MaxMRSize)
	w.add(1, "max_qp", "%d", a.MaxQP)
	w.add(1, "max_qp_wr", "%d", a.MaxQPWR)
	w.add(1, "max_sge", "%d", a.MaxSGE)
	w.add(1, "max_inline_data", "%d", a.MaxInline)
	w.add(1, "max_cq", "%d", a.MaxCQ)
	w.add(1, "max_cqe", "%d", a.MaxCQE)
	w.add(1, "max_mr", "%d", a.MaxMR)
	w.add(1, "max_pd", "%d", a.MaxPD)
	w.add(1, "max_qp_rd_atom", "%d", a.MaxQPRdAtomic)
	w.add(1, "max_qp_init_rd_atom", "%d", a.MaxQPInitRdAtom)
	w.add(1, "atomic_cap", "ATOMIC_HCA (1)")
	w.add(2, "port", "1")
	w.add(3, "state", "%v (%d)", p.State, p.State)
	w.add(3, "max_mtu", "%d (%d)", p.MaxMTU.Bytes(), p.MaxMTU)
	w.add(3, "active_mtu", "%d (%d)", p.ActiveMTU.Bytes(), p.ActiveMTU)
	w.add(3, "link_mtu", "%d", p.LinkMTU)
	w.add(3, "sm_lid", "0")
	w.add(3, "port_lid", "0")
	w.add(3, "link_layer", "%s", p.LinkLayer)
	w.add(3, "max_msg_sz", "0x%x", p.MaxMessage)
	w.add(3, "udp_port", "%d", p.UDPPort)
	w.add(3, "icrc_check", "%s", icrcCheck(p.FullICRC))
	w.add(3, "gid_tbl_len", "%d", p.GIDTable)
	w.add(3, "pkey_tbl_len", "%d", p.PKeyTable)
	for i, g := range dev.GIDs() {
		b := g.Bytes()
		w.add(3, fmt.Sprintf("GID[%3d]", i), "%s (%v), %s", groups(b[:]), g.Addr, g.Type)
	}
	_, err := io.out.Write(w.b)
	return err
}

func icrcCheck(full bool) string {
	if full {
		return "all 32 bits"
	}
	return "all 32 bits where the peer's IPv4 Identification is known, else 16"
}

// lines collects "name: value" with the values aligned.
type lines struct{ b []byte }

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
