package lanes

import (
	"errors"

	"github.com/gosoftroce/rocev2/verbs"
)

type domain struct{}

var errXRC = errors.New("this device has no XRC")

func (s *Set) openDomain(verbs.SRQConfig) error          { return errXRC }
func (s *Set) closeDomain()                              {}
func (s *Set) makeXRC(*Lane, verbs.QPConfig) (err error) { return errXRC }
func (s *Set) SRQN() uint32                              { return 0 }
