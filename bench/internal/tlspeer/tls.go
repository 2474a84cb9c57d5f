// Package tlspeer measures a stream of TLS 1.3 over TCP between two processes,
// as packages crypto/tls and net have it: in Gb/s of what its reader got.
package tlspeer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// Kind is the name of the workers.
const Kind = "tls"

const message = 1 << 20

type config struct {
	Addr    string        `json:"addr"`
	Active  bool          `json:"active"` // reads and measures
	Warm    time.Duration `json:"warm"`
	Measure time.Duration `json:"measure"`
}

// Register makes the workers known.
func Register() {
	pair.Register(Kind, func(b []byte) (pair.Side, error) {
		s := &side{}
		return s, json.Unmarshal(b, &s.cfg)
	})
}

// Throughput returns a function that measures a stream from address a to
// address b.
func Throughput(a, b string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := config{Addr: a, Warm: w.Warm, Measure: w.Measure}
		d := c
		d.Addr, d.Active = b, true
		_, r, err := pair.Run(ctx, Kind, pair.Role{Config: c}, pair.Role{Config: d, Active: true}, w.Total()+20*time.Second)
		if err != nil {
			return cell.Failed(fmt.Errorf("TLS: %w", err))
		}
		return cell.Sample{Value: r.Values["gbps"]}
	}
}

type side struct {
	cfg      config
	listener net.Listener // of the active side
	peer     net.TCPAddr
}

// Hello listens, on the active side.
func (s *side) Hello() (any, error) {
	if !s.cfg.Active {
		return net.TCPAddr{}, nil
	}
	t, err := serverTLS()
	if err != nil {
		return nil, err
	}
	if s.listener, err = tls.Listen("tcp4", net.JoinHostPort(s.cfg.Addr, "0"), t); err != nil {
		return nil, err
	}
	return s.listener.Addr(), nil
}

// Connect takes the peer's address.
func (s *side) Connect(raw json.RawMessage) error { return json.Unmarshal(raw, &s.peer) }

// Run sends until the reader has gone, or receives and measures.
func (s *side) Run(stop <-chan struct{}) (pair.Result, error) {
	if s.cfg.Active {
		return s.receive()
	}
	// The certificate is made up for the run; nothing is protected here.
	d := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.cfg.Addr)}},
		Config:    &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}
	conn, err := d.Dial("tcp4", s.peer.String())
	if err != nil {
		return pair.Result{}, err
	}
	defer conn.Close()
	b := make([]byte, message)
	for err == nil {
		_, err = conn.Write(b)
	}
	<-stop // the reader is through and has gone, or the run fails there
	return pair.Result{}, nil
}

func (s *side) receive() (pair.Result, error) {
	conn, err := s.listener.Accept()
	if err != nil {
		return pair.Result{}, err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(s.cfg.Warm + s.cfg.Measure + 10*time.Second)); err != nil {
		return pair.Result{}, err
	}
	b := make([]byte, message)
	begin := time.Now()
	var from time.Time
	var bytes uint64
	for {
		n, err := conn.Read(b)
		if err != nil {
			return pair.Result{}, err
		}
		bytes += uint64(n)
		now := time.Now()
		switch {
		case from.IsZero() && now.Sub(begin) >= s.cfg.Warm:
			if suite := conn.(*tls.Conn).ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
				return pair.Result{}, fmt.Errorf("the two chose %s, and not AES-GCM-128", tls.CipherSuiteName(suite))
			}
			from, bytes = now, 0
		case !from.IsZero() && now.Sub(from) >= s.cfg.Measure:
			return pair.Result{Values: map[string]float64{"gbps": float64(bytes) * 8 / 1e9 / now.Sub(from).Seconds()}}, nil
		}
	}
}

// Close ends the listener.
func (s *side) Close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

func serverTLS() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13}, nil
}
