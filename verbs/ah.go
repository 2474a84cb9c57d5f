package verbs

import "github.com/gosoftroce/rocev2/ib"

// AddressHandle says where the datagrams of a UD queue pair go.
type AddressHandle struct {
	core ib.AddressHandle // first, see convert.go
}
