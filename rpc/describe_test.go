package rpc

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

func isrOf(isr ...cluster.BrokerID) func(*cluster.Partition) {
	return func(p *cluster.Partition) { p.ISR, p.Leader = isr, isr[0] }
}

func offline(p *cluster.Partition) { p.Leader = cluster.NoLeader }

func TestListTopicsPages(t *testing.T) {
	h := newHub(t)
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("t%02d", i))
		h.topic(names[i], hostedBy(1))
	}
	for _, size := range []int32{0, 1, 5, 7, 24, 25, 26, maxPage} {
		var got []string
		token := ""
		for range 30 {
			resp, err := listTopics(h.im, &pb.ListTopicsRequest{PageSize: size, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetRevision() != int64(h.im.Rev) {
				t.Errorf("revision %d", resp.GetRevision())
			}
			if n := len(resp.GetTopics()); size > 0 && n > int(size) || n == 0 {
				t.Errorf("a page of %d topics, asked for %d", n, size)
			}
			for _, topic := range resp.GetTopics() {
				got = append(got, topic.GetName())
			}
			if token = resp.GetNextPageToken(); token == "" {
				break
			}
		}
		if !slices.Equal(got, names) {
			t.Errorf("pages of %d: %v", size, got)
		}
	}
	first, _ := listTopics(h.im, &pb.ListTopicsRequest{PageSize: 5})
	h.write(store.Delete(keys.Topic("t04")), store.Delete(keys.Topic("t05"))) // the last one seen, and the next
	second, err := listTopics(h.im, &pb.ListTopicsRequest{PageSize: 1, PageToken: first.GetNextPageToken()})
	if err != nil || second.GetTopics()[0].GetName() != "t06" {
		t.Errorf("goes on with %v %v", second, err)
	}
	for _, r := range []*pb.ListTopicsRequest{{PageSize: -1}, {PageSize: maxPage + 1}, {PageToken: "zz"}, {PageToken: "abc"}} {
		_, err := listTopics(h.im, r)
		wantsReason(t, err, cluster.InvalidRequest)
	}
}

func TestDescribeTopic(t *testing.T) {
	h := newHub(t)
	h.topic("a", hostedBy(1, 2), hostedBy(1, 2), hostedBy(1, 2), hostedBy(1, 2), hostedBy(1, 2))
	h.change("a", 0, isrOf(2))
	h.change("a", 1, offline)
	id := h.topics["a"]
	h.write(store.Put(keys.Block(cluster.BlockID{Topic: id, Index: 2}), []byte{0xff}))
	h.write(store.Delete(keys.Block(cluster.BlockID{Topic: id, Index: 3})))
	summary := &pb.TopicSummary{Name: "a", TopicId: id[:], Partitions: 5, Offline: 1, UnderReplicated: 1, Unknown: 2}
	cases := []struct {
		from, size int32
		parts      []int32
		unknown    []int32
		next       int32
	}{
		{0, 0, []int32{0, 1, 4}, []int32{2, 3}, -1},
		{0, 2, []int32{0, 1}, nil, 2},
		{2, 2, nil, []int32{2, 3}, 4},
		{4, 2, []int32{4}, nil, -1},
		{3, 2, []int32{4}, []int32{3}, -1},
		{5, 2, nil, nil, -1},
		{1<<31 - 1, maxPage, nil, nil, -1},
	}
	for _, c := range cases {
		resp, err := describeTopic(View{Image: h.im, Pusher: h.p}, &pb.DescribeTopicRequest{Name: "a", FromPartition: c.from, PageSize: c.size})
		if err != nil {
			t.Fatal(err)
		}
		var parts []int32
		for _, p := range resp.GetPartitions() {
			parts = append(parts, p.GetPartition())
		}
		if !slices.Equal(parts, c.parts) || !slices.Equal(resp.GetUnknown(), c.unknown) || resp.GetNextPartition() != c.next {
			t.Errorf("%d from %d: %v, unknown %v, next %d; want %+v", c.size, c.from, parts, resp.GetUnknown(), resp.GetNextPartition(), c)
		}
		if !proto.Equal(resp.GetTopic(), summary) {
			t.Errorf("from %d: topic %v, want %v", c.from, resp.GetTopic(), summary)
		}
	}
	for _, c := range []struct {
		r    *pb.DescribeTopicRequest
		want cluster.Reason
	}{
		{&pb.DescribeTopicRequest{Name: "b"}, cluster.UnknownTopicOrPartition},
		{&pb.DescribeTopicRequest{Name: "a", FromPartition: -1}, cluster.InvalidRequest},
		{&pb.DescribeTopicRequest{Name: "a", PageSize: -1}, cluster.InvalidRequest},
		{&pb.DescribeTopicRequest{Name: "a", PageSize: maxPage + 1}, cluster.InvalidRequest},
	} {
		_, err := describeTopic(View{Image: h.im, Pusher: h.p}, c.r)
		wantsReason(t, err, c.want)
	}
}

// Brokers are listed in order, those of which only the node is known too.
func TestListBrokers(t *testing.T) {
	h := newHub(t)
	for _, id := range []cluster.BrokerID{10, 2} {
		h.broker(id, func(r *pb.BrokerRecord) { r.NodeUuid, r.Rack = fmt.Sprint("n", id), "r" })
		h.write(store.Put(keys.Node(id), cluster.Encode(&pb.NodeRecord{NodeUuid: fmt.Sprint("n", id)})))
	}
	h.write(store.Put(keys.Node(7), cluster.Encode(&pb.NodeRecord{NodeUuid: "n7"})))
	h.topic("a", hostedBy(2, 10), hostedBy(10, 2), hostedBy(2, 7))
	h.change("a", 2, offline)
	type row struct {
		id       int32
		node     string
		live     bool
		replicas int32
		leaders  int32
	}
	var got []row
	for _, b := range listBrokers(View{Image: h.im, Pusher: h.p}).GetBrokers() {
		got = append(got, row{b.GetId(), b.GetNodeUuid(), b.GetLive(), b.GetReplicas(), b.GetLeaders()})
		if live := h.im.Brokers[cluster.BrokerID(b.GetId())]; live != nil && (b.GetBrokerEpoch() != int64(live.Epoch) || b.GetRack() != "r" || b.GetControlAddress() == "") {
			t.Errorf("broker %v", b)
		}
	}
	if want := []row{{2, "n2", true, 3, 1}, {7, "n7", false, 1, 0}, {10, "n10", true, 2, 1}}; !slices.Equal(got, want) {
		t.Errorf("brokers %v, want %v", got, want)
	}
}

// A standby says what the image shows; the active also what it knows of its
// streams.
func TestListBrokersContacts(t *testing.T) {
	h := newHub(t)
	h.broker(1, func(r *pb.BrokerRecord) { r.Unreachable, r.RegisteredMs = true, 42 })
	h.broker(2)
	v := View{Image: h.im}
	for _, active := range []bool{false, true} {
		if v.Active = active; active {
			v.Contacts = func() map[cluster.BrokerID]Contact {
				return map[cluster.BrokerID]Contact{1: {Problem: "p"}, 2: {ResumePoint: 7}}
			}
		}
		resp := listBrokers(v)
		one, two := resp.GetBrokers()[0], resp.GetBrokers()[1]
		if !one.GetUnreachable() || one.GetRegisteredMs() != 42 || two.GetUnreachable() || resp.GetFromActive() != active {
			t.Errorf("active %v: %v", active, resp)
		}
		if one.ResumePoint != nil || (one.GetProblem() == "p") != active || (two.GetResumePoint() == 7) != active || (two.ResumePoint != nil) != active {
			t.Errorf("active %v: %v", active, resp)
		}
	}
	v.Problems = func() []string { return nil }
	if got := describeController(v).GetUnreachableBrokers(); !slices.Equal(got, []int32{1}) {
		t.Errorf("unreachable %v", got)
	}
}

func TestDescribeController(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1, 2), hostedBy(1))
	h.topic("b", hostedBy(1), hostedBy(1))
	h.change("a", 0, isrOf(1))
	h.change("a", 1, offline)
	h.write(store.Delete(keys.Block(cluster.BlockID{Topic: h.topics["b"], Index: 1})))
	h.write(
		store.Put(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "c2", Endpoint: "c2:1"})),
		store.Put(keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: 8})),
	)
	want := &pb.DescribeControllerResponse{
		Id: "c1", Role: "standby", Version: "v", ClusterUuid: "u", ControllerId: "c2", ControllerEndpoint: "c2:1", Epoch: 8, Revision: int64(h.im.Rev),
		Brokers: 1, Topics: 2, Partitions: 4, OfflinePartitions: 1, UnderReplicatedPartitions: 1, UnknownPartitions: 1, Problems: []string{"p"},
	}
	v := View{Image: h.im, Self: "c1", Version: "v", Problems: func() []string { return []string{"p"} }}
	if got := describeController(v); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	v.Active = true
	if got := describeController(v); got.GetRole() != "active" {
		t.Errorf("role %q", got.GetRole())
	}
}

