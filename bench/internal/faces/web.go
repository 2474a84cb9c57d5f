package faces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// web serves HTTP, or gets what is served. Over RDMA and over TCP it is the
// same but for the listener and the dialer.
type web struct{ *base }

// Run gets, or serves.
func (w *web) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	f, ok := w.face.(*netFace)
	if !ok {
		return r, fmt.Errorf("no HTTP over %s", w.cfg.Face)
	}
	body := touched(w.cfg.Size)
	if !w.cfg.Active {
		w.before = pair.CostsNow()
		err := w.serve(f.l, body, stop)
		w.before.AddTo(&r)
		w.mishaps(&r)
		return r, err
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return f.dialer.DialContext(ctx, f.network, addr)
	}}
	client := &http.Client{Transport: t}
	n, took, err := w.measured(1, func() error { return w.get(client, body) })
	if err != nil {
		return r, err
	}
	w.before.AddTo(&r)
	r.Values["messages"] = float64(n)
	r.Values["gbps"] = float64(n) * float64(len(body)) * 8 / 1e9 / took.Seconds()
	t.CloseIdleConnections()
	w.mishaps(&r)
	return r, nil
}

func (w *web) get(client *http.Client, into []byte) error {
	resp, err := client.Get("http://" + w.peer + "/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength != int64(len(into)) {
		return fmt.Errorf("status %s, %d bytes", resp.Status, resp.ContentLength)
	}
	_, err = io.ReadFull(resp.Body, into)
	return err
}

func (w *web) serve(l net.Listener, body []byte, stop <-chan struct{}) error {
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/octet-stream")
		rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = rw.Write(body) // the client says what was wrong
	})}
	go func() { <-stop; s.Close() }()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
