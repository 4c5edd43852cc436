package statemachine

import (
	"reflect"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestValidateNewTopicConfig(t *testing.T) {
	w := newWorld(t)
	w.up(1)
	for _, tt := range []struct {
		name   string
		config map[string]string
		want   cluster.Reason
	}{
		{"none", nil, ""},
		{"some", map[string]string{"retention.ms": "1000", "note": ""}, ""},
		{"no name", map[string]string{"": "x"}, cluster.InvalidConfig},
		{"name not UTF-8", map[string]string{"a\xff": "x"}, cluster.InvalidConfig},
		{"value not UTF-8", map[string]string{"a": "\xff"}, cluster.InvalidConfig},
		{"largest", map[string]string{"a": strings.Repeat("x", MaxConfigBytes-1)}, ""},
		{"too large", map[string]string{"a": strings.Repeat("x", MaxConfigBytes)}, cluster.InvalidConfig},
	} {
		nt := &pb.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 1, Config: tt.config}
		if got := reason(ValidateNewTopic(w.im, nt)); got != string(tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestBlockFits: the largest block that is let through can be stored.
func TestBlockFits(t *testing.T) {
	const most = 1 << 28 // ids and epochs of five bytes
	var replicas []cluster.BrokerID
	for i := range cluster.BrokerID(MaxBlockReplicas / MaxBlockSize) {
		replicas = append(replicas, most+i)
	}
	part := &cluster.Partition{
		Replicas: replicas, Adding: replicas, Removing: replicas, Target: replicas, ISR: replicas, Leader: most,
		LeaderEpoch: most, PartitionEpoch: most, ControllerEpoch: 1 << 62, ChangedMs: 1 << 62, Decided: 1 << 62,
		Recovery: pb.RecoveryState_RECOVERY_STATE_RECOVERING, Cause: pb.ChangeCause_CHANGE_CAUSE_CREATED,
	}
	parts := map[int32]*cluster.Partition{}
	for i := range int32(MaxBlockSize) {
		parts[most+i] = part
	}
	var block *cluster.Block
	if n := len(block.With(parts, nil).Encode()); n > 1<<20 {
		t.Errorf("a block may have %d bytes", n)
	}
}

func TestValidateNewTopicBlock(t *testing.T) {
	w := newWorld(t)
	for i := range cluster.BrokerID(33) {
		w.up(i)
	}
	for rf, want := range map[int32]cluster.Reason{32: "", 33: cluster.InvalidRequest} {
		nt := &pb.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: rf, BlockSize: MaxBlockSize}
		if got := reason(ValidateNewTopic(w.im, nt)); got != string(want) {
			t.Errorf("replication factor %d: %q, want %q", rf, got, want)
		}
	}
}

func TestUnreadableTopicKeepsItsName(t *testing.T) {
	w := newWorld(t)
	w.up(1)
	w.show(w.put(w.im.Keys.Topic("t"), []byte("garbage")))
	nt := &pb.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 1}
	if got := reason(ValidateNewTopic(w.im, nt)); got != string(cluster.TopicAlreadyExists) {
		t.Errorf("got %q", got)
	}
}

func TestCreateTopic(t *testing.T) {
	w := newWorld(t)
	w.up(1, 2, 3)
	w.drain(2)
	term := Term{Epoch: 4, NowMs: 99}
	nt := &pb.NewTopic{Name: "t", Partitions: 40, ReplicationFactor: 2, Config: map[string]string{"a": "b"}}
	record, writes, rej := createTopic(w.im, term, nt, topicID("t"), "request-1", 5)
	if rej != nil {
		t.Fatal(rej)
	}
	id := topicID("t")
	want := &pb.TopicRecord{
		TopicId: id[:], PartitionsWanted: 40, PartitionsMade: 40, ReplicationFactor: 2, BlockSize: 16,
		Config: map[string]string{"a": "b"}, RequestId: "request-1", CreatedMs: 99,
	}
	if !reflect.DeepEqual(record, want) {
		t.Errorf("record %v, want %v", record, want)
	}
	leads := map[cluster.BrokerID]int{}
	for i, x := range writes {
		p := x.New
		leads[p.Leader]++
		if x.Old != nil || x.ID != (cluster.PartitionID{Topic: id, Index: int32(i)}) {
			t.Fatalf("write %d is for %v", i, x.ID)
		}
		if err := CheckEdge(nil, &p); err != nil {
			t.Fatal(err)
		}
		if p.Leader != p.Replicas[0] || len(p.ISR) != 2 || p.ControllerEpoch != 4 || p.ChangedMs != 99 ||
			p.Decided != w.im.Rev || p.Cause != pb.ChangeCause_CHANGE_CAUSE_CREATED || recovering(&p) {
			t.Fatalf("partition %d: %+v", i, p)
		}
	}
	if leads[1] != 20 || leads[3] != 20 {
		t.Errorf("leaders by broker: %v, want 20 on 1 and on 3", leads)
	}
	_, again, _ := createTopic(w.im, term, nt, topicID("t"), "request-1", 5)
	if !reflect.DeepEqual(writes, again) {
		t.Error("the same seed gives another placement")
	}
	other := 0
	for seed := range uint64(20) {
		if _, parts, _ := createTopic(w.im, term, nt, topicID("t"), "", seed); !reflect.DeepEqual(parts, writes) {
			other++
		}
	}
	if other == 0 {
		t.Error("all seeds give the same placement")
	}
}
