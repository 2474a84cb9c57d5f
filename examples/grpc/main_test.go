package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// A client that is started first waits for the server, has its answer, and
// follows a stream until the server ends, which waits for nothing.
func TestCheckAndWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr := fmt.Sprintf("127.%d.%d.1:7471", 1+rand.IntN(254), rand.IntN(256))
	conn, err := connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	checked := make(chan error, 1)
	go func() { checked <- check(ctx, addr) }()

	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- serve(serving, addr) }()
	if err := <-checked; err != nil {
		t.Fatal(err)
	}
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := watch.Recv()
	if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(answer, err)
	}
	conn.Close() // ends the stream: a graceful stop waits for it
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
