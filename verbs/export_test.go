package verbs

import "github.com/gosoftroce/rocev2/transport/psp"

// LimitKeys bounds what keys of a device seal. It is called before there are
// any.
func LimitKeys(d *Device, l psp.Limits) {
	for _, link := range d.seals.links {
		link.Limits = l
	}
}
