package broker

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Timings of a controlled shutdown, Kafka's (controlled.shutdown.retry.backoff.ms).
const (
	shutdownBackoff = 5 * time.Second
	shutdownCall    = 5 * time.Second // one attempt, which may be repeated
)

// shutDown hands the leaderships over, as far as others can take them, within the
// time that the configuration gives it. A broker that hosts nothing, or is killed
// meanwhile, has nothing to hand over.
func (b *Broker) shutDown() {
	if len(b.Partitions()) == 0 || b.cfg.ShutdownTimeout < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.ShutdownTimeout)
	defer cancel()
	rng := newRand()
	for n := 0; ; n++ {
		hello := b.hello()
		if hello.GetBrokerEpoch() == 0 {
			return
		}
		req := &pb.ControlledShutdownRequest{ClusterUuid: hello.GetClusterUuid(), BrokerId: hello.GetBrokerId(), BrokerEpoch: hello.GetBrokerEpoch()}
		var resp *pb.ControlledShutdownResponse
		err := b.pool.call(ctx, shutdownCall, func(ctx context.Context, c *grpc.ClientConn) (err error) {
			resp, err = pb.NewBrokerServiceClient(c).ControlledShutdown(ctx, req)
			return err
		})
		wait := shutdownBackoff
		switch {
		case err == nil && resp.GetRemaining() == 0:
			b.log.Info("leaderships are handed over")
			return
		case err == nil:
			b.log.Warn("nobody else can lead some partitions", "partitions", resp.GetRemaining())
		case !retriable(err):
			b.log.Warn("cannot hand leaderships over", "error", err)
			return
		default:
			wait = backoff(n, rng)
		}
		if end, _ := ctx.Deadline(); time.Until(end) < wait || pause(ctx, wait) != nil {
			b.log.Warn("leaves with leaderships that nobody has taken over")
			return
		}
	}
}
