package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// Clients without a token that keep their connections open do not keep others
// out, whatever they asked for.
func TestStrangersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Admin.Token = "0123456789abcdef0123" })
	for i := range 100 {
		c, err := net.Dial("tcp", d.AdminAddr().String())
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		path := []string{"/api/v1/status", "/healthz", "/", "/nothing"}[i%4]
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n", path)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("stranger %d is not answered: %v", i, err)
		}
		resp.Body.Close()
	}
	if status, _, body := d.ask("GET", "/api/v1/status", "", "Authorization", "Bearer 0123456789abcdef0123"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}
