package statemachine

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// createTopic makes a topic at once.
func createTopic(im *cluster.Image, t Term, nt *pb.NewTopic, id cluster.TopicID, requestID string, seed uint64) (*pb.TopicRecord, []Write, *Rejection) {
	n, rej := BeginTopic(im, t, nt, id, requestID, seed)
	if rej != nil {
		return nil, nil, rej
	}
	return n.Record, n.Partitions(im, t, 0, n.Record.GetPartitionsMade()), nil
}

// TestCreateInSlices: however a topic is cut, its partitions are placed as if
// they were made at once.
func TestCreateInSlices(t *testing.T) {
	for brokers := range cluster.BrokerID(7) {
		w := newWorld(t)
		var given []*pb.ReplicaAssignment
		for id := range brokers + 3 {
			w.show(w.broker(id, fmt.Sprint("rack-", id%3), pb.BrokerState_BROKER_STATE_RUNNING))
		}
		for i := range int32(50) {
			given = append(given, &pb.ReplicaAssignment{Replicas: []int32{i % 3, (i + 1) % 3}})
		}
		for _, nt := range []*pb.NewTopic{
			{Name: "t", Partitions: 50, ReplicationFactor: 3},
			{Name: "t", Assignments: given},
		} {
			for seed := range uint64(20) {
				n, rej := BeginTopic(w.im, w.term, nt, topicID("t"), "", seed)
				if rej != nil {
					t.Fatal(rej)
				}
				want := n.Partitions(w.im, w.term, 0, 50)
				for size := int32(1); size < 50; size += 3 {
					var got []Write
					for from := int32(0); from < 50; from += size {
						got = append(got, n.Partitions(w.im, w.term, from, min(from+size, 50))...)
					}
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("%d brokers, seed %d: in slices of %d another placement", brokers+3, seed, size)
					}
				}
			}
		}
	}
}
