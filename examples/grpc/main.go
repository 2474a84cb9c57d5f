// Command grpc asks a gRPC server for its health, over RDMA.
//
//	grpc serve 127.0.0.2:7471
//	grpc check 127.0.0.2:7471
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"

	"github.com/gosoftroce/rocev2/rdma/rdmanet"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 3 {
		log.Fatal("usage: grpc serve|check ADDRESS:PORT")
	}
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(ctx, os.Args[2])
	case "check":
		err = check(ctx, os.Args[2])
	default:
		err = fmt.Errorf("%s: it is serve or check", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends. A service of your own is registered in the place
// of that of health.
func serve(ctx context.Context, addr string) error {
	ln, err := rdmanet.Listen("rdma", addr)
	if err != nil {
		return err
	}
	log.Printf("serving on %v", ln.Addr())
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	context.AfterFunc(ctx, s.GracefulStop)
	return s.Serve(ln)
}

func check(ctx context.Context, addr string) error {
	conn, err := connect(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	// WaitForReady waits for a server that has not started yet.
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	fmt.Println(answer.GetStatus())
	return nil
}

// connect returns a client's connection, which gRPC makes again when it ends.
// "passthrough" hands the address to the dialer as it is: gRPC's own resolver
// is for names of DNS. TLS credentials go in the place of insecure's.
func connect(addr string) (*grpc.ClientConn, error) {
	var d rdmanet.Dialer
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return d.DialContext(ctx, "rdma", addr)
		}))
}
