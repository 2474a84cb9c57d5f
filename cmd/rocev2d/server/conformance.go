package server

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/gosoftroce/rocev2/observe/conformance/target"
	"github.com/gosoftroce/rocev2/programs/interop"
)

// serveConformance makes queue pairs for those who test this software.
func serveConformance(ctx context.Context, h *Host) error {
	ln, err := interop.Listen(ctx, h.Device.Addr().WithZone("").String(), h.Port)
	if err != nil {
		return err
	}
	h.OnReady()
	var there sync.Map // *Guest by net.Addr: the value itself, a pointer
	err = target.Serve(ctx, h.Device, ln, target.Config{
		Release: h.Version, AnyPeer: h.Config.Any,
		OnBegin: func(addr net.Addr) error {
			g, err := h.Begin(addr)
			if err != nil {
				h.Refused(addr, err)
				return err
			}
			there.Store(addr, g)
			return nil
		},
		OnClient: func(addr net.Addr, commands int, err error) {
			if g, ok := there.LoadAndDelete(addr); ok {
				g.(*Guest).End(fmt.Sprintf("%d commands", commands), err)
			}
		},
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
