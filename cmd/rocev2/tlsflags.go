package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/internal/tlsfiles"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// tlsFlags are the flags of connections that are secured.
type tlsFlags struct {
	files      tlsfiles.Files
	serverName string
	set        *pflag.FlagSet
}

func (f *tlsFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.set = fs
	fs.StringVar(&f.files.Cert, "tls-cert", "", "secure the connection: `FILE` with the certificate of this side (PEM; docs/secure.md)")
	fs.StringVar(&f.files.Key, "tls-key", "", "`FILE` with the private key of --tls-cert")
	fs.StringVar(&f.files.CA, "tls-ca", "", "`FILE` with the authority that has issued the certificate of the peer")
	fs.StringVar(&f.serverName, "tls-server-name", "", "client: `name` or address that the certificate of the server is for (default: what is dialled)")
	fs.BoolVar(&f.files.ServerOnly, "tls-server-only", false, "clients need no certificate, and are not authenticated")
	fs.StringVar(&f.files.PSK, "psk", "", "secure the connection by a secret that both sides have, in `FILE`, in place of certificates")
}

// wanted reports whether the connection is to be secured.
func (f *tlsFlags) wanted() bool { return f.files.Given() || f.serverName != "" }

// of is config for a command whose device has the flags of an inspector.
func (f *tlsFlags) of(i *inspectFlags, server string) (*tls.Config, error) {
	c, err := f.config(server)
	i.seals = c != nil
	return c, err
}

// config returns the configuration of a client of a server, or of a server if
// that is "". It is nil if nothing is to be secured.
func (f *tlsFlags) config(server string) (c *tls.Config, err error) {
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca", "tls-server-name", "psk"} {
		if flag := f.set.Lookup(name); flag.Changed && flag.Value.String() == "" {
			return nil, usagef("--%s: given, but empty: give a value, or leave the flag out", name)
		}
	}
	switch {
	case !f.wanted():
		return nil, nil
	case f.serverName != "" && server == "":
		return nil, usagef("--tls-server-name %s: a server has the name of its certificate", f.serverName)
	case f.serverName != "" && f.files.PSK != "":
		return nil, usagef("--tls-server-name %s: a pre-shared secret (--psk) has no names", f.serverName)
	case server == "":
		c, err = f.files.Server()
	default:
		c, err = f.files.Client(f.nameOf(server))
	}
	var mistakes tlsfiles.Mistakes
	if errors.As(err, &mistakes) {
		var list []error
		for _, wrong := range mistakes {
			list = append(list, fmt.Errorf("%s: %w%s", flagOfFile[wrong.Part], wrong.Err, f.hint(wrong.Part, server)))
		}
		return nil, usageError{errors.Join(list...)}
	}
	return c, err
}

// flagOfFile names the flags of what tlsfiles complains of.
var flagOfFile = map[string]string{
	tlsfiles.Cert: "--tls-cert", tlsfiles.Key: "--tls-key", tlsfiles.CA: "--tls-ca", tlsfiles.PSK: "--psk", tlsfiles.ServerOnly: "--tls-server-only",
}

// hint says that a missing certificate of a client, or of the authority of
// clients, need not be there.
func (f *tlsFlags) hint(part, server string) string {
	client := server != "" && part == tlsfiles.Cert && f.files.Cert == ""
	if client || server == "" && part == tlsfiles.CA && f.files.CA == "" {
		return " (with --tls-server-only clients are not authenticated, and need none)"
	}
	return ""
}

// nameOf returns the name that the certificate of a server is for.
func (f *tlsFlags) nameOf(server string) string {
	if f.serverName != "" {
		return f.serverName
	}
	host := strings.Trim(server, "[]")
	if a, err := netip.ParseAddr(host); err == nil {
		return a.WithZone("").String()
	}
	return host
}

// tellSecured says how a run is secured, if it is.
func tellSecured(io streams, s *perftest.Secured) {
	if s != nil {
		fmt.Fprintf(io.err, "secured: packets by %v, keys by %s with %s\n", s.Packets, tls.VersionName(s.TLS.Version), peerOf(s.TLS))
	}
}

// peerOf names the peer, as the handshake has shown it.
func peerOf(state *tls.ConnectionState) string {
	switch names := secure.Names(state); {
	case len(names) > 0:
		return string(names[0])
	case len(state.VerifiedChains) > 0:
		return "a peer whose certificate has no name"
	case len(state.PeerCertificates) > 0:
		return "a peer that has the same secret"
	}
	return "a client that is not authenticated"
}
