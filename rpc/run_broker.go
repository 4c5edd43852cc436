package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// storeTimeout bounds one call of the store on behalf of a caller.
const storeTimeout = 3 * time.Second

// maxRegisterSteps bounds the transactions of one registration: two, and as
// many again for each that another daemon wins.
const maxRegisterSteps = 20

// brokerService is what brokers call. Any daemon serves sessions: it makes the
// lease and the key, and holds nothing itself.
type brokerService struct {
	pb.UnimplementedBrokerServiceServer
	core Core
	fwd  *forwarder
}

func (s *brokerService) Register(ctx context.Context, r *pb.RegisterRequest) (*pb.RegisterResponse, error) {
	if err := checkRegister(r); err != nil {
		return nil, err
	}
	ttl := time.Duration(r.GetSessionTtlMs()) * time.Millisecond
	if ttl == 0 {
		ttl = DefaultSessionTTL
	}
	var lease store.Lease
	registered := false
	defer func() {
		if lease.ID != 0 && !registered { // not needed after all
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			_ = s.core.Store().Revoke(limited, lease.ID)
		}
	}()
	for range maxRegisterSteps {
		var next Registration
		var resp *pb.RegisterResponse
		err := s.core.Await(ctx, func(v View) bool {
			next = DecideRegister(v, r, lease.ID, time.Now().UnixMilli())
			if next.Done != nil {
				registered = next.Done.Lease == lease.ID
				resp = &pb.RegisterResponse{
					ClusterUuid: v.ClusterUUID, BrokerEpoch: int64(next.Done.Epoch), Lease: int64(next.Done.Lease),
					SessionTtlMs: max(ttl, lease.TTL).Milliseconds(), ControllerEpoch: int64(v.Image.Epoch),
				}
			}
			return true
		})
		switch {
		case err != nil:
			return nil, unavailable(err)
		case next.Err != nil || resp != nil:
			return resp, next.Err
		case next.Grant && lease.ID == 0:
			if lease, err = s.grant(ctx, ttl); err != nil {
				return nil, unavailable(err)
			}
		default:
			if err := s.commit(ctx, next); err != nil {
				return nil, unavailable(err)
			}
		}
	}
	return nil, status.Error(codes.Unavailable, "etcd holds something else than this daemon sees, try again")
}

func (s *brokerService) grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.core.Store().Grant(ctx, ttl)
}

// commit runs a step of a registration and waits until the image shows what
// became of it.
func (s *brokerService) commit(ctx context.Context, step Registration) error {
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	result, err := s.core.Store().Commit(limited, step.Txn)
	if err != nil {
		return err
	}
	if result.Succeeded && step.Revoke != 0 {
		_ = s.core.Store().Revoke(limited, step.Revoke) // its key is deleted: it holds nothing any more
	}
	var missing []string
	if !result.Succeeded {
		missing = absent(step.Txn.If, result.Found)
	}
	return s.core.Await(ctx, func(v View) bool {
		if result.Succeeded {
			return v.Image.Rev >= result.Rev
		}
		return v.Image.Reached(result.Rev, result.Found, missing)
	})
}

func absent(conds []store.Cond, found []store.KV) []string {
	var out []string
next:
	for _, c := range conds {
		for _, kv := range found {
			if kv.Key == c.Key {
				continue next
			}
		}
		out = append(out, c.Key)
	}
	return out
}

