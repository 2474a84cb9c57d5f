package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Limits of the listeners for HTTP. They are for a few operators, scrapers and
// probes.
const (
	maxHTTPConns   = 128
	maxOfAddress   = 16 // connections of one address that have not shown the token
	maxHeader      = 16 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 15 * time.Second // to read a request, and to write an answer
	idleTimeout    = time.Minute
)

// admin is a listener for HTTP.
type admin struct {
	name     string
	ln       net.Listener
	http     *http.Server
	loopback bool         // only this host can reach it
	failed   chan<- error // is told if it fails
	done     chan struct{}
}

func listenAdmin(ctx context.Context, h *handlers, where string) (*admin, error) {
	ln, err := listenTCP(ctx, "admin listener", where)
	if err != nil {
		return nil, err
	}
	a := &admin{name: "admin listener", failed: h.failed, done: make(chan struct{})}
	if t, ok := ln.Addr().(*net.TCPAddr); ok {
		a.loopback = t.IP.IsLoopback()
	}
	if !a.loopback && h.config().Admin.Token == "" { // localhost may be anything
		ln.Close()
		return nil, fmt.Errorf("admin listener: %v can be reached from other hosts, so it needs a token: set admin.token_file", ln.Addr())
	}
	a.serve(ln, h.guard(h.routes()), h.log)
	return a, nil
}

// serve answers on ln, until close.
func (a *admin) serve(ln net.Listener, h http.Handler, log *slog.Logger) {
	a.ln = newPlaces(ln, maxHTTPConns, maxOfAddress)
	a.http = &http.Server{
		Handler: h, ConnContext: withGuest,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(a.done)
		if err := a.http.Serve(a.ln); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("%s: %w", a.name, err)
		}
	}()
}

// listenHealth has the probes answered on a listener of their own, where
// nothing else can be had. It needs no token.
func listenHealth(ctx context.Context, h *handlers, where string) (*admin, error) {
	ln, err := listenTCP(ctx, "health listener", where)
	if err != nil {
		return nil, err
	}
	a := &admin{name: "health listener", failed: h.failed, done: make(chan struct{})}
	mux := http.NewServeMux()
	h.addProbes(mux)
	a.serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Connection", "close") // a probe asks once
		mux.ServeHTTP(w, r)
	}), h.log)
	return a, nil
}

// listenTCP listens for what is named.
func listenTCP(ctx context.Context, name, where string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", where)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %w: perhaps by another rocev2d; choose another port, or none (--admin off, --health off)", name, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ln, nil
}

func (a *admin) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := a.http.Shutdown(ctx)
	if err != nil {
		err = a.http.Close() // a slow client is no error
	}
	<-a.done
	return err
}
