package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/web"
	"github.com/gosoftroce/rocev2/observe/metrics"
)

// guard checks the host name, site, token and content type of a request before
// anything is done.
func (h *handlers) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Content-Security-Policy", web.Policy)
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		c := h.config().Admin
		unauthorized := c.Token != "" && !goodToken(r, c.Token)
		if unauthorized { // it is not to keep one of the few connections
			header.Set("Connection", "close")
		}
		if !goodHost(r.Host, c.Hosts) {
			refuse(w, http.StatusMisdirectedRequest, "the name %q is not one of this host: use its address, or add the name to admin.hosts", clip(r.Host))
			return
		}
		if err := origin.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "the request comes from another site")
			return
		}
		if unauthorized && !open(r.URL.Path) {
			header.Set("WWW-Authenticate", `Bearer realm="rocev2d"`)
			refuse(w, http.StatusUnauthorized, "this needs the token of the configuration, as Authorization: Bearer TOKEN")
			return
		}
		if r.Method == http.MethodPost && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			refuse(w, http.StatusUnsupportedMediaType, "a POST needs Content-Type: application/json, which no foreign page can send unasked")
			return
		}
		defer serving(r, c.Token != "" && !unauthorized)()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// routes are what there is.
func (h *handlers) routes() http.Handler {
	mux := http.NewServeMux()
	files := web.Handler()
	for _, path := range web.Paths() {
		mux.Handle("GET "+path, files)
	}
	mux.HandleFunc("GET /{$}", h.page)
	for i := range pageLists {
		mux.HandleFunc("GET /lists/"+pageLists[i].name, h.list(&pageLists[i]))
	}
	h.addProbes(mux)
	mux.Handle("GET /metrics", metrics.Handler(metrics.Config{Devices: h.verbsDevices, Version: h.version, Gauges: h.gauges}))
	h.addAPI(mux)
	if h.config().Admin.PProf {
		for path, f := range map[string]http.HandlerFunc{
			"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/symbol": pprof.Symbol,
			"/debug/pprof/profile": long(pprof.Profile), "/debug/pprof/trace": long(pprof.Trace),
		} {
			mux.HandleFunc("GET "+path, f)
		}
	}
	return mux
}

// addProbes adds what says how the daemon is.
func (h *handlers) addProbes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /readyz", h.readiness)
}

// open are the paths that need no token: the page, which has no data without
// it, and what a probe asks.
func open(path string) bool {
	return path == "/healthz" || path == "/readyz" || slices.Contains(web.Paths(), path) || path == "/"
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
