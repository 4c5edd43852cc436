package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Server serves the gRPC services of one daemon.
type Server struct {
	grpc   *grpc.Server
	health *healthService
	fwd    *forwarder
	core   Core
	log    *slog.Logger
}

// NewServer makes a server for a daemon.
func NewServer(core Core, log *slog.Logger, dial []grpc.DialOption, options ...grpc.ServerOption) *Server {
	options = append(options,
		grpc.ChainUnaryInterceptor(recovered(log)),
		grpc.ChainStreamInterceptor(recoveredStream(log)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	)
	s := &Server{grpc: grpc.NewServer(options...), health: newHealthService(core), fwd: newForwarder(core, dial), core: core, log: log}
	pb.RegisterBrokerServiceServer(s.grpc, &brokerService{core: core, fwd: s.fwd})
	pb.RegisterAdminServiceServer(s.grpc, &adminService{core: core, fwd: s.fwd})
	pb.RegisterMetadataServiceServer(s.grpc, &metadataService{core: core})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	return s
}

// recovered turns a panic in one call into an error of that call.
func recovered(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer recoverCall(log, info.FullMethod, &err)
		return handler(ctx, req)
	}
}

// recoveredStream is recovered for streams.
func recoveredStream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer recoverCall(log, info.FullMethod, &err)
		return handler(srv, stream)
	}
}

func recoverCall(log *slog.Logger, method string, err *error) {
	if p := recover(); p != nil {
		log.Error("panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, fmt.Sprintf("panic: %v", p))
	}
}

// Serve answers calls on the listener until the context ends, and then until
// running calls are through, at most 1 s.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(l) }()
	s.health.follow(ctx)
	s.health.Shutdown()
	stop := time.AfterFunc(time.Second, s.grpc.Stop)
	s.grpc.GracefulStop()
	stop.Stop()
	s.fwd.close()
	return <-served
}

// Kill ends the server at once, with its connections.
func (s *Server) Kill() {
	s.grpc.Stop()
	s.fwd.close()
}
