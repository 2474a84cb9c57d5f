//go:build linux

// The placement program runs in a kernel guest. It drives the guest's Soft-RoCE
// device with ATOMIC WRITE and FLUSH, which the verbs library of the guest does
// not know, and offers memory for them. So it talks to the kernel itself, by
// its interface for user space: /dev/infiniband/uverbs0, and queues in shared
// memory.
//
//	placement -p PORT
//
// It serves one TCP connection with lines of text. First it says where its
// memory is:
//
//	qp QPN mem ADDR RKEY SIZE
//
// Then each command has one line of answer, which begins with "error" if it
// could not be carried out:
//
//	connect QPN PSN IPV4              ok
//	write ADDR RKEY HEX               status N
//	atomic-write ADDR RKEY HEX        status N
//	flush ADDR RKEY LEN TYPE LEVEL    status N
//	peek OFFSET N                     HEX
//
// N is the status of the completion, with the numbers of ibv_wc_status.
package main

import (
	"bufio"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

func main() {
	port := flag.Int("p", 7000, "TCP port to listen on")
	gid := flag.Int("x", 1, "GID index")
	flag.Parse()
	if err := serve(*port, *gid); err != nil {
		fmt.Fprintln(os.Stderr, "placement:", err)
		os.Exit(1)
	}
}

func serve(port, gid int) error {
	d, err := openDevice("/dev/infiniband/uverbs0", gid)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintf(c, "qp %d mem %#x %#x %d\n", d.qpn, d.memAddr(), d.rkey, len(d.mem))
	in := bufio.NewScanner(c)
	for in.Scan() {
		answer, err := d.command(strings.Fields(in.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Fprintln(c, answer)
	}
	return in.Err()
}

// command carries one line out.
func (d *device) command(words []string) (string, error) {
	if len(words) == 0 {
		return "", fmt.Errorf("an empty line")
	}
	var addr, rkey, n, kind, level uint64
	args := strings.Join(words[1:], " ")
	scan := func(format string, v ...any) error {
		_, err := fmt.Sscanf(args, format, v...)
		return err
	}
	var text string
	switch words[0] {
	case "connect":
		var qpn, psn uint32
		if err := scan("%v %v %s", &qpn, &psn, &text); err != nil {
			return "", err
		}
		to, err := netip.ParseAddr(text)
		if err != nil {
			return "", err
		}
		return "ok", d.connect(qpn, psn, to)
	case "write", "atomic-write":
		if err := scan("%v %v %s", &addr, &rkey, &text); err != nil {
			return "", err
		}
		data, err := hex.DecodeString(text)
		if err != nil {
			return "", err
		}
		return status(d.write(words[0] == "atomic-write", addr, uint32(rkey), data))
	case "flush":
		if err := scan("%v %v %v %v %v", &addr, &rkey, &n, &kind, &level); err != nil {
			return "", err
		}
		return status(d.flush(addr, uint32(rkey), uint32(n), uint8(kind), uint8(level)))
	case "peek":
		if err := scan("%v %v", &addr, &n); err != nil {
			return "", err
		}
		if size := uint64(len(d.mem)); addr > size || n > size-addr {
			return "", fmt.Errorf("not inside the %d bytes", size)
		}
		return hex.EncodeToString(d.mem[addr : addr+n]), nil
	}
	return "", fmt.Errorf("no command %q", words[0])
}

func status(n uint32, err error) (string, error) { return fmt.Sprintf("status %d", n), err }
