// Package quicpeer measures quic-go between two processes: one stream, in Gb/s
// of what its reader got.
package quicpeer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/madeup"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// Kind is the name of the workers.
const Kind = "quic"

const (
	protocol = "rocebench"
	message  = 1 << 20
)

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
			return cell.Failed(fmt.Errorf("quic-go: %w", err))
		}
		return cell.Sample{Value: r.Values["gbps"]}
	}
}

type side struct {
	cfg      config
	udp      *net.UDPConn
	listener *quic.Listener
	peer     net.UDPAddr
}

var limits = &quic.Config{
	InitialStreamReceiveWindow: 16 << 20, MaxStreamReceiveWindow: 64 << 20,
	InitialConnectionReceiveWindow: 16 << 20, MaxConnectionReceiveWindow: 64 << 20,
}

// Hello opens the socket; the active side listens.
func (s *side) Hello() (any, error) {
	var err error
	if s.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(s.cfg.Addr)}); err != nil {
		return nil, err
	}
	if s.cfg.Active {
		t, err := madeup.Server(protocol)
		if err != nil {
			return nil, err
		}
		if s.listener, err = quic.Listen(s.udp, t, limits); err != nil {
			return nil, err
		}
	}
	return s.udp.LocalAddr(), nil
}

// Connect takes the peer's address.
func (s *side) Connect(raw json.RawMessage) error { return json.Unmarshal(raw, &s.peer) }

// Run sends until stop, or receives and measures.
func (s *side) Run(stop <-chan struct{}) (pair.Result, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.cfg.Active {
		return s.receive(ctx)
	}
	go func() { <-stop; cancel() }()
	// The certificate is made up for the run; nothing is protected here.
	t := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13}
	conn, err := quic.Dial(ctx, s.udp, &s.peer, t, limits)
	if err != nil {
		return pair.Result{}, err
	}
	stream, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return pair.Result{}, err
	}
	context.AfterFunc(ctx, func() { stream.CancelWrite(0) })
	b := make([]byte, message)
	for ctx.Err() == nil {
		if _, err := stream.Write(b); err != nil && ctx.Err() == nil {
			<-stop // the reader is through and has gone, or the run fails there
		}
	}
	return pair.Result{}, nil
}

func (s *side) receive(ctx context.Context) (pair.Result, error) {
	conn, err := s.listener.Accept(ctx)
	if err != nil {
		return pair.Result{}, err
	}
	stream, err := conn.AcceptUniStream(ctx)
	if err != nil {
		return pair.Result{}, err
	}
	if err := stream.SetReadDeadline(time.Now().Add(s.cfg.Warm + s.cfg.Measure + 10*time.Second)); err != nil {
		return pair.Result{}, err
	}
	b := make([]byte, message)
	begin := time.Now()
	var from time.Time
	var bytes uint64
	for {
		n, err := stream.Read(b)
		if err != nil {
			return pair.Result{}, err
		}
		bytes += uint64(n)
		now := time.Now()
		switch {
		case from.IsZero() && now.Sub(begin) >= s.cfg.Warm:
			from, bytes = now, 0
		case !from.IsZero() && now.Sub(from) >= s.cfg.Measure:
			return pair.Result{Values: map[string]float64{"gbps": float64(bytes) * 8 / 1e9 / now.Sub(from).Seconds()}}, nil
		}
	}
}

// Close closes the socket.
func (s *side) Close() error {
	if s.udp == nil {
		return nil
	}
	return s.udp.Close()
}
