// Package config reads the configuration of rocev2d: a TOML file, then what the
// environment and the flags say in its place. An error says which file and line
// it is about, and what is allowed there; all errors of a file are told at
// once. A setting that does not exist is an error too, because a typing error
// in an access list must not go unseen.
//
// The package opens nothing: whether an address is of this host, or a file can
// be read, is found out by package server.
package config
