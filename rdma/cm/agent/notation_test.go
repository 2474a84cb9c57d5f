package agent

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Messages are shown, and written, as their name and those fields that are not
// what they usually are: "REP local=b1 remote=a1 qpn=34 private=hello".

var shortNames = map[string]string{
	"localid": "local", "remoteid": "remote", "localqpn": "qpn", "startingpsn": "psn", "serviceid": "service", "localguid": "guid",
	"requestid": "request", "servicetimeout": "timeout", "primary.acktimeout": "acktimeout",
}

// usual returns the message with the fields that are not worth a word: those
// that Connect fills in for a request from one side to the other.
func usual(m mad.Message, from, to *side) mad.Message {
	u := mad.New(m.Attribute())
	switch u := u.(type) {
	case *mad.REQ:
		*u = mad.REQ{
			LocalGUID: from.cfg.GUID, RemoteResponseTimeout: 20, LocalResponseTimeout: 20, MaxRetries: 15, PKey: 0xffff, PathMTU: 3,
			Primary:   mad.Path{LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: from.addr, RemoteGID: to.addr, HopLimit: 64, AckTimeout: 14},
			Alternate: mad.Path{LocalGID: netip.IPv6Unspecified(), RemoteGID: netip.IPv6Unspecified()},
		}
	case *mad.REP:
		u.LocalGUID = from.cfg.GUID
	case *mad.SIDRREQ:
		u.PKey = 0xffff
	}
	return u
}

// fields calls f for every field of a message that the notation has.
func fields(m mad.Message, f func(name string, v reflect.Value)) {
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			name := prefix + strings.ToLower(v.Type().Field(i).Name)
			if s, ok := shortNames[name]; ok {
				name = s
			}
			switch v.Field(i).Interface().(type) {
			case mad.ECE, mad.Path:
				walk(name+".", v.Field(i))
			default:
				f(name, v.Field(i))
			}
		}
	}
	walk("", reflect.ValueOf(m).Elem())
}

// show writes a message that from sends to to.
func (s *scene) show(m mad.Message, from, to *side) string {
	plain := map[string]any{}
	fields(usual(m, from, to), func(name string, v reflect.Value) { plain[name] = v.Interface() })
	out := m.Attribute().String()
	fields(m, func(name string, v reflect.Value) {
		if name == "transactionid" {
			return
		}
		x := v.Interface()
		if b, ok := x.([]byte); ok {
			if text := showData(b); text != "" {
				out += " " + name + "=" + text
			}
			return
		}
		if x == plain[name] && name != "message" {
			return
		}
		out += " " + name + "=" + s.value(x)
	})
	return out
}

func (s *scene) value(x any) string {
	switch x := x.(type) {
	case mad.CommID:
		return s.idName(ID(x))
	case mad.ServiceID:
		if space, port, ok := x.Port(); ok {
			return fmt.Sprintf("%s:%d", strings.ToLower(space.String()), port)
		}
	case mad.Reason:
		return fmt.Sprintf("%d(%v)", x, x)
	case mad.SIDRStatus:
		return fmt.Sprintf("%d(%v)", x, x)
	case fmt.Stringer:
		return strings.ReplaceAll(x.String(), " ", "_")
	}
	return fmt.Sprint(x)
}

// showData shows private data as text, without the zeros after it.
func showData(b []byte) string {
	b = []byte(strings.TrimRight(string(b), "\x00"))
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return "0x" + hex.EncodeToString(b)
		}
	}
	return string(b)
}

func (s *scene) idName(id ID) string {
	if name, ok := s.names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (s *scene) id(text string) (ID, error) {
	for id, name := range s.names {
		if name == text {
			return id, nil
		}
	}
	n, err := strconv.ParseUint(text, 0, 32)
	return ID(n), err
}

// set sets the field of a message that the notation calls name.
func (s *scene) set(m mad.Message, name, text string) error {
	err := fmt.Errorf("%v has no field %q", m.Attribute(), name)
	fields(m, func(n string, v reflect.Value) {
		if n == name {
			err = s.setValue(v, text)
		}
	})
	return err
}

func (s *scene) setValue(v reflect.Value, text string) error {
	switch v.Interface().(type) {
	case []byte:
		if data, ok := strings.CutPrefix(text, "0x"); ok {
			b, err := hex.DecodeString(data)
			v.SetBytes(b)
			return err
		}
		v.SetBytes([]byte(text))
		return nil
	case bool:
		v.SetBool(text == "true")
		return nil
	case netip.Addr:
		a, err := netip.ParseAddr(text)
		v.Set(reflect.ValueOf(a))
		return err
	case mad.CommID:
		id, err := s.id(text)
		v.SetUint(uint64(id))
		return err
	case mad.ServiceID:
		service, err := parseService(text)
		v.SetUint(uint64(service))
		return err
	}
	n, err := strconv.ParseUint(text, 0, v.Type().Bits())
	v.SetUint(n)
	return err
}

func parseService(text string) (mad.ServiceID, error) {
	space, port, ok := strings.Cut(text, ":")
	spaces := map[string]mad.PortSpace{"tcp": mad.PortSpaceTCP, "udp": mad.PortSpaceUDP, "ib": mad.PortSpaceIB}
	n, err := strconv.ParseUint(port, 10, 16)
	if !ok || spaces[space] == 0 || err != nil {
		return 0, fmt.Errorf("a service is tcp:PORT, udp:PORT or ib:PORT, not %q", text)
	}
	return spaces[space].Service(uint16(n)), nil
}

// parseMessage reads a message that from would send to to.
func (s *scene) parseMessage(name string, args []string, from, to *side) (mad.Message, error) {
	for a := mad.AttrREQ; a <= mad.AttrAPR; a++ {
		if a.String() != name {
			continue
		}
		m := usual(mad.New(a), from, to)
		for _, arg := range args {
			k, v, _ := strings.Cut(arg, "=")
			if err := s.set(m, k, v); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return nil, fmt.Errorf("no message %q", name)
}

// showEvent writes an event: which side learns what.
func (s *scene) showEvent(at *side, e *Event) string {
	out := fmt.Sprintf("%s: %v %s", at.name, e.Kind, s.idName(e.ID))
	from := s.byAddr[e.Path.Remote]
	for _, m := range []mad.Message{e.Request, e.Reply, e.SIDRRequest, e.SIDRReply} {
		if !reflect.ValueOf(m).IsNil() {
			out += ", " + s.show(m, from, at)
		}
	}
	if e.Reason != 0 {
		out += fmt.Sprintf(", reason=%d(%v)", e.Reason, e.Reason)
	}
	if e.Own {
		out += " own"
	}
	if len(e.ARI) > 0 {
		out += " ari=" + showData(e.ARI)
	}
	if e.TimedOut {
		out += " timed out"
	}
	if text := showData(e.Private); text != "" {
		out += " private=" + text
	}
	return out
}
