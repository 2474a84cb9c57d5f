package qp

import "errors"

// Errors of New.
var (
	ErrService = errors.New("qp: no such type of queue pair here")
	ErrConfig  = errors.New("qp: bad configuration")
)
