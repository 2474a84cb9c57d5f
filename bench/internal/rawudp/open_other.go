//go:build !linux

package rawudp

import (
	"errors"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

func open(config) (pair.Side, error) { return nil, errors.New("the raw limit probe needs Linux") }
