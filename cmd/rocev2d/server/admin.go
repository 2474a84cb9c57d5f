package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/web"
	"github.com/gosoftroce/rocev2/observe/metrics"
)

// Limits of the listeners for HTTP. They are for a few operators, scrapers and
// probes.
const (
	maxHTTPConns   = 128
	maxOfAddress   = 16 // connections of one address that have not shown the token
	maxHeader      = 16 << 10
	maxBody        = 16 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 15 * time.Second // to read a request, and to write an answer
	idleTimeout    = time.Minute
	downloadTime   = 5 * time.Minute // to write a capture
)

// admin is a listener for HTTP.
type admin struct {
	name     string
	ln       net.Listener
	http     *http.Server
	loopback bool // only this host can reach it
	done     chan struct{}
}

func listenAdmin(ctx context.Context, s *Server, where string) (*admin, error) {
	ln, err := listenTCP(ctx, "admin listener", where)
	if err != nil {
		return nil, err
	}
	a := &admin{name: "admin listener", done: make(chan struct{})}
	if t, ok := ln.Addr().(*net.TCPAddr); ok {
		a.loopback = t.IP.IsLoopback()
	}
	if !a.loopback && s.cfg.Admin.Token == "" { // localhost may be anything
		ln.Close()
		return nil, fmt.Errorf("admin listener: %v can be reached from other hosts, so it needs a token: set admin.token_file", ln.Addr())
	}
	serveHTTP(s, a, ln, s.guard(s.routes()))
	return a, nil
}

// serveHTTP has a answer on ln.
func serveHTTP(s *Server, a *admin, ln net.Listener, h http.Handler) {
	a.ln = newPlaces(ln, maxHTTPConns, maxOfAddress)
	a.http = &http.Server{
		Handler: h, ConnContext: withGuest,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(a.done)
		if err := a.http.Serve(a.ln); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("%s: %w", a.name, err)
		}
	}()
}

// listenHealth has the probes answered on a listener of their own, where
// nothing else can be had. It needs no token.
func listenHealth(ctx context.Context, s *Server, where string) (*admin, error) {
	ln, err := listenTCP(ctx, "health listener", where)
	if err != nil {
		return nil, err
	}
	a := &admin{name: "health listener", done: make(chan struct{})}
	mux := http.NewServeMux()
	probes(s, mux)
	serveHTTP(s, a, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Connection", "close") // a probe asks once
		mux.ServeHTTP(w, r)
	}))
	return a, nil
}

// probes are what says how the daemon is.
func probes(s *Server, mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /readyz", s.readiness)
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

// routes are what there is.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	page := web.Handler()
	for _, path := range web.Paths() {
		mux.Handle("GET "+path, page)
	}
	probes(s, mux)
	mux.Handle("GET /metrics", metrics.Handler(metrics.Config{Devices: s.verbsDevices, Version: s.options.Version, Gauges: s.gauges}))
	s.api(mux)
	if s.cfg.Admin.PProf {
		for path, h := range map[string]http.HandlerFunc{
			"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/symbol": pprof.Symbol,
			"/debug/pprof/profile": long(pprof.Profile), "/debug/pprof/trace": long(pprof.Trace),
		} {
			mux.HandleFunc("GET "+path, h)
		}
	}
	return mux
}

// long gives a handler the time that a download may take.
func long(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTime)) // without it the usual time holds
		h(w, r)
	}
}

// open are the paths that need no token: the page, which has no data itself,
// and what a probe asks.
func open(path string) bool {
	return path == "/healthz" || path == "/readyz" || slices.Contains(web.Paths(), path) || path == "/"
}

// guard checks the host name, site, token and content type of a request before
// anything is done.
func (s *Server) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", web.Policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		c := s.Config().Admin
		stranger := c.Token != "" && !goodToken(r, c.Token)
		if stranger { // it is not to keep one of the few connections
			h.Set("Connection", "close")
		}
		if !goodHost(r.Host, c.Hosts) {
			refuse(w, http.StatusMisdirectedRequest, "the name %q is not one of this host: use its address, or add the name to admin.hosts", clip(r.Host))
			return
		}
		if err := origin.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "the request comes from another site")
			return
		}
		if stranger && !open(r.URL.Path) {
			h.Set("WWW-Authenticate", `Bearer realm="rocev2d"`)
			refuse(w, http.StatusUnauthorized, "this needs the token of the configuration, as Authorization: Bearer TOKEN")
			return
		}
		if r.Method == http.MethodPost && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			refuse(w, http.StatusUnsupportedMediaType, "a POST needs Content-Type: application/json, which no foreign page can send unasked")
			return
		}
		defer serving(r, c.Token != "" && !stranger)()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// goodHost reports whether a Host header stands for this host. A page of
// another site reaches us by a name of its own that it lets stand for our
// address (DNS rebinding); an address cannot be rebound.
func goodHost(host string, names []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

func goodToken(r *http.Request, token string) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
