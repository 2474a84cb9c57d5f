//go:build !unix

package main

import "log"

func main() { log.Fatal("soak: this system cannot stop and continue processes") }