// RenewSession renews the lease of the broker's key, and of nothing else: the
// caller's is compared with it first.
func (s *brokerService) RenewSession(ctx context.Context, r *pb.RenewSessionRequest) (*pb.RenewSessionResponse, error) {
	if err := checkCaller(r.GetBrokerId(), r.GetBrokerEpoch(), r.GetControllerEpoch()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	resp := &pb.RenewSessionResponse{}
	var unsure error // of the cluster: the session is kept, whatever happens to the cluster's key
	err := s.session(ctx, r, func(v View) error {
		resp.ControllerEpoch = int64(v.Image.Epoch)
		return CheckRenewal(v.Image, r)
	}, &unsure)
	if err != nil {
		return nil, err
	}
	switch _, err := s.core.Store().Renew(ctx, store.LeaseID(r.GetLease())); {
	case errors.Is(err, store.ErrLeaseNotFound): // the image does not show it yet
		return nil, Error(cluster.StaleBrokerEpoch, nil, "the lease of broker %d is gone", r.GetBrokerId())
	case err != nil:
		return nil, unavailable(err)
	case unsure != nil:
		return nil, unsure
	}
	return resp, nil
}

// caller is a broker that claims to have a session.
type caller interface {
	GetClusterUuid() string
	GetBrokerEpoch() int64
}

// session looks at the session that a broker claims to have, once the image
// has reached its epoch: another daemon may have just registered it. What is
// wrong with the cluster goes into unsure, if the caller wants to go on.
func (s *brokerService) session(ctx context.Context, r caller, check func(View) error, unsure *error) error {
	var refused error
	var behind store.Rev
	err := s.core.Await(ctx, func(v View) bool {
		behind = v.Image.Rev
		refused = checkCluster(v, r.GetClusterUuid())
		if unsure != nil {
			if *unsure = nil; ReasonOf(refused) == cluster.NotController {
				*unsure, refused = refused, nil
			}
		}
		if refused != nil {
			return true
		}
		if v.Image.Rev < store.Rev(r.GetBrokerEpoch()) {
			return false
		}
		refused = check(v)
		return true
	})
	switch {
	case err == nil:
		return refused
	case errors.Is(err, context.DeadlineExceeded):
		return Error(cluster.RequestTimedOut, nil, "this daemon has seen revision %d, broker epoch %d is later", behind, r.GetBrokerEpoch())
	}
	return unavailable(err)
}

func (s *brokerService) Unregister(ctx context.Context, r *pb.UnregisterRequest) (*pb.UnregisterResponse, error) {
	if err := checkCaller(r.GetBrokerId(), r.GetBrokerEpoch()); err != nil {
		return nil, err
	}
	var step Registration
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := s.session(limited, r, func(v View) error {
		id, epoch := cluster.BrokerID(r.GetBrokerId()), cluster.BrokerEpoch(r.GetBrokerEpoch())
		key := v.Image.Keys.Broker(id)
		if err := CheckSession(v.Image, id, epoch, r.GetNonce()); err != nil {
			return err
		}
		step = Registration{
			Txn:    store.Txn{If: []store.Cond{store.CreateRevIs(key, store.Rev(epoch))}, Then: []store.Op{store.Delete(key)}},
			Revoke: v.Image.Brokers[id].Lease,
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := s.commit(ctx, step); err != nil {
		return nil, unavailable(err)
	}
	return &pb.UnregisterResponse{}, nil
}

func (s *brokerService) AlterPartition(ctx context.Context, r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
	if err := checkCaller(r.GetBrokerId(), r.GetBrokerEpoch()); err != nil {
		return nil, err
	}
	var refused error
	if err := s.core.Await(ctx, func(v View) bool { refused = checkCluster(v, r.GetClusterUuid()); return true }); err != nil {
		return nil, unavailable(err)
	}
	if refused != nil {
		return nil, refused
	}
	return decided(ctx, s.core, s.fwd, Alter{r}, func(ctx context.Context, c *clients) (*pb.AlterPartitionResponse, error) {
		return c.broker.AlterPartition(ctx, r)
	})
}

func (s *brokerService) ControlledShutdown(ctx context.Context, r *pb.ControlledShutdownRequest) (*pb.ControlledShutdownResponse, error) {
	if err := checkCaller(r.GetBrokerId(), r.GetBrokerEpoch()); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.session(limited, r, func(View) error { return nil }, nil); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, ControlledShutdown{r}, func(ctx context.Context, c *clients) (*pb.ControlledShutdownResponse, error) {
		return c.broker.ControlledShutdown(ctx, r)
	})
}

// typed gives an answer of the core its type.
func typed[T any](resp any, err error) (T, error) {
	var none T
	if err != nil {
		return none, grpcError(err)
	}
	return resp.(T), nil
}

// unavailable is what a caller hears when the store or the daemon does not
// answer: it may try again, here or elsewhere.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	if errors.Is(err, store.ErrNoSpace) {
		return ErrorWithCode(codes.ResourceExhausted, cluster.ThrottlingQuotaExceeded, "etcd takes no writes: %v", err)
	}
	return status.Error(codes.Unavailable, err.Error())
}

// grpcError lets a gRPC status pass and makes one of anything else.
func grpcError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return unavailable(err)
}
