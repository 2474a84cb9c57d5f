package rdma

import (
	"slices"

	"github.com/gosoftroce/rocev2/internal/devices"
	"github.com/gosoftroce/rocev2/verbs"
)

// door is what the connections of a listener have of one device: all of them,
// or those that are secured, or not. Each door has a protection domain of its
// own. So a peer in clear reaches no region that is Secured, whatever keys it
// has.
type door struct {
	secured bool
	hub     *hub
	ref     *devices.Ref // nil: the device is the program's
	exports directory
}

// openDoors opens the doors of a device.
func (l *Listener) openDoors(dev *verbs.Device, ref *devices.Ref, t tuning) (err error) {
	kinds := []bool{l.cfg.TLS != nil}
	if l.cfg.AdmitClear != nil {
		kinds = []bool{false, true}
	}
	for _, secured := range kinds {
		d := &door{secured: secured, ref: ref}
		ref = nil // the first has it
		l.doors = append(l.doors, d)
		if d.hub, err = newHub(dev, t, &d.exports); err != nil {
			return err
		}
		d.exports.pd, d.exports.asked = d.hub.pd, l.cfg.OnRegion
	}
	return nil
}

// Device returns the device that the listener uses, of several the first.
func (l *Listener) Device() *verbs.Device { return l.doors[0].hub.dev }

// Devices returns the devices that the listener uses.
func (l *Listener) Devices() (devs []*verbs.Device) {
	for _, d := range l.doors {
		if !slices.Contains(devs, d.hub.dev) {
			devs = append(devs, d.hub.dev)
		}
	}
	return devs
}

// door returns that of a device, of any if dev is nil, for connections that are
// secured, or not.
func (l *Listener) door(dev *verbs.Device, secured bool) *door {
	for _, d := range l.doors {
		if d.secured == secured && (dev == nil || d.hub.dev == dev) {
			return d
		}
	}
	return nil
}

func (d *door) close() {
	if d.hub != nil {
		d.hub.close()
	}
	if d.ref != nil {
		d.ref.Release()
	}
}
