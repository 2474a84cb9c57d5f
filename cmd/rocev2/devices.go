package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/observe/doctor"
	"github.com/gosoftroce/rocev2/verbs"
)

// links lists what could be a device: all, or those that the name of an address
// or an interface stands for.
func links(name string) ([]doctor.Link, error) {
	host, err := doctor.ThisHost()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces of this host: %w", err)
	}
	all := host.Links()
	if name == "" {
		return all, nil
	}
	addr, err := verbs.ResolveAddr(name)
	if err != nil {
		return nil, err
	}
	var list []doctor.Link
	for _, l := range all {
		if l.Addr == addr || l.Interface == name {
			list = append(list, l)
		}
	}
	if list == nil {
		l, err := host.LinkOf(addr)
		return []doctor.Link{l}, err
	}
	return list, nil
}

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func newDevices(io streams) *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the addresses of this host that can be a device",
		Long:    "List the addresses of this host that can be a device, with their GUIDs, as\nibv_devices does. -d of the other commands takes them, or the interface.",
		Example: "  rocev2 devices",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := links("")
			if err != nil {
				return err
			}
			w := &lines{}
			w.b = fmt.Appendf(w.b, "    %-16s\t   node GUID\n    %-16s\t----------------\n", "device", "------")
			for _, l := range list {
				w.b = fmt.Appendf(w.b, "    %-16s\t%016x\n", l.Addr, verbs.NodeGUID(l.Addr))
			}
			_, err = io.out.Write(w.b)
			return err
		},
	}
}

func newStatus(io streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [DEVICE]",
		Short: "Show the state of the devices: GIDs, MTU, rate",
		Long: `Show the state of each address that can be a device, as ibstatus does, in the
terms of RoCE. DEVICE is an address of this host or an interface.`,
		Example: "  rocev2 status\n  rocev2 status eth0",
		Args:    atMostOne("device"),
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := links(first(args))
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(io.out, list)
			}
			w := &lines{}
			for i, l := range list {
				if i > 0 {
					w.b = append(w.b, '\n')
				}
				w.status(l)
			}
			_, err = io.out.Write(w.b)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	return cmd
}

func (w *lines) status(l doctor.Link) {
	w.b = fmt.Appendf(w.b, "RoCE device '%v' (%s) port 1 status:\n", l.Addr, l.Interface)
	line := func(name, format string, args ...any) {
		w.b = fmt.Appendf(w.b, "\t%-16s "+format+"\n", append([]any{name + ":"}, args...)...)
	}
	state, phys := "4: ACTIVE", "5: LinkUp"
	if l.Reason != "" {
		state, phys = "1: DOWN", l.Reason
	}
	line("gid", "%v", l.GID)
	line("state", "%s", state)
	line("phys state", "%s", phys)
	line("mtu", "%d (path MTU %s)", l.MTU, pathMTUText(l))
	line("rate", "%s", speedText(l.Speed))
	line("link_layer", "Ethernet")
	line("udp port", "%d %s", verbs.UDPPort, portText(l))
}

func pathMTUText(l doctor.Link) string {
	if l.PathMTU == 0 {
		return "none fits"
	}
	return fmt.Sprint(l.PathMTU)
}

func speedText(mbps int) string {
	switch {
	case mbps <= 0:
		return "not known"
	case mbps%1000 == 0:
		return fmt.Sprintf("%d Gb/sec", mbps/1000)
	}
	return fmt.Sprintf("%g Gb/sec", float64(mbps)/1000)
}

func portText(l doctor.Link) string {
	if l.Free {
		return "free"
	}
	if l.Shared {
		return "shared: " + l.Holder
	}
	return "taken: " + l.Holder
}

func newLinks(io streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "links [DEVICE]",
		Short: "List every address that can be a device, a line each",
		Long: `List every address of this host that can be a device, a line each: its
interface, state, the interface's MTU, the largest path MTU that fits, speed,
the GID, the index of the GID in a kernel's table, and who has UDP port 4791.

A device of rocev2 has one GID, at index 0. The index that is shown is the one
of the kernel's RDMA device on the interface; if it has none, the one that
Soft-RoCE would give. Tools of a kernel on this host take it (-g, -x).`,
		Example: "  rocev2 links\n  rocev2 links --json",
		Args:    atMostOne("device"),
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := links(first(args))
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(io.out, list)
			}
			w := tabwriter.NewWriter(io.out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "INTERFACE\tADDRESS\tSTATE\tMTU\tPATH MTU\tSPEED\tINDEX\tGID\tPORT 4791")
			for _, l := range list {
				state, index := l.State, fmt.Sprint(l.GIDIndex)
				if l.Reason != "" {
					state += " (" + l.Reason + ")"
				}
				if l.GIDIndex < 0 {
					index = "-"
				}
				fmt.Fprintf(w, "%s\t%v\t%s\t%d\t%s\t%s\t%s\t%v\t%s\n",
					l.Interface, l.Addr, state, l.MTU, pathMTUText(l), speedText(l.Speed), index, l.GID, portText(l))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	return cmd
}

// atMostOne is the rule for commands with an optional argument.
func atMostOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("you can name one %s, not %d: %q", what, len(args), args)
		}
		return nil
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
