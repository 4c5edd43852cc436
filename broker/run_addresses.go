package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// addresses are where the broker is reached.
type addresses struct {
	control   string
	endpoints []Endpoint
	probe     bool  // a refused connection to control is the broker's own
	version   int64 // rises with each change
}

// SetAddresses changes where the controller and everybody else reach the
// broker, in place: the session and the broker epoch stay. The control address,
// host:port, stays as it is if empty; it must lead to this broker's control
// listener. The controller then closes its stream to the old one, and tells all
// brokers of the new endpoints.
//
// It waits for the first registration, and returns when a daemon has written
// the addresses. If the context ends before, they may be written or not, and
// are with the next registration. Any other error: they are refused, or the
// broker has stopped, and the old ones stay.
func (b *Broker) SetAddresses(ctx context.Context, control string, endpoints []Endpoint) error {
	if err := checkAddresses(control, endpoints); err != nil {
		return err
	}
	select {
	case <-b.registered:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.done:
		return ErrClosed
	}
	old, now := b.changeAddresses(control, endpoints)
	req := b.registration(now)
	rng := newRand()
	for n := 0; ; n++ {
		err := b.pool.call(ctx, unregisterTimeout, func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := pb.NewBrokerServiceClient(c).Register(ctx, req)
			return err
		})
		switch {
		case err == nil:
			b.log.Info("addresses changed", "control", now.control)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !retriable(err):
			b.takeBack(old, now)
			return fmt.Errorf("change addresses: %w", err)
		}
		if err := pause(ctx, backoff(n, rng)); err != nil {
			return err
		}
	}
}

func checkAddresses(control string, endpoints []Endpoint) error {
	if control != "" {
		host, port, err := net.SplitHostPort(control)
		n, _ := strconv.ParseUint(port, 10, 16)
		if err != nil || host == "" || n == 0 || strings.ContainsAny(control, " \t\n/") {
			return fmt.Errorf("change addresses: control address %q is not host:port", control)
		}
	}
	var faults []error
	for i, e := range endpoints {
		if e.Listener == "" || e.Address == "" {
			faults = append(faults, fmt.Errorf("endpoint %d needs a listener and an address, has %q and %q", i, e.Listener, e.Address))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("change addresses: %w", errors.Join(faults...))
	}
	return nil
}

func (b *Broker) changeAddresses(control string, endpoints []Endpoint) (old, now addresses) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old = b.addresses
	b.addresses.endpoints = slices.Clone(endpoints)
	b.addresses.version++
	if control != "" && control != old.control {
		b.addresses.control, b.addresses.probe = control, false
	}
	return old, b.addresses
}

// takeBack makes the old addresses the newest, unless there are newer ones.
func (b *Broker) takeBack(old, refused addresses) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addresses.version == refused.version {
		old.version = refused.version + 1
		b.addresses = old
	}
}

// registration is a Register of the process, not its first.
func (b *Broker) registration(a addresses) *pb.RegisterRequest {
	hello := b.hello()
	req := &pb.RegisterRequest{
		ClusterUuid:     hello.GetClusterUuid(),
		BrokerId:        hello.GetBrokerId(),
		NodeUuid:        b.cfg.NodeUUID,
		Nonce:           b.nonce,
		ControlAddress:  a.control,
		Rack:            b.cfg.Rack,
		SessionTtlMs:    b.cfg.SessionTTL.Milliseconds(),
		DeathProbe:      a.probe,
		MetadataScope:   pb.MetadataScope_METADATA_SCOPE_ALL,
		ControllerEpoch: hello.GetControllerEpoch(),
		AddressVersion:  a.version,
	}
	for _, e := range a.endpoints {
		req.Endpoints = append(req.Endpoints, &pb.Endpoint{Listener: e.Listener, Address: e.Address})
	}
	return req
}

// addressed are the addresses of now.
func (b *Broker) addressed() addresses {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addresses
}

// ControlAddress is where the controller reaches the broker.
func (b *Broker) ControlAddress() string { return b.addressed().control }
