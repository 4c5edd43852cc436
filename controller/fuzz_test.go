package controller

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// FuzzAlterPartition asks the active for any AlterPartition: it is answered, a
// refusal changes nothing, and what is committed can be read. The topic id of
// sixteen letters A stands for that of a topic, broker epoch 7 for that of the
// sender.
func FuzzAlterPartition(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.AlterPartitionRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		b := newBench(t, 3)
		b.created("a", 5, 2)
		topic := b.l.Image().Topics["a"].ID
		for _, x := range r.GetTopics() {
			if bytes.Equal(x.GetTopicId(), bytes.Repeat([]byte("A"), len(topic))) {
				x.TopicId = topic[:]
			}
		}
		if sender := b.l.Image().Brokers[cluster.BrokerID(r.GetBrokerId())]; sender != nil && r.GetBrokerEpoch() == 7 {
			r.BrokerEpoch = int64(sender.Epoch)
		}
		before := b.m.Rev()
		id := b.ask(rpc.Alter{AlterPartitionRequest: r})[0]
		b.run()
		a, changed := b.answerOf(id), 0
		resp, _ := a.Response.(*pb.AlterPartitionResponse)
		if a.Err != nil && rpc.ReasonOf(a.Err) == "" {
			t.Fatalf("refused without a reason: %v", a.Err)
		}
		asked, answered := 0, 0
		for _, x := range r.GetTopics() {
			asked += len(x.GetPartitions())
		}
		for _, x := range resp.GetTopics() {
			for _, p := range x.GetPartitions() {
				answered++
				if (p.GetError() == "") != (p.GetState() != nil) {
					t.Fatalf("result %v", p)
				}
				if p.GetError() == "" {
					changed++
				}
			}
		}
		if a.Err == nil && asked != answered {
			t.Fatalf("%d partitions asked, %d answered", asked, answered)
		}
		readable(t, b, before, changed == 0)
	})
}

// readable checks that the image has no faults and, if so it is to be, that
// nothing was written.
func readable(t *testing.T, b *bench, before store.Rev, unchanged bool) {
	t.Helper()
	if len(b.l.Image().Faults) != 0 {
		t.Fatalf("wrote what cannot be read: %v", b.l.Image().Faults)
	}
	if unchanged && b.m.Rev() != before {
		t.Fatalf("refused, and yet revision %d became %d", before, b.m.Rev())
	}
}

// FuzzCreateTopics asks the active for any topics: each has a result, and
// those that were created can be read.
func FuzzCreateTopics(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.CreateTopicsRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		partitions := 0
		for _, x := range r.GetTopics() {
			partitions += int(x.GetPartitions())
			if x.GetPartitions() > 10_000 || partitions > 10_000 {
				return // legal perhaps, but not quick
			}
		}
		b := newBench(t, 3)
		before := b.m.Rev()
		id := b.ask(rpc.CreateTopics{CreateTopicsRequest: r})[0]
		b.run()
		resp, created := b.answerOf(id).Response.(*pb.CreateTopicsResponse), 0
		if resp == nil || len(resp.GetResults()) != len(r.GetTopics()) {
			t.Fatalf("answered %v", b.answerOf(id))
		}
		for i, x := range resp.GetResults() {
			if x.GetName() != r.GetTopics()[i].GetName() {
				t.Fatalf("result %d is about %q", i, x.GetName())
			}
			topic := b.l.Image().Topics[x.GetName()]
			if x.GetError() != "" || r.GetValidateOnly() {
				continue
			}
			created++
			if topic == nil || topic.Made() != x.GetPartitions() || !bytes.Equal(topic.ID[:], x.GetTopicId()) {
				t.Fatalf("answered %v, made %+v", x, topic)
			}
		}
		if len(b.l.Image().Topics) != created {
			t.Fatalf("%d topics created, %d are there", created, len(b.l.Image().Topics))
		}
		readable(t, b, before, created == 0)
	})
}

// FuzzDeleteTopics asks the active to delete any topics: each has a result, one
// that is deleted is gone, and a refusal changes nothing. The topic id of
// sixteen letters A stands for that of a topic.
func FuzzDeleteTopics(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.DeleteTopicsRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		b := newBench(t, 3)
		b.created("a", 5, 2)
		b.created("b", 1, 1)
		topic := b.l.Image().Topics["a"].ID
		for _, x := range r.GetTopics() {
			if bytes.Equal(x.GetTopicId(), bytes.Repeat([]byte("A"), len(topic))) {
				x.TopicId = topic[:]
			}
		}
		before := b.m.Rev()
		id := b.ask(rpc.DeleteTopics{DeleteTopicsRequest: r})[0]
		b.run()
		resp, _ := b.answerOf(id).Response.(*pb.DeleteTopicsResponse)
		if resp == nil || len(resp.GetResults()) != len(r.GetTopics()) {
			t.Fatalf("answered %v", b.answerOf(id))
		}
		gone := map[string]bool{}
		for i, x := range resp.GetResults() {
			if asked := r.GetTopics()[i].GetName(); asked != "" && x.GetName() != asked {
				t.Fatalf("result %d is about %q", i, x.GetName())
			}
			if x.GetError() != "" {
				continue
			}
			gone[x.GetName()] = true
			if b.l.Image().Topics[x.GetName()] != nil {
				t.Fatalf("answered %v, it is there", x)
			}
		}
		if len(b.l.Image().Topics) != 2-len(gone) {
			t.Fatalf("%d topics deleted, %d are there", len(gone), len(b.l.Image().Topics))
		}
		readable(t, b, before, len(gone) == 0)
	})
}
