package secure

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is a name that a certificate is for, as access lists have it:
//
//	CN=backup.example           the common name of the subject
//	DNS:host.example            a DNS name of the subject alternative names
//	spiffe://example/backup     a URI of the subject alternative names
//
// Names are the same if each byte is: a certificate for "*.example" has the
// name "DNS:*.example", and that alone.
type Name string

// Prefixes of names.
const (
	prefixCN  = "CN="
	prefixDNS = "DNS:"
	schemeEnd = "://" // of a URI
)

// maxName is how many bytes a name has at most.
const maxName = 2048

// IsName reports whether a text has the form of a Name, so that it is meant as
// one. ParseName says whether it is one.
func IsName(s string) bool {
	return hasPrefix(s) || strings.Contains(s, schemeEnd)
}

func hasPrefix(s string) bool {
	return strings.HasPrefix(s, prefixCN) || strings.HasPrefix(s, prefixDNS)
}

// ParseName reads a name.
func ParseName(s string) (Name, error) {
	rest, plain := s, true
	switch {
	case strings.HasPrefix(s, prefixCN):
		rest = s[len(prefixCN):]
	case strings.HasPrefix(s, prefixDNS):
		rest = s[len(prefixDNS):]
	default:
		plain = false
	}
	switch {
	case len(s) > maxName:
		return "", fmt.Errorf("a name of %d bytes is too long: it has at most %d", len(s), maxName)
	case !utf8.ValidString(s):
		return "", fmt.Errorf("the name %q is not UTF-8", s)
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("the name %q has characters that cannot be printed", s)
	case rest == "" || strings.TrimSpace(rest) != rest:
		return "", fmt.Errorf("the name %q is empty, or has blanks around it", s)
	case plain:
		return Name(s), nil
	}
	if u, err := url.Parse(s); err != nil || u.Scheme == "" || u.Host == "" || !strings.Contains(s, schemeEnd) {
		return "", fmt.Errorf("%q is no name of a certificate: those are \"CN=backup.example\", \"DNS:host.example\" and URIs such as \"spiffe://example/backup\"", s)
	}
	return Name(s), nil
}

// Names returns the names of the peer's certificate, if the handshake has
// verified that an authority of the configuration has issued it. A peer of PSK
// has none.
func Names(state *tls.ConnectionState) []Name {
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	var list []Name
	add := func(s string) { // what ParseName does not take is on no list
		if n, err := ParseName(s); err == nil {
			list = append(list, n)
		}
	}
	c := state.PeerCertificates[0]
	if cn := commonName(c); cn != "" {
		add(prefixCN + cn)
	}
	for _, d := range c.DNSNames {
		add(prefixDNS + d)
	}
	for _, u := range uris(c) {
		if strings.Contains(u, schemeEnd) && !hasPrefix(u) { // no other kind of name
			add(u)
		}
	}
	return list
}

var (
	oidCommonName = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidAltNames   = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// tagURI is that of a URI among the subject alternative names (RFC 5280
// 4.2.1.6).
const tagURI = 6

// uris returns those of the subject alternative names, byte for byte: those of
// package x509 have been parsed, so that several texts become one.
func uris(c *x509.Certificate) (list []string) {
	for _, e := range c.Extensions {
		if !slices.Equal(e.Id, oidAltNames) {
			continue
		}
		var names []asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &names); err != nil {
			return nil
		}
		for _, n := range names {
			if n.Class == asn1.ClassContextSpecific && n.Tag == tagURI {
				list = append(list, string(n.Bytes))
			}
		}
	}
	return list
}

// commonName returns that of a certificate's subject, "" if it has none, or
// several, of which readers take different ones.
func commonName(c *x509.Certificate) string {
	n := 0
	for _, a := range c.Subject.Names {
		if slices.Equal(a.Type, oidCommonName) {
			n++
		}
	}
	if n != 1 {
		return ""
	}
	return c.Subject.CommonName
}
