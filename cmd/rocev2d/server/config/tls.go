package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/internal/tlsfiles"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// TLS says how connections of clients of regions are secured.
type TLS struct {
	tlsfiles.Files
	Config *tls.Config // what Check has read from the files; nil: nothing is secured
}

// Leaf returns the certificate of the daemon, nil if it has none.
func (t *TLS) Leaf() *x509.Certificate {
	if t.Config == nil || t.PSK != "" || len(t.Config.Certificates) == 0 {
		return nil
	}
	return t.Config.Certificates[0].Leaf
}

// required is what "tls" of a region says if connections in clear do not get
// it.
const required = "required"

func (c *Config) decodeTLS(s *table) {
	t := &c.TLS
	s.given("cert", &t.Cert)
	s.given("key", &t.Key)
	s.given("ca", &t.CA)
	s.given("psk_file", &t.PSK)
	s.boolean("server_only", &t.ServerOnly)
	s.end()
}

// tls reads whether a region is for secured connections alone.
func (t *table) tls(r *Region) {
	var v string
	t.given("tls", &v)
	t.try("tls", v, func(v string) error {
		if r.TLS = v == required; !r.TLS {
			return fmt.Errorf("%q: it is %q, or not there", v, required)
		}
		return nil
	})
}

// settingOf are the settings of what tlsfiles complains of.
var settingOf = map[string]string{
	tlsfiles.Cert: "tls.cert", tlsfiles.Key: "tls.key", tlsfiles.CA: "tls.ca", tlsfiles.PSK: "tls.psk_file", tlsfiles.ServerOnly: "tls.server_only",
}

// tls reads the files, and sees that regions and devices fit.
func (k *checker) tls() {
	t := &k.c.TLS
	switch _, there := k.c.where["tls"]; {
	case t.Given():
		var wrong tlsfiles.Mistakes
		var err error
		if t.Config, err = t.Server(); errors.As(err, &wrong) {
			for _, w := range wrong {
				k.fail(settingOf[w.Part], "%v", w.Err)
			}
		}
		for i := range k.c.Devices {
			if k.c.Devices[i].Shm {
				k.fail(fmt.Sprintf("device.%d.shared_memory", i), "packets through shared memory are not sealed: with [tls] it must be false")
			}
		}
	case there && !k.wrongIn("tls"):
		k.fail("tls", "it is there, and names no file: give cert, key and ca, or psk_file; without [tls] connections are in clear")
	}
	for i := range k.c.Regions {
		k.regionTLS(&k.c.Regions[i], fmt.Sprintf("region.%d", i))
	}
}

// wrongIn reports whether a mistake of a setting in a table has been told.
func (k *checker) wrongIn(table string) bool {
	for setting := range k.c.wrong {
		if strings.HasPrefix(setting, table+".") {
			return true
		}
	}
	return false
}

func (k *checker) regionTLS(r *Region, at string) {
	t := &k.c.TLS
	switch {
	case r.Any && len(r.Names) > 0:
		k.fail(at+".allow", "\"any\" beside %q: whom a name is for may have it anyway; for all that have a connection that is secured, write \"any\" and tls = \"required\"", r.Names[0])
	case len(r.Names) > 0 && !t.Given():
		k.fail(at+".allow", "%q is a name of certificates: say in [tls] which there are", r.Names[0])
	case len(r.Names) > 0 && t.PSK != "":
		k.fail(at+".allow", "%q is a name of certificates, and with psk_file clients have none", r.Names[0])
	case len(r.Names) > 0 && t.CA == "" && t.ServerOnly:
		k.fail(at+".allow", "%q is a name of certificates, and [tls] has no ca whose certificates count", r.Names[0])
	case r.TLS && !t.Given():
		k.fail(at+".tls", "connections are to be secured: say in [tls] with which certificate")
	}
}

// Secured reports whether only clients with a secured connection may use the
// region.
func (r *Region) Secured() bool { return r.TLS || len(r.Names) > 0 }

// addName adds a name of certificates to an access list.
func (r *Region) addName(s string) error {
	n, err := secure.ParseName(s)
	if err == nil {
		r.Names = append(r.Names, n)
	}
	return err
}
