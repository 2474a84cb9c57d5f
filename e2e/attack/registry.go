package attack

import "slices"

// All returns every attack.
func All() []Attack { return slices.Concat(offPath, byPeers(), services, Secured(), Guarded()) }
