package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/sockfilter"
	"github.com/gosoftroce/rocev2/observe/dissect"
)

// live captures on network interfaces with a packet socket.
type live struct {
	ctx      context.Context
	fd       int
	name     string
	loopback map[int]bool // interfaces on which every packet passes twice
	buf      []byte
	oob      []byte
}

const anyInterface = "any"

// liveBuffer is the receive buffer of the packet socket, in bytes.
const liveBuffer = 32 << 20

// openLive begins a capture.
func openLive(ctx context.Context, name string) (*live, error) {
	index := 0
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	l := &live{ctx: ctx, name: name, loopback: map[int]bool{}, buf: make([]byte, 1<<18), oob: make([]byte, 256)}
	names := []string{anyInterface}
	for _, i := range all {
		names = append(names, i.Name)
		l.loopback[i.Index] = i.Flags&net.FlagLoopback != 0
		if i.Name == name {
			index = i.Index
		}
	}
	if index == 0 && name != anyInterface {
		return nil, usagef("there is no network interface %q; there are %s", name, strings.Join(names, ", "))
	}
	// It takes no packet before it has its filter and its interface.
	if l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, l.refused(err)
	}
	if err := l.prepare(index); err != nil {
		unix.Close(l.fd)
		return nil, l.refused(err)
	}
	return l, nil
}

// refused says why a capture cannot begin, and what to do.
func (l *live) refused(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("capture on %s: %w", l.name, err)
	}
	return fmt.Errorf(`capture on %s: %w: a live capture needs CAP_NET_RAW
  as root:               sudo rocev2 dump -i %[1]s
  once for this program: sudo setcap cap_net_raw+ep "$(command -v rocev2)"
  without privileges:    rocev2 pingpong --pcap - ... | rocev2 dump -
The last one shows the packets of a device of this program; perf and demo have --pcap, too`, l.name, err)
}

func (l *live) prepare(index int) error {
	if err := sockfilter.Attach(l.fd, roceFilter()...); err != nil {
		return err
	}
	// With privileges, beyond the limit; otherwise as much as the limit is.
	if unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, liveBuffer) != nil {
		_ = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, liveBuffer)
	}
	_ = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // without, Next asks the clock
	wake := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wake); err != nil {
		return err
	}
	return unix.Bind(l.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index})
}

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// roceFilter takes UDP to port 4791: over IPv4 without options, over IPv6
// without extension headers. Its loads are relative to the IP header.
func roceFilter() []bpf.Instruction {
	const (
		version, next4, port4 = sockfilter.NetworkHeader + 0, sockfilter.NetworkHeader + 9, sockfilter.NetworkHeader + 20 + 2
		next6, port6          = sockfilter.NetworkHeader + 6, sockfilter.NetworkHeader + 40 + 2
	)
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 6},
		bpf.LoadAbsolute{Off: version, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x45, SkipFalse: 10},
		bpf.LoadAbsolute{Off: next4, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipFalse: 8},
		bpf.LoadAbsolute{Off: port4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: dissect.Port, SkipTrue: 5, SkipFalse: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipFalse: 5},
		bpf.LoadAbsolute{Off: next6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipFalse: 3},
		bpf.LoadAbsolute{Off: port6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: dissect.Port, SkipFalse: 1},
		bpf.RetConstant{Val: sockfilter.All},
		bpf.RetConstant{Val: 0},
	}
}

// Next waits for a packet, or for the end.
func (l *live) Next(f *dissect.Frame) error {
	for {
		if l.ctx.Err() != nil {
			return io.EOF
		}
		n, oobn, _, from, err := unix.Recvmsg(l.fd, l.buf, l.oob, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENETDOWN):
			return fmt.Errorf("the interface is down: ip link set %s up", l.name)
		case err != nil:
			return err
		}
		addr, _ := from.(*unix.SockaddrLinklayer)
		if addr != nil && addr.Pkttype == unix.PACKET_OUTGOING && l.loopback[addr.Ifindex] {
			continue // it comes in again
		}
		f.Link, f.Segment = dissect.LinkRaw, 0
		f.Length, f.Data = n, l.buf[:min(n, len(l.buf))]
		f.Time = stampOf(l.oob[:oobn])
		return nil
	}
}

// stampOf returns when the kernel took a packet.
func stampOf(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		if err == nil && m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix())
		}
	}
	return time.Now()
}

// report ends the capture and says what it missed.
func (l *live) report(w io.Writer) error {
	st, err := unix.GetsockoptTpacketStats(l.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && st.Drops > 0 {
		fmt.Fprintf(w, "%d packets were lost, because this program was too slow: the analysis shows gaps that were not there; capture with tcpdump -w, and dump the file\n", st.Drops)
	}
	return unix.Close(l.fd)
}
