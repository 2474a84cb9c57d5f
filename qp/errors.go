package qp

import "errors"

// Errors of New.
var (
	ErrService = errors.New("qp: only the service RC is implemented")
	ErrConfig  = errors.New("qp: bad configuration")
)
