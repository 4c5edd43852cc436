package rpc

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestListTombstones(t *testing.T) {
	h := newHub(t)
	var ids []cluster.TopicID
	for i := range 7 {
		h.topic(fmt.Sprint("t", i), hostedBy(1, 2))
		ids = append(ids, h.bury(fmt.Sprint("t", i), map[cluster.BrokerID][]int32{2: {0}, 1: {0}}))
	}
	slices.SortFunc(ids, compareIDs)
	list := func(r *pb.ListTombstonesRequest) *pb.ListTombstonesResponse {
		t.Helper()
		resp, err := listTombstones(h.im, r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for _, size := range []int32{0, 1, 3, 6, 7, 8} {
		var got []cluster.TopicID
		for r := (&pb.ListTombstonesRequest{PageSize: size}); ; {
			page := list(r)
			if n := len(page.GetTombstones()); size > 0 && n > int(size) {
				t.Errorf("a page of %d, asked for %d", n, size)
			}
			for _, s := range page.GetTombstones() {
				got = append(got, cluster.TopicID(s.GetTopicId()))
			}
			if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("pages of %d: %v, want %v", size, got, ids)
		}
	}
	some := list(&pb.ListTombstonesRequest{TopicIds: [][]byte{ids[5][:], ids[2][:], ids[5][:], make([]byte, 16)}})
	if n := len(some.GetTombstones()); n != 2 {
		t.Fatalf("%d of two topics, one of them named twice, and one that is none", n)
	}
	ts := h.im.Tombstones[ids[2]].Record
	want := &pb.TombstoneSummary{TopicId: ids[2][:], Topic: ts.GetTopic(), Partitions: 1, Brokers: []int32{1, 2}}
	if got := some.GetTombstones()[0]; !proto.Equal(got, want) || some.GetRevision() != int64(h.im.Rev) {
		t.Errorf("%v, want %v", got, want)
	}
}
