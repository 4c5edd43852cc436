package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	// unregisterTimeout bounds how long a broker that stops says good-bye.
	unregisterTimeout = 2 * time.Second
	// refreshEvery is how old the list of daemons may get.
	refreshEvery = time.Minute
)

// session is what the goroutine that keeps it knows.
type session struct {
	*Broker
	rng       *rand.Rand
	phase     phase
	ttl       time.Duration
	lease     int64
	refreshed time.Time // the list of daemons
}

// keepSession registers and renews until the context ends, then it returns
// nil, or until the broker cannot go on.
func (b *Broker) keepSession(ctx context.Context) error {
	s := &session{Broker: b, rng: newRand(), ttl: b.cfg.SessionTTL}
	for ctx.Err() == nil {
		if a, err := s.insist(ctx, s.register); a != goOn {
			return err
		}
		s.phase = renewing
		s.refreshed = time.Time{}
		for s.phase == renewing {
			s.refresh(ctx)
			if pause(ctx, s.ttl/4) != nil {
				return nil
			}
			switch a, err := s.insist(ctx, s.renew); a {
			case goOn:
			case reregister:
				s.lostSession(true)
				s.log.Warn("session is gone, registering again")
				s.phase = rejoining
			default:
				return err
			}
		}
	}
	return nil
}

// insist makes a call at one daemon after the other until its outcome says to
// do something else, or the context ends. The error is set only for giveUp.
func (s *session) insist(ctx context.Context, call func(context.Context) error) (advice, error) {
	for n := 0; ; n++ {
		err := s.healthy(ctx)
		if err == nil {
			err = call(ctx)
		}
		if ctx.Err() != nil {
			return tryAgain, nil
		}
		if a, fatal := judge(err, s.phase); a != tryAgain {
			return a, fatal
		}
		s.lostSession(false)
		s.log.Warn("cannot "+s.phase.String()+", trying again", "attempt", n+1, "error", err)
		if pause(ctx, backoff(n, s.rng)) != nil {
			return tryAgain, nil
		}
	}
}

// renewTimeout leaves time for other daemons before the session expires.
func (s *session) renewTimeout() time.Duration {
	return min(max(s.ttl/4, 500*time.Millisecond), 3*time.Second)
}

// registerTimeout is longer: the daemon makes a lease, writes, and waits until
// it sees what it wrote.
func (s *session) registerTimeout() time.Duration {
	return min(max(s.ttl/2, 2*time.Second), 5*time.Second)
}

// healthy asks the owner of the broker. As long as there is no answer there is
// no renewal.
func (s *session) healthy(ctx context.Context) error {
	if s.cfg.Healthy == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.renewTimeout())
	defer cancel()
	if err := s.cfg.Healthy(ctx); err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	return nil
}

func (s *session) register(ctx context.Context) error {
	req := s.registration(s.addressed())
	req.First = s.phase == joining
	var resp *pb.RegisterResponse
	err := s.pool.call(ctx, s.registerTimeout(), func(ctx context.Context, c *grpc.ClientConn) (err error) {
		resp, err = pb.NewBrokerServiceClient(c).Register(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	return s.joined(resp)
}

// joined begins a new incarnation, unless the daemon belongs to another
// cluster.
func (s *session) joined(resp *pb.RegisterResponse) error {
	s.mu.Lock()
	err := s.gate.Registered(resp.GetClusterUuid(), cluster.BrokerEpoch(resp.GetBrokerEpoch()))
	if err == nil {
		s.gate.Adopt(cluster.Epoch(resp.GetControllerEpoch()))
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.lease = resp.GetLease()
	if ms := resp.GetSessionTtlMs(); ms > 0 {
		s.ttl = time.Duration(ms) * time.Millisecond
	}
	s.renewedSession(s.ttl, true)
	s.log.Info("registered", "cluster", resp.GetClusterUuid(), "broker_epoch", resp.GetBrokerEpoch(),
		"controller_epoch", resp.GetControllerEpoch(), "session_ttl", s.ttl)
	if s.phase == joining {
		close(s.registered)
	}
	return nil
}

func (s *session) renew(ctx context.Context) error {
	hello := s.hello()
	req := &pb.RenewSessionRequest{
		ClusterUuid:     hello.GetClusterUuid(),
		BrokerId:        hello.GetBrokerId(),
		BrokerEpoch:     hello.GetBrokerEpoch(),
		Lease:           s.lease,
		Nonce:           s.nonce,
		ControllerEpoch: hello.GetControllerEpoch(),
	}
	return s.pool.call(ctx, s.renewTimeout(), func(ctx context.Context, c *grpc.ClientConn) error {
		resp, err := pb.NewBrokerServiceClient(c).RenewSession(ctx, req)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.gate.Adopt(cluster.Epoch(resp.GetControllerEpoch()))
		s.mu.Unlock()
		s.renewedSession(s.ttl, false)
		return nil
	})
}

// refresh asks for the daemons that there are, if it is time to. The list that
// the broker has is good enough if nobody answers.
func (s *session) refresh(ctx context.Context) {
	if time.Since(s.refreshed) < refreshEvery {
		return
	}
	s.refreshed = time.Now()
	var endpoints []string
	err := s.pool.call(ctx, s.renewTimeout(), func(ctx context.Context, c *grpc.ClientConn) error {
		resp, err := pb.NewAdminServiceClient(c).ListControllers(ctx, &pb.ListControllersRequest{})
		for _, d := range resp.GetControllers() {
			endpoints = append(endpoints, d.GetEndpoint())
		}
		return err
	})
	if err != nil {
		s.log.Debug("cannot list controllers", "error", err)
		return
	}
	s.pool.learn(endpoints)
}

// unregister ends the session in order. If nobody answers in time it expires.
func (b *Broker) unregister() {
	hello := b.hello()
	if hello.GetBrokerEpoch() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), unregisterTimeout)
	defer cancel()
	req := &pb.UnregisterRequest{
		ClusterUuid: hello.GetClusterUuid(),
		BrokerId:    hello.GetBrokerId(),
		BrokerEpoch: hello.GetBrokerEpoch(),
		Nonce:       b.nonce,
	}
	rng := newRand()
	for n := 0; ; n++ {
		err := b.pool.call(ctx, unregisterTimeout, func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := pb.NewBrokerServiceClient(c).Unregister(ctx, req)
			return err
		})
		if err == nil || ReasonOf(err) == cluster.StaleBrokerEpoch {
			b.log.Info("unregistered")
			return
		}
		if !retriable(err) || pause(ctx, backoff(n, rng)) != nil {
			b.log.Warn("cannot unregister, the session will expire", "error", err)
			return
		}
	}
}

// hello is who the broker is and what it knows.
func (b *Broker) hello() *pb.Hello {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Identity()
}
