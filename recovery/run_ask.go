package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

const (
	// asked is how many brokers are asked at once, askTimeout how long one may
	// take in all, and silence how long it may say nothing.
	asked      = 16
	askTimeout = 5 * time.Minute
	silence    = 10 * time.Second
)

// addresses are where brokers can be asked: those that are named, and those
// that etcd knows, also of brokers without a session.
func addresses(im *cluster.Image, named []string) []string {
	all := slices.Clone(named)
	for _, id := range im.KnownBrokers() {
		if b := im.Brokers[id]; b != nil {
			all = append(all, b.Record.GetControlAddress())
		}
		if n := im.Nodes[id]; n != nil {
			all = append(all, n.Record.GetControlAddress())
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(a string) bool { return a == "" })
}

// ask asks all addresses, and puts together what the brokers there remember.
func ask(ctx context.Context, addresses []string, options []grpc.DialOption) *Memory {
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	m := &Memory{Reports: make([]Report, len(addresses))}
	var lock sync.Mutex
	learn := func(states []fencing.PartitionState) {
		lock.Lock()
		defer lock.Unlock()
		m.Learn(states)
	}
	var all sync.WaitGroup
	turns := make(chan struct{}, asked)
	for i, address := range addresses {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			m.Reports[i] = askOne(ctx, address, options, learn)
		})
	}
	all.Wait()
	return m
}

// askOne asks one broker. What it has said before it broke off counts too.
func askOne(ctx context.Context, address string, options []grpc.DialOption, learn func([]fencing.PartitionState)) Report {
	r := Report{Address: address, Broker: cluster.NoLeader}
	r.Err = func() error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		hush := time.AfterFunc(silence, cancel)
		defer hush.Stop()
		conn, err := grpc.NewClient(address, options...)
		if err != nil {
			return fmt.Errorf("ask %s: %w", address, err)
		}
		defer func() { _ = conn.Close() }()
		parts, err := pb.NewCommandServiceClient(conn).ReportState(ctx, &pb.ReportStateRequest{})
		if err != nil {
			return err
		}
		for n := 0; ; n++ {
			part, err := parts.Recv()
			switch {
			case n > 0 && errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case n == 0:
				id := part.GetIdentity()
				r.Broker, r.ClusterUUID, r.BrokerEpoch = cluster.BrokerID(id.GetBrokerId()), id.GetClusterUuid(), cluster.BrokerEpoch(id.GetBrokerEpoch())
				r.Epoch, r.Rev = cluster.Epoch(id.GetControllerEpoch()), store.Rev(part.GetRevision())
			}
			hush.Reset(silence)
			states := fencing.States(part.GetTopics())
			r.Partitions += len(states)
			learn(states)
		}
	}()
	return r
}
