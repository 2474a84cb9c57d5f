package dissect

import (
	"fmt"
	"strings"
)

// Kinds of messages of package rdma, in the immediate data.
const (
	rdmaMessage = iota
	rdmaPacked
	rdmaCredit
	rdmaRequest
	rdmaReply
	rdmaEnd
)

var rdmaKinds = [16]string{
	rdmaMessage: "message", rdmaPacked: "packed", rdmaCredit: "credit", rdmaRequest: "request", rdmaReply: "reply", rdmaEnd: "end",
}

var (
	directoryOps      = [256]string{1: "lookup", 2: "list"}
	directoryStatuses = [256]string{0: "found", 1: "unknown", 2: "refused", 3: "not understood"}
)

// nameOf returns a name from a table, or the number.
func nameOf(names []string, n int) string {
	if names[n] == "" {
		return fmt.Sprintf("reserved %d", n)
	}
	return names[n]
}

// message shows a SEND of package rdma. Of a message of several packets the
// last one has the immediate data, and the beginning of the rest is not here.
func (p *Packet) message() {
	a, imm := &p.App, p.Wire.Imm
	kind, credits := int(imm>>28), imm&0xffff
	a.add("rdma.kind", nameOf(rdmaKinds[:], kind))
	a.number("rdma.credits", uint64(credits))
	a.Text = "rdma " + nameOf(rdmaKinds[:], kind)
	if b := p.Wire.Payload; p.info.First && p.info.Last {
		switch kind {
		case rdmaPacked:
			a.packed(b)
		case rdmaRequest:
			a.request(b)
		case rdmaReply:
			a.reply(b)
		}
	}
	if credits > 0 {
		a.Text += fmt.Sprintf(", %d credits back", credits)
	}
}

// broken notes that the payload is not what it should be.
func (a *Application) broken(why string) {
	a.add("rdma.malformed", why)
	a.Text += " (" + why + ")"
}

// packed counts the messages of a SEND.
func (a *Application) packed(b []byte) {
	n := 0
	for ; len(b) >= 2; n++ {
		size := 2 + int(be.Uint16(b))
		if size > len(b) {
			break
		}
		a.rows = append(a.rows, fmt.Sprintf("message %d: %d B", n+1, size-2))
		b = b[size:]
	}
	a.number("rdma.messages", uint64(n))
	a.Text += fmt.Sprintf(", %d messages", n)
	if len(b) > 0 {
		a.broken("a message is cut off")
	}
}

func (a *Application) request(b []byte) {
	const header, longest = 4, 255
	if len(b) < header || len(b) > header+longest {
		a.broken("a request has 4 to 259 bytes")
		return
	}
	name := strings.ToValidUTF8(string(b[header:]), "?")
	a.add("rdma.directory.op", nameOf(directoryOps[:], int(b[0])))
	a.number("rdma.directory.tag", uint64(be.Uint16(b[2:])))
	a.add("rdma.directory.name", name)
	a.Text += fmt.Sprintf(", %s %q", nameOf(directoryOps[:], int(b[0])), name)
}

func (a *Application) reply(b []byte) {
	const header, entry = 8, 24
	if len(b) < header {
		a.broken("a reply has at least 8 bytes")
		return
	}
	status, count := nameOf(directoryStatuses[:], int(b[1])), int(be.Uint16(b[4:]))
	a.add("rdma.directory.op", nameOf(directoryOps[:], int(b[0])))
	a.number("rdma.directory.tag", uint64(be.Uint16(b[2:])))
	a.add("rdma.directory.status", status)
	a.number("rdma.directory.regions", uint64(count))
	a.add("rdma.directory.more", b[6] == 1)
	a.Text += fmt.Sprintf(", %s, %d regions", status, count)
	b = b[header:]
	for range count {
		if len(b) < entry || len(b) < entry+int(b[21]) {
			a.broken("a region is cut off")
			return
		}
		end := entry + int(b[21])
		a.rows = append(a.rows, fmt.Sprintf("region %q: va %#016x, %d B, rkey %#08x, %s",
			b[entry:end], be.Uint64(b), be.Uint64(b[8:]), be.Uint32(b[16:]), rights(b[20])))
		b = b[end:]
	}
}

// rights names what a client may do with a region.
func rights(bits uint8) string {
	var list []string
	for i, name := range [...]string{"READ", "WRITE", "atomics", "persistence"} {
		if bits>>i&1 != 0 {
			list = append(list, name)
		}
	}
	return strings.Join(list, " ")
}
