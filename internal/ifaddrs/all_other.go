//go:build !linux

package ifaddrs

func fill(all []Interface) {
	for i := range all {
		all[i].Addrs = Of(&all[i].Interface)
	}
}
