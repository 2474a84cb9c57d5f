package main

import (
	"context"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/mckey"
)

// mckeyFlags are the flags of mckey.
type mckeyFlags struct {
	toolFlags
	mckey.Config
	group, unmapped string
	space           string
}

func newMckey(io streams) *cobra.Command {
	f := &mckeyFlags{}
	cmd := &cobra.Command{
		Use:   "mckey -m group [-s] [flags]",
		Short: "Send datagrams to a multicast group, or receive them (mckey)",
		Long: `Send datagrams to a multicast group (-s), or receive them. The peers are other
rocev2 mckey, or mckey of rdma-core. Start the receivers first. The sender waits
for 3 s, then it sends; nobody repeats what is lost.

The original joins IPv4 groups only.`,
		Example: `  rocev2 mckey -m 239.18.0.1 -b 192.0.2.1           receive ten datagrams ...
  rocev2 mckey -m 239.18.0.1 -b 192.0.2.2 -s        ... and send them, on another host
  rocev2 mckey -m 239.18.0.1 -b 192.0.2.1 -C 1000 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMckey(cmd, io, f) },
	}
	f.register(cmd, "b", "local `address` or interface: the same as --ib-dev", "d")
	fs := cmd.Flags()
	fs.StringVarP(&f.group, "group", "m", "", "multicast `address` of the group")
	fs.StringVarP(&f.unmapped, "unmapped", "M", "", "the same, as a GID; replaces -m and requires -b")
	fs.BoolVarP(&f.Sender, "sender", "s", false, "send")
	fs.IntVarP(&f.Connections, "connections", "c", 1, "`number` of queue pairs that join the group")
	fs.IntVarP(&f.Messages, "messages", "C", mckey.DefaultMessages, "`number` of messages of each queue pair")
	fs.VarP(sizeFlag{&f.Size}, "size", "S", "size of a message in `bytes` (default: 100)")
	fs.StringVarP(&f.space, "port_space", "p", "0x0111", "port `space`: there is UDP (0x0111) only")
	fs.BoolVarP(&f.SendOnly, "send-only", "o", false, "with -s: do not join the group")
	refuse(cmd, []foreign{{"no-loopback", "l", false, "the host brings a copy back to each of its members: use -o, which does not join the group"}})
	return cmd
}

// setGroup takes over -m or -M.
func (f *mckeyFlags) setGroup() error {
	name := f.group
	switch {
	case f.group != "" && f.unmapped != "":
		return usagef("-m and -M do not go together: there is one group")
	case f.group == "" && f.unmapped == "":
		return usagef("-m is missing: name the group")
	case f.unmapped != "" && f.local() == "":
		return usagef("-M %s: unmapped multicast address requires binding to source address (-b)", f.unmapped)
	case f.unmapped != "":
		name = f.unmapped
	}
	a, err := netip.ParseAddr(name)
	switch {
	case name == "0" || err == nil && a.IsUnspecified():
		return usagef("%s: nothing assigns groups here: Ethernet has no subnet administrator, so name one", name)
	case err != nil:
		return usagef("%s: this is not an address", name)
	}
	f.Group = a.Unmap()
	return nil
}

// checkSpace refuses the other port space of datagrams.
func checkSpace(value string) error {
	n, err := strconv.ParseUint(value, 0, 16)
	switch {
	case err == nil && n == 0x0111:
		return nil
	case err == nil && n == 0x0002:
		return usagef("-p %s: there is no IPoIB on Ethernet", value)
	}
	return usagef("-p %s: the port space of datagrams is 0x0111 (UDP)", value)
}

func runMckey(cmd *cobra.Command, io streams, f *mckeyFlags) error {
	if err := f.setGroup(); err != nil {
		return err
	}
	if err := checkSpace(f.space); err != nil {
		return err
	}
	if err := positive(cmd, map[string]int{"connections": f.Connections, "messages": f.Messages, "size": f.Size}); err != nil {
		return err
	}
	side, doing := "server", "receiving data transfers"
	if f.Sender {
		side, doing = "client", "initiating data transfers"
	}
	return f.run(cmd, io, f.Group.String(), func(ctx context.Context, t *tool) error {
		c := f.Config
		c.TrafficClass = t.in.trafficClass()
		if err := c.Check(t.dev); err != nil {
			return err
		}
		f.say(t.streams, "mckey: starting %s\nmckey: joining", side)
		c.OnJoined = func() {
			f.say(t.streams, "mckey: joined dgid: %v mlid 0x0 sl 0\n%s", netip.AddrFrom16(c.Group.As16()), doing)
		}
		res, err := mckey.Run(ctx, t.dev, c)
		if err == nil {
			f.say(t.streams, "data transfers complete")
		}
		v := map[string]any{
			"tool": "mckey", "role": map[bool]string{true: "sender", false: "receiver"}[c.Sender], "device": t.dev.Addr(), "group": c.Group,
			"messages": res.Messages, "bytes": res.Bytes, "seconds": res.Elapsed.Seconds(),
		}
		if res.From.IsValid() {
			v["from"], v["sender"] = res.From, res.Sender
		}
		return f.end(t.streams, v, err)
	})
}
