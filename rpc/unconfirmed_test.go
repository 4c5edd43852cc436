package rpc

import (
	"fmt"
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// TestUnconfirmed: a replica counts from its change until its broker has
// applied it, whatever comes in between.
func TestUnconfirmed(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1), hostedBy(1))
	want := func(what string, replicas string, states int64) {
		t.Helper()
		resp, err := describeTopic(View{Image: h.im, Pusher: h.p, Active: true}, &pb.DescribeTopicRequest{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, u := range resp.GetUnconfirmed() {
			got += fmt.Sprintf("%d:%d ", u.GetBrokerId(), u.GetReplicas())
		}
		if got != replicas || !resp.GetFromActive() {
			t.Errorf("%s: %q, want %q", what, got, replicas)
		}
		n, known := h.p.Unconfirmed(h.im.Brokers[1])
		if !known {
			n = -1
		}
		if n != states {
			t.Errorf("%s: broker 1 has %d states to confirm, want %d", what, n, states)
		}
	}
	want("at rest", "", 0)
	h.change("a", 0, elect(1))
	want("not sent yet", "1:1 ", 1)
	h.step()
	want("sent", "1:1 ", 1)
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	want("failed", "1:1 ", 1)
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	want("applied", "", 0)
	h.change("a", 1, elect(1))
	h.step()
	h.result(1, "a", 1, 1, pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR)
	want("its storage has failed", "1:1 ", 1)
	h.closes(1, nil)
	want("no stream", "1:3 ", -1)
	if got := (View{Image: h.im}).unconfirmed(h.topics["a"], nil); got != nil {
		t.Errorf("a standby says %v", got)
	}
}
