package config

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/internal/tlsfiles"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// Guard says how all packets of a device are sealed, and with which hosts: the
// table [device.secure].
type Guard struct {
	tlsfiles.Files
	Allow      []secure.Name // of certificates; empty: all of the authorities
	AnyAddress bool          // a certificate is good for any address
	Port       int           // TCP, where hosts agree on keys; 0: 4791
}

// Given reports whether the device is secured.
func (g *Guard) Given() bool { return g.Files.Given() }

// TLS reads the files: the configuration is for both sides of a handshake.
func (g *Guard) TLS() (*tls.Config, error) { return g.Client("") }

// decodeGuard reads [device.secure], if it is there.
func (d *Device) decodeGuard(t *table) {
	s := t.sub("secure", "[device.secure]")
	if s == nil {
		return
	}
	g := &d.Guard
	s.given("cert", &g.Cert)
	s.given("key", &g.Key)
	s.given("ca", &g.CA)
	s.given("psk_file", &g.PSK)
	s.boolean("any_address", &g.AnyAddress)
	s.number("port", &g.Port)
	_, listed := s.values["allow"]
	var allow []string
	s.texts("allow", &allow)
	if listed && len(allow) == 0 {
		s.fail("allow", "the list is empty: name hosts, or leave the setting out, and all hosts of the authorities may come")
	}
	for _, name := range allow {
		n, err := secure.ParseName(name)
		if err != nil {
			s.fail("allow", "%s", err.Error())
			continue
		}
		g.Allow = append(g.Allow, n)
	}
	s.end()
	if !g.Given() {
		s.fail("cert", "it is missing, and so is psk_file: a device is secured by certificates, or by a secret")
	}
}

// guardPart are the settings of what tlsfiles complains of.
var guardPart = map[string]string{tlsfiles.Cert: "cert", tlsfiles.Key: "key", tlsfiles.CA: "ca", tlsfiles.PSK: "psk_file"}

// guard checks that of a device.
func (k *checker) guard(d *Device, at string) {
	g := &d.Guard
	if !g.Given() {
		return
	}
	at += ".secure."
	var wrong tlsfiles.Mistakes
	if _, err := g.TLS(); errors.As(err, &wrong) {
		for _, w := range wrong {
			k.fail(at+guardPart[w.Part], "%v", w.Err)
		}
	}
	k.port(at+"port", g.Port)
	switch {
	case g.PSK != "" && len(g.Allow) > 0:
		k.fail(at+"allow", "%q is a name of certificates, and with psk_file hosts have none", g.Allow[0])
	case d.Shm:
		k.fail(at+"cert", "packets through shared memory are not sealed: shared_memory of the device must be false")
	case len(k.c.Targets.Groups) > 0:
		k.fail("targets.groups", "multicast cannot be secured, and the device %s is: take the groups out", d.Address)
	}
}

// Describe says how the device is secured, for people.
func (g *Guard) Describe() string {
	switch {
	case !g.Given():
		return "in clear"
	case g.PSK != "":
		return "secured with the hosts that have " + g.PSK
	case len(g.Allow) > 0:
		return fmt.Sprintf("secured with the hosts %v", g.Allow)
	}
	return "secured with the hosts of the authorities in " + g.CA
}
