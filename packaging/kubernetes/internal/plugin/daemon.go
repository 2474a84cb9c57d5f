package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/gosoftroce/rocev2/programs"
)

// daemon is how the plugin sees the node's rocev2d.
type daemon struct {
	dir   string
	ready string // URL, or ""
}

// errNoDevice is returned while a daemon answers that has no device.
var errNoDevice = errors.New("the daemon has no device yet")

// check returns why programs would not be served now: it does what a program
// does first, and asks the daemon whether its ports are active.
func (d *daemon) check(ctx context.Context) error {
	held, err := programs.Hold(d.dir)
	if err != nil {
		return err
	}
	held.Close()
	list, err := os.ReadDir(filepath.Join(d.dir, "sys/class/infiniband"))
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errNoDevice
	}
	if d.ready == "" {
		return nil
	}
	return d.ask(ctx)
}

// readyTime bounds an answer to the question whether the daemon is ready.
const readyTime = 5 * time.Second

func (d *daemon) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.ready, nil)
	if err != nil {
		return err
	}
	res, err := direct.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", d.ready, res.Status)
	}
	return nil
}

// direct uses no proxy of the environment, follows no redirection, and keeps no
// connection: the daemon has few places.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
