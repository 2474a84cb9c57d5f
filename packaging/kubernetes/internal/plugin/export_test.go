package plugin

// Serve is Run without the libraries and the lock.
var Serve = serve
