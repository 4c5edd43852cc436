package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// alterer is a leader that always has one AlterPartition outstanding: it takes
// a follower out of the ISR and puts it in again.
type alterer struct {
	w       *world
	request *pb.AlterPartitionRequest
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	waited cluster.Epoch
	tell   chan outcome
}

// startAlter begins for the first partition.
func (w *world) startAlter(ctx context.Context) (*alterer, error) {
	a := &alterer{w: w}
	w.look(func(im *cluster.Image) { a.request = firstRequest(im) })
	if a.request == nil {
		return nil, errors.New("no partition to alter")
	}
	ctx, a.end = context.WithCancel(ctx)
	a.running.Go(func() { a.run(ctx) })
	return a, nil
}

func firstRequest(im *cluster.Image) *pb.AlterPartitionRequest {
	topics := im.SortedTopics()
	if len(topics) == 0 {
		return nil
	}
	return requestFor(im, cluster.PartitionID{Topic: topics[0].ID})
}

// requestFor asks for another ISR of a partition, in the name of its leader;
// nil: it has none.
func requestFor(im *cluster.Image, id cluster.PartitionID) *pb.AlterPartitionRequest {
	p := im.Partition(id)
	if p == nil || im.Brokers[p.Leader] == nil {
		return nil
	}
	return &pb.AlterPartitionRequest{
		ClusterUuid: im.Cluster.GetUuid(), BrokerId: int32(p.Leader), BrokerEpoch: int64(im.Brokers[p.Leader].Epoch),
		Topics: []*pb.AlterPartitionTopic{{TopicId: id.Topic[:], Partitions: []*pb.AlterPartitionEntry{nextEntry(p.Record(id.Index))}}},
	}
}

// nextEntry asks for another ISR than the partition has.
func nextEntry(p *pb.PartitionRecord) *pb.AlterPartitionEntry {
	e := &pb.AlterPartitionEntry{
		Partition: p.GetPartition(), LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch(), Recovery: p.GetRecovery(),
	}
	isr := p.GetReplicas()
	if len(p.GetIsr()) == len(p.GetReplicas()) {
		isr = []int32{p.GetLeader()}
	}
	for _, id := range isr {
		e.NewIsr = append(e.NewIsr, &pb.IsrMember{BrokerId: id, BrokerEpoch: -1})
	}
	return e
}

// stop may be called more than once.
func (a *alterer) stop() {
	a.end()
	a.running.Wait()
}

// under tells when the first change is committed under that epoch.
func (a *alterer) under(e cluster.Epoch) <-chan outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waited, a.tell = e, make(chan outcome, 1)
	return a.tell
}

func (a *alterer) run(ctx context.Context) {
	var daemons []*grpc.ClientConn
	for _, c := range a.w.conns {
		daemons = append(daemons, c)
	}
	for n := 0; ctx.Err() == nil; {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		resp, err := pb.NewBrokerServiceClient(daemons[n%len(daemons)]).AlterPartition(call, a.request)
		cancel()
		if err != nil { // the next daemon may know better
			n++
			_ = pause(ctx, 500*time.Microsecond)
			continue
		}
		a.answered(resp.GetTopics()[0].GetPartitions()[0])
	}
}

// answered decides the next request. After a refusal, which follows an unknown
// outcome, that is from what etcd holds.
func (a *alterer) answered(r *pb.AlterPartitionResult) {
	now := time.Now()
	if r.GetError() != "" {
		a.w.look(func(im *cluster.Image) { a.request = firstRequest(im) })
		return
	}
	s := r.GetState()
	a.request.Topics[0].Partitions[0] = nextEntry(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tell != nil && cluster.Epoch(s.GetControllerEpoch()) == a.waited {
		a.tell <- outcome{at: now}
		a.tell = nil
	}
}
