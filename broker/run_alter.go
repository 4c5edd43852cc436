package broker

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// alterTimeout is how long one daemon may take to answer. The change may be
// queued behind others at the active one.
const alterTimeout = 5 * time.Second

// AlterPartition asks the controller to commit changes of the ISR of partitions
// that the broker leads, and returns one result for each, in order. ISRs that
// were committed are adopted as if a command had brought them.
//
// While no daemon answers, or none is active, it tries again until the context
// ends. An outcome may then be unknown; the same changes can be sent again,
// because they name the partition epoch that they were decided from. Errors:
// that of the context, ErrClosed, or a refusal of all changes at once, for
// which see ReasonOf; after STALE_BROKER_EPOCH the broker registers again at
// its next renewal.
func (b *Broker) AlterPartition(ctx context.Context, changes []IsrChange) ([]IsrResult, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.ctx, func() { cancel(ErrClosed) })()
	select {
	case <-b.registered:
	case <-ctx.Done():
		return nil, fmt.Errorf("alter partition: %w", context.Cause(ctx))
	}
	req := alterRequest(changes)
	resp, err := b.alter(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("alter partition: %w", err)
	}
	results := alterResults(changes, resp)
	b.adopt(results)
	return results, nil
}

func (b *Broker) alter(ctx context.Context, req *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
	c := course{rng: newRand()}
	for {
		resp, err := b.alterOnce(ctx, c.at, req)
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !retriable(err) && ReasonOf(err) != cluster.NotController:
			return nil, err
		}
		if pause(ctx, c.after(err)) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// alterOnce makes one attempt, as the incarnation that the broker is now.
func (b *Broker) alterOnce(ctx context.Context, at string, req *pb.AlterPartitionRequest) (resp *pb.AlterPartitionResponse, err error) {
	hello := b.hello()
	req.ClusterUuid, req.BrokerId, req.BrokerEpoch = hello.GetClusterUuid(), hello.GetBrokerId(), hello.GetBrokerEpoch()
	err = b.pool.callAt(ctx, at, alterTimeout, func(ctx context.Context, c *grpc.ClientConn) (err error) {
		resp, err = pb.NewBrokerServiceClient(c).AlterPartition(ctx, req)
		return err
	})
	return resp, err
}

// adopt takes in committed ISRs and tells the handler.
func (b *Broker) adopt(results []IsrResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adoptLocked(results)
}

func (b *Broker) adoptLocked(results []IsrResult) {
	for _, r := range results {
		if r.Reason != "" || r.State == nil {
			continue
		}
		s, ok := b.gate.Committed(r.Partition, r.State)
		if ok && b.ctx.Err() == nil && b.workers.adopt(s) {
			b.startWorker(r.Partition)
		}
	}
}
