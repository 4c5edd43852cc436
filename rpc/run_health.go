package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	// HealthActive is the name under which health says whether the daemon is the
	// active controller.
	HealthActive = "controllerd.active"
	// healthInterval is how often health is looked at.
	healthInterval = 500 * time.Millisecond
	// healthPatience is how long the owner of the state may take to be looked at.
	healthPatience = 2 * time.Second
)

// healthService serves grpc.health.v1.Health:
//
//	""                             the daemon can do its work: it has read the
//	                               cluster, sees what happens, and etcd takes its
//	                               writes
//	controllerd.v1.BrokerService   the same: sessions are written
//	controllerd.v1.AdminService    the same: changes are
//	controllerd.v1.MetadataService what it shows is not old; it may be that etcd
//	                               takes no writes
//	controllerd.active             it may act as the active controller
//
// The last is looked at when Check and List answer, so that a process that was
// stopped and goes on says no at once. A Watch hears within half a second.
type healthService struct {
	*health.Server
	core Core
}

func newHealthService(core Core) *healthService {
	h := &healthService{health.NewServer(), core}
	h.set(View{}, false)
	return h
}

// Check implements healthpb.HealthServer.
func (h *healthService) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if r.GetService() == HealthActive {
		return &healthpb.HealthCheckResponse{Status: h.active()}, nil
	}
	return h.Server.Check(ctx, r)
}

// List implements healthpb.HealthServer.
func (h *healthService) List(ctx context.Context, r *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all, err := h.Server.List(ctx, r)
	if err == nil {
		all.Statuses[HealthActive] = &healthpb.HealthCheckResponse{Status: h.active()}
	}
	return all, err
}

func (h *healthService) active() healthpb.HealthCheckResponse_ServingStatus {
	_, leading := h.core.Leading()
	return statusOf(leading)
}

// follow looks at the daemon until the context ends.
func (h *healthService) follow(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		var seen View
		limited, cancel := context.WithTimeout(ctx, healthPatience)
		err := h.core.Await(limited, func(v View) bool {
			seen = View{Healthy: v.Image.Rev > 0 && v.Healthy, Current: v.Current}
			return true
		})
		cancel()
		if err != nil {
			seen = View{}
		}
		_, leading := h.core.Leading()
		h.set(seen, leading)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *healthService) set(v View, leading bool) {
	for _, service := range []string{"", pb.BrokerService_ServiceDesc.ServiceName, pb.AdminService_ServiceDesc.ServiceName} {
		h.SetServingStatus(service, statusOf(v.Healthy))
	}
	h.SetServingStatus(pb.MetadataService_ServiceDesc.ServiceName, statusOf(v.Current))
	h.SetServingStatus(HealthActive, statusOf(leading))
}

func statusOf(serving bool) healthpb.HealthCheckResponse_ServingStatus {
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}
