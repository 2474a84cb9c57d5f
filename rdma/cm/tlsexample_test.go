package cm_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// certificate makes one that is its own authority, of a name and an address. In
// production certificates come from files, by tls.LoadX509KeyPair.
func certificate(name, addr string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.ParseIP(addr)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// Both sides know each other by certificates, and what they say is encrypted:
// private data and messages.
func ExampleDial_secured() {
	a, b := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	client, server := newMachine(a, verbs.Config{Sealing: true}), newMachine(b, verbs.Config{Sealing: true})
	defer client.dev.Close()
	defer server.dev.Close()
	ctx := context.Background()
	clientCert, clientCAs := certificate("the client", "192.0.2.1")
	serverCert, serverCAs := certificate("the server", "192.0.2.2")

	l, err := cm.Listen(server.dev, netip.MustParseAddrPort("192.0.2.2:7471"), cm.ListenConfig{
		TLS: &tls.Config{Certificates: []tls.Certificate{serverCert}, ClientCAs: clientCAs, ClientAuth: tls.RequireAndVerifyClientCert}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		req, err := l.Accept(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		state, _ := req.ConnectionState()
		fmt.Printf("%s asks with %q\n", state.PeerCertificates[0].Subject.CommonName, bytes.TrimRight(req.PrivateData(), "\x00"))
		if _, err := req.Accept(ctx, server.qp, cm.AcceptConfig{}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("the server has", server.message(ctx))
	}()

	conn, err := cm.Dial(ctx, client.qp, netip.MustParseAddrPort("192.0.2.2:7471"), cm.DialConfig{
		PrivateData: []byte("my password"), TLS: &tls.Config{RootCAs: serverCAs, Certificates: []tls.Certificate{clientCert}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = client.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("a secret"), Signaled: true})
	<-served
	_ = conn.Disconnect(ctx)

	// Without TLS there is no connection.
	_ = client.qp.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState)
	_, err = cm.Dial(ctx, client.qp, netip.MustParseAddrPort("192.0.2.2:7471"), cm.DialConfig{})
	fmt.Println(err)
	// Output:
	// the client asks with "my password"
	// the server has a secret
	// cm: dial 192.0.2.2:7471: cm: rejected by the peer: rejected by the program (reason 28); it says: "this listener takes secured connections alone: dial with a TLS configuration"
}
