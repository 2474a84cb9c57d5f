package tap

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Filter says which packets a Ring keeps: those that fit all that is set. The
// zero value keeps every packet.
type Filter struct {
	Peer      netip.Prefix // the other end's address is one of these
	QPN       rocev2.QPN   // the destination queue pair, in either direction
	Operation string       // part of the name of the operation, in capitals: "READ", "ACK", "CNP"; of what is sealed it is "SEALED"
	Sent      bool         // only what was sent
	Received  bool         // only what was received
	NoData    bool         // only packets without payload: requests of READs, acknowledgements
}

// FilterGrammar explains the text form of a Filter.
const FilterGrammar = `conditions, with blanks between them, which must all hold:
peer=ADDRESS or peer=NETWORK  the other end
qpn=NUMBER                    the destination queue pair of the packet
op=NAME                       a part of the name of the operation: SEND, READ, ACK, CNP ...;
                              of packets that are sealed it is SEALED
dir=in or dir=out             received or sent
data=no                       packets without payload`

// ParseFilter reads the text form of a Filter, see FilterGrammar. "" is the
// zero value.
func ParseFilter(text string) (f Filter, err error) {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "peer":
			f.Peer, err = parsePeer(value)
		case key == "qpn":
			var n uint64
			n, err = strconv.ParseUint(value, 0, 24)
			if f.QPN = rocev2.QPN(n); err != nil || n == 0 {
				err = fmt.Errorf("%q is not the number of a queue pair, from 1 to 0xffffff", value)
			}
		case key == "op" && value != "":
			f.Operation = strings.ToUpper(value)
			err = f.checkOperation()
		case word == "dir=in":
			f.Received = true
		case word == "dir=out":
			f.Sent = true
		case word == "data=no":
			f.NoData = true
		default:
			err = fmt.Errorf("there is no condition %q; a filter is made of peer=ADDRESS, qpn=NUMBER, op=NAME, dir=in, dir=out and data=no", word)
		}
		if err != nil {
			return Filter{}, fmt.Errorf("filter %q: %w", text, err)
		}
	}
	if f.Sent && f.Received {
		f.Sent, f.Received = false, false
	}
	return f, nil
}

func parsePeer(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a network such as 192.0.2.0/24", s)
	}
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// checkOperation refuses a name that no packet has.
func (f *Filter) checkOperation() error {
	names := []string{sealed}
	if strings.Contains(sealed, f.Operation) {
		return nil
	}
	for op := rocev2.OpSend; op <= rocev2.OpCNP; op++ {
		if strings.Contains(op.String(), f.Operation) {
			return nil
		}
		names = append(names, op.String())
	}
	return fmt.Errorf("no operation has %q in its name; there are %s", f.Operation, strings.Join(names, ", "))
}

// sealed is the operation of packets that show none.
const sealed = "SEALED"

// destination returns the queue pair that a packet goes to.
func destination(data []byte) rocev2.QPN {
	return rocev2.QPN(uint32(data[5])<<16 | uint32(data[6])<<8 | uint32(data[7]))
}

// keeps reports whether a packet is one of those. peer is the other end, data
// goes from BTH to ICRC.
func (f *Filter) keeps(sent bool, peer netip.Addr, data []byte) bool {
	switch {
	case f.Sent && !sent, f.Received && sent:
		return false
	case f.Peer.IsValid() && !f.Peer.Contains(peer):
		return false
	case f.QPN == 0 && f.Operation == "" && !f.NoData:
		return true
	case len(data) < rocev2.BTHLen+rocev2.ICRCLen:
		return false
	}
	if transport.IsSealed(data) { // its SPI has the queue pair where a BTH has it
		return (f.QPN == 0 || f.QPN == destination(data)) && (f.Operation == "" || strings.Contains(sealed, f.Operation)) && !f.NoData
	}
	info, known := rocev2.Opcode(data[0]).Info()
	switch {
	case f.QPN != 0 && f.QPN != destination(data):
		return false
	case f.Operation != "" && (!known || !strings.Contains(info.Operation.String(), f.Operation)):
		return false
	case f.NoData && (!known || len(data) > info.HeaderLen+rocev2.ICRCLen):
		return false
	}
	return true
}