// Daemons are told apart by nonce. The active one is listed even without a
// candidate key.
func TestListControllers(t *testing.T) {
	h := newHub(t)
	list := func() (got []string) {
		for _, c := range listControllers(h.im).GetControllers() {
			got = append(got, fmt.Sprintf("%s/%s %v", c.GetId(), c.GetNonce(), c.GetActive()))
		}
		return got
	}
	if got := list(); len(got) != 0 {
		t.Errorf("nobody: %q", got)
	}
	for i, c := range []*pb.CandidateRecord{{Id: "b", Nonce: "3"}, {Id: "a", Nonce: "2"}, {Id: "a", Nonce: "1"}} {
		h.write(store.Put(keys.Candidate(store.LeaseID(i+1)), cluster.Encode(c)))
	}
	h.write(store.Put(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "a", Nonce: "2"})))
	if got := list(); !slices.Equal(got, []string{"a/1 false", "a/2 true", "b/3 false"}) {
		t.Errorf("three candidates: %q", got)
	}
	h.write(store.Delete(keys.Candidate(2)))
	if got := list(); !slices.Equal(got, []string{"a/1 false", "a/2 true", "b/3 false"}) {
		t.Errorf("the active has no candidate key: %q", got)
	}
}

func TestListTerms(t *testing.T) {
	h := newHub(t)
	for e := cluster.Epoch(1); e <= 30; e++ {
		h.write(store.Put(keys.Term(e), cluster.Encode(&pb.TermRecord{Epoch: int64(e)})))
	}
	for _, c := range []struct {
		limit int32
		last  int64
	}{{0, 11}, {1, 30}, {5, 26}, {30, 1}, {1000, 1}} {
		resp, err := listTerms(h.im, &pb.ListTermsRequest{Limit: c.limit})
		if err != nil {
			t.Fatal(err)
		}
		terms := resp.GetTerms()
		if terms[0].GetEpoch() != 30 || terms[len(terms)-1].GetEpoch() != c.last || len(terms) != int(31-c.last) {
			t.Errorf("limit %d: %d terms, the last is %d", c.limit, len(terms), terms[len(terms)-1].GetEpoch())
		}
	}
	_, err := listTerms(h.im, &pb.ListTermsRequest{Limit: -1})
	wantsReason(t, err, cluster.InvalidRequest)
}

// An error says who the active one is, so that callers can go there.
func TestErrors(t *testing.T) {
	h := newHub(t)
	err := NotController(h.im, "me")
	if ReasonOf(err) != cluster.NotController || len(infoOf(err).GetMetadata()) != 0 {
		t.Errorf("nobody is active: %v", err)
	}
	h.write(store.Put(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "c2", Endpoint: "c2:1"})))
	err = NotController(h.im, "me")
	if got := infoOf(err).GetMetadata(); ReasonOf(err) != cluster.NotController || got["controller"] != "c2" || got["endpoint"] != "c2:1" {
		t.Errorf("c2 is active: %v, %v", err, got)
	}
	if ReasonOf(nil) != "" || ReasonOf(fmt.Errorf("other")) != "" {
		t.Error("what has no reason has none")
	}
	if got := ReasonOf(fmt.Errorf("call: %w", err)); got != cluster.NotController {
		t.Errorf("wrapped: %q", got)
	}
	h.write(store.Put(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "c1", Nonce: "me", Endpoint: "c1:1"})))
	if got := infoOf(NotController(h.im, "me")).GetMetadata(); len(got) != 0 {
		t.Errorf("sends callers to itself: %v", got)
	}
}
