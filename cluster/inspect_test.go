package cluster

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// TestUselessAndUnreadable: what nobody would read, and what would be read and
// do nothing.
func TestUselessAndUnreadable(t *testing.T) {
	k := testKeys
	topic := store.KV{Key: k.Topic("t"), Value: Encode(topicRecord(4, 2)), ModRev: 5}
	block := func(i int32) string { return k.Block(BlockID{topicID1, i}) }
	for _, tt := range []struct {
		key        string
		record     proto.Message
		lease      store.LeaseID
		unreadable string
		useless    string
	}{
		{key: k.Topic("t"), record: topicRecord(4, 2)},
		{key: k.Topic("u"), record: topicRecord(4, 2), unreadable: `belongs to topic "t"`},
		{key: k.Topic("t"), record: topicRecord(4, 0), unreadable: "block size 0"},
		{key: k.Topic("t"), record: &pb.TopicRecord{TopicId: topicID1[:], PartitionsWanted: 2, PartitionsMade: 3, ReplicationFactor: 1, BlockSize: 2}, useless: "2 partitions wanted, 3 made"},
		{key: k.Topic("t"), record: topicRecord(4, 4), useless: "the block size of the topic is 2"},
		{key: k.Topic("t"), record: &pb.TopicRecord{TopicId: []byte("another topic id"), PartitionsWanted: 4, PartitionsMade: 4, ReplicationFactor: 1, BlockSize: 2}, useless: "the id of the topic is"},
		{key: k.Topic("t"), record: topicRecord(5, 2), useless: "4 partitions are made"},
		{key: k.Topic("t"), record: topicRecord(3, 2), useless: "4 partitions are made"},
		{key: k.Node(1), record: &pb.NodeRecord{}, unreadable: "empty value"},
		{key: k.Prefix() + "x", record: &pb.NodeRecord{}, unreadable: "unknown key", useless: "unknown key"},
		{key: block(1), record: blockOf(2, 3)},
		{key: block(0), record: blockOf(1, 2), useless: `partition 2 of topic "t" belongs into block 1`},
		{key: k.Block(BlockID{TopicID{9}, 0}), record: blockOf(0), useless: "no topic has the id"},
		{key: block(0), record: &pb.PartitionBlock{}, unreadable: "no records"},
		{key: k.Broker(1), record: &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"}, useless: "without a lease"},
		{key: k.Broker(1), record: &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"}, lease: 7},
		{key: k.Controller(), record: &pb.ControllerRecord{Id: "c"}, useless: "without a lease"},
		{key: k.Candidate(7), record: &pb.CandidateRecord{Id: "c"}, useless: "without a lease"},
		{key: k.Term(3), record: &pb.TermRecord{Epoch: 4}, useless: "is that of epoch 3, the record names 4"},
		{key: k.Term(3), record: &pb.TermRecord{Epoch: 3}},
	} {
		kv := store.KV{Key: tt.key, Value: Encode(tt.record), CreateRev: 1, ModRev: 6, Lease: tt.lease}
		for what, err := range map[string]error{"unreadable": k.Unreadable(kv, []store.KV{topic}), "useless": k.Useless(kv, []store.KV{topic})} {
			want := tt.useless
			if what == "unreadable" {
				want = tt.unreadable
			}
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v is %s: %v, want %q", tt.key, tt.record, what, err, want)
			}
		}
	}
}

// TestManyReplicas: a record with as many replicas as fit into a value holds
// nobody up: compared each with each they would take minutes.
func TestManyReplicas(t *testing.T) {
	const n = 300_000
	r := &pb.PartitionRecord{}
	for i := range int32(n) {
		r.Replicas, r.Isr = append(r.Replicas, i), append(r.Isr, n-1-i)
	}
	read := func() error {
		return testKeys.Unreadable(store.KV{Key: testKeys.Block(BlockID{topicID1, 0}), Value: Encode(&pb.PartitionBlock{Partitions: []*pb.PartitionRecord{r}}), ModRev: 1}, nil)
	}
	if err := read(); err != nil {
		t.Error(err)
	}
	r.Isr[0] = n
	if err := read(); err == nil || !strings.Contains(err.Error(), "is not within the replicas") {
		t.Errorf("%.100v", err)
	}
	r.Replicas[7] = 8
	if err := read(); err == nil || !strings.Contains(err.Error(), "name a broker twice") {
		t.Errorf("%.100v", err)
	}
}
