package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// grow is the change that lets broker 2 into the ISR of a partition.
func grow(index int32) IsrChange {
	return IsrChange{
		Partition: pid(index), LeaderEpoch: 1, PartitionEpoch: 1,
		NewISR: []IsrMember{{Broker: 1, Epoch: 10}, {Broker: 2}},
	}
}

// committed answers each change as an active controller would that likes it.
func committed(r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
	resp := &pb.AlterPartitionResponse{}
	for _, t := range r.GetTopics() {
		out := &pb.AlterPartitionTopicResult{TopicId: t.GetTopicId()}
		for _, p := range t.GetPartitions() {
			record := &pb.PartitionRecord{Partition: p.GetPartition(), Leader: 1, LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch() + 1, Replicas: []int32{1, 2, 3}}
			for _, m := range p.GetNewIsr() {
				record.Isr = append(record.Isr, m.GetBrokerId())
			}
			out.Partitions = append(out.Partitions, &pb.AlterPartitionResult{Partition: p.GetPartition(), State: record})
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func TestAlterPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		h := applies()
		b := n.start(t.Context(), h, nil, "d1")
		<-b.Registered()
		c := n.controller("c1", 5)
		c.leaderAndIsr(partition(0, 1, 1))
		c.expect(1, 1, applied)
		d.set(func() {
			d.alter = func(r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
				resp, err := committed(r)
				last := resp.Topics[0].Partitions[1]
				last.Error, last.Message, last.State = string(cluster.InvalidUpdateVersion), "partition epoch is 9", nil
				return resp, err
			}
		})
		results, err := b.AlterPartition(t.Context(), []IsrChange{grow(0), grow(1)})
		if err != nil || len(results) != 2 {
			t.Fatalf("results %v, error %v", results, err)
		}
		if r := results[0]; r.Partition != pid(0) || r.Reason != "" || r.State.GetPartitionEpoch() != 2 {
			t.Errorf("first result %+v", r)
		}
		if r := results[1]; r.Partition != pid(1) || r.Reason != cluster.InvalidUpdateVersion || r.Message == "" || r.State != nil {
			t.Errorf("second result %+v", r)
		}
		req := d.alters[0]
		if m := req.Topics[0].Partitions[0].GetNewIsr(); len(req.Topics) != 1 || req.GetBrokerEpoch() != 10 || req.GetClusterUuid() != testUUID || m[0].GetBrokerEpoch() != 10 || m[1].GetBrokerEpoch() != -1 {
			t.Errorf("request %v", req)
		}
		if s := <-h.adopted; s.PartitionEpoch != 2 || len(s.ISR) != 2 {
			t.Errorf("adopted %+v", s)
		}
		if s, _ := b.Partition(pid(0)); s.PartitionEpoch != 2 || s.Topic != "a" {
			t.Errorf("holds %+v", s)
		}
		c.leaderAndIsr(partition(0, 1, 2, 2)) // the command that tells the same
		c.expect(1, 2, already)
		synctest.Wait()
		if len(h.adopted) != 0 {
			t.Error("the same ISR was adopted twice")
		}
	})
}

func TestAlterPartitionRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d1, d2 := n.daemon("d1"), n.daemon("d2")
		b := n.start(t.Context(), applies(), nil, "d1", "d2", "nobody")
		<-b.Registered()
		for _, d := range []*daemon{d1, d2} {
			d.set(func() { d.err = reasoned(cluster.NotController) })
		}
		time.AfterFunc(20*time.Second, func() { d1.set(func() { d1.err = status.Error(codes.Unavailable, "starting") }) })
		time.AfterFunc(time.Minute, func() { d2.set(func() { d2.err, d2.alter = nil, committed }) })
		began := time.Now()
		results, err := b.AlterPartition(t.Context(), []IsrChange{grow(0)})
		if err != nil || results[0].Reason != "" {
			t.Fatalf("results %v, error %v", results, err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+10*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

func TestAlterPartitionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		d.set(func() { d.err = status.Error(codes.Unavailable, "starting") })
		b := n.start(t.Context(), applies(), nil, "d1")

		if results, err := b.AlterPartition(t.Context(), nil); err != nil || results != nil {
			t.Errorf("no changes: %v, %v", results, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := b.AlterPartition(ctx, []IsrChange{grow(0)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not registered: %v", err)
		}
		cancel()
		d.set(func() { d.err = nil })
		<-b.Registered()

		results, err := b.AlterPartition(t.Context(), []IsrChange{grow(0)}) // an answer without it
		if err != nil || results[0].Reason != cluster.OperationNotAttempted {
			t.Errorf("not mentioned: %v, %v", results, err)
		}
		for _, reason := range []cluster.Reason{cluster.StaleBrokerEpoch, cluster.InvalidRequest} {
			d.set(func() {
				d.alter = func(*pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) { return nil, reasoned(reason) }
			})
			if _, err := b.AlterPartition(t.Context(), []IsrChange{grow(0)}); ReasonOf(err) != reason {
				t.Errorf("%s: %v", reason, err)
			}
		}
		d.set(func() { d.hang = true })
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		if _, err := b.AlterPartition(ctx, []IsrChange{grow(0)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no answer: %v", err)
		}
		cancel()
		time.AfterFunc(time.Second, b.Kill)
		if _, err := b.AlterPartition(t.Context(), []IsrChange{grow(0)}); !errors.Is(err, ErrClosed) {
			t.Errorf("killed meanwhile: %v", err)
		}
		if _, err := b.AlterPartition(t.Context(), []IsrChange{grow(0)}); !errors.Is(err, ErrClosed) {
			t.Errorf("killed before: %v", err)
		}
	})
}
