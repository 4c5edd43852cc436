package broker

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// obedient does whatever it is told to, at once.
type obedient struct{}

func (obedient) ApplyPartition(context.Context, PartitionState) error { return nil }
func (obedient) StopReplica(context.Context, string, cluster.PartitionID, bool) error {
	return nil
}
func (obedient) AdoptISR(PartitionState)       {}
func (obedient) UpdateMetadata(MetadataUpdate) {}

// FuzzCommands has a broker receive any commands, each with its length before
// it: every one that is of a known kind is answered once, and every partition
// of one that was admitted gets a result.
func FuzzCommands(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte) {
		b := &Broker{
			cfg: Config{ID: 1, Handler: obedient{}, Observer: func(Observation) {}}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			gate: fencing.NewGate(1, testUUID), workers: workers{},
		}
		b.ctx, b.end = context.WithCancelCause(t.Context())
		if err := b.gate.Registered(testUUID, 10); err != nil {
			t.Fatal(err)
		}
		for r := bytes.NewReader(stream); ; {
			cmd := &pb.Command{}
			if protodelim.UnmarshalFrom(r, cmd) != nil {
				return
			}
			out := outbox{wake: func() {}}
			err := b.obey(cmd, &out)
			b.work.Wait()
			acks, results := 0, map[cluster.PartitionID]bool{}
			for _, m := range out.take() {
				if a := m.GetAck(); a != nil {
					acks++
				}
				for _, o := range m.GetResults().GetOutcomes() {
					if id, err := cluster.TopicIDFrom(o.GetTopicId()); err == nil {
						results[cluster.PartitionID{Topic: id, Index: o.GetPartition()}] = true
					}
				}
				if proto.Size(m) > 1<<20 {
					t.Fatalf("an answer of %d bytes", proto.Size(m))
				}
			}
			if (err == nil) != (acks == 1) || (err != nil) != (cmd.GetBody() == nil) {
				t.Fatalf("%d acks, error %v", acks, err)
			}
			if len(b.workers) != 0 || b.metadata.running {
				t.Fatalf("still at work: %v", b.workers)
			}
			for _, id := range b.gate.Replicas() {
				if s, _ := b.gate.Replica(id); cmd.GetLeaderAndIsr() != nil && names(cmd.GetLeaderAndIsr().GetTopics(), id) && !results[id] && acks == 1 && !refused(b, cmd) {
					t.Fatalf("no result for %+v", s)
				}
			}
		}
	})
}

// refused reports whether the gate would refuse the command now; what it holds
// already changes nothing about that.
func refused(b *Broker, cmd *pb.Command) bool {
	v := b.gate.Admit(&pb.Command{Stamp: cmd.GetStamp()})
	return v.Refused()
}

func names(topics []*pb.TopicStates, id cluster.PartitionID) bool {
	for _, t := range topics {
		if tid, err := cluster.TopicIDFrom(t.GetTopicId()); err != nil || tid != id.Topic {
			continue
		}
		for _, p := range t.GetPartitions() {
			if p.GetPartition() == id.Index {
				return true
			}
		}
	}
	return false
}

// FuzzAlterAnswers reads any answer of a daemon to proposals: each is decided
// or sent again, and none is lost.
func FuzzAlterAnswers(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		resp := &pb.AlterPartitionResponse{}
		if proto.Unmarshal(data, resp) != nil {
			return
		}
		changes := []IsrChange{grow(0), grow(1)}
		for i, r := range alterResults(changes, resp) {
			if r.Partition != changes[i].Partition {
				t.Fatalf("result %d is about %s", i, r.Partition)
			}
		}
		b := &Broker{cfg: Config{ID: 1, Handler: obedient{}}, gate: fencing.NewGate(1, testUUID), workers: workers{}}
		b.ctx, b.end = context.WithCancelCause(t.Context())
		b.proposals.proposeOne(0, 1, 1, 2)
		b.proposals.proposeOne(1, 1, 1, 2)
		batch, _ := b.proposals.take()
		all := b.decided(batch, alterAnswers(resp))
		again, answers := b.proposals.take()
		if len(again)+len(answers) != 2 || all != (len(again) == 0) {
			t.Fatalf("%d sent again, %d answered", len(again), len(answers))
		}
	})
}
