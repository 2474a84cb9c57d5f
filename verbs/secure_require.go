package verbs

import "fmt"

// Require has the queue pair, which is in RESET or INIT, take no packet in
// clear, from its first on: where two programs have agreed on keys by other
// means before they connect it. Then Accept and Seal follow in RTR, before it
// goes to RTS, so that it sends none in clear either. Going to RESET ends it.
func (s *Sealing) Require() error {
	if err := s.core.RequireSealed(); err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	return nil
}
