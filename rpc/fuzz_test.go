package rpc

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// FuzzRegister registers any broker, after another process of broker 1: it
// comes to an end, writes nothing but the broker's two keys, and these are
// readable.
func FuzzRegister(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.RegisterRequest{}
		if proto.Unmarshal(data, r) != nil || checkRegister(r) != nil {
			return
		}
		o := newOffice(t)
		if _, _, err := o.register(process("n", "p1", true)); err != nil {
			t.Fatal(err)
		}
		lease, err := o.m.Grant(0, DefaultSessionTTL)
		if err != nil {
			t.Fatal(err)
		}
		id := cluster.BrokerID(r.GetBrokerId())
		for steps := 0; ; steps++ {
			next := DecideRegister(o.view(), r, lease.ID, 42)
			if next.Err != nil {
				if ReasonOf(next.Err) == "" {
					t.Fatalf("refused without a reason: %v", next.Err)
				}
				break
			}
			if next.Done != nil {
				if err := CheckSession(o.im, id, next.Done.Epoch, r.GetNonce()); err != nil {
					t.Fatalf("registered, and has no session: %v", err)
				}
				break
			}
			for _, op := range next.Txn.Then {
				if op.Key != keys.Broker(id) && op.Key != keys.Node(id) {
					t.Fatalf("writes %s", op.Key)
				}
			}
			if got, err := o.m.Txn(next.Txn); err != nil || !got.Succeeded || steps == 5 {
				t.Fatalf("step %d: %+v %v", steps, got, err)
			}
			o.look()
		}
		if len(o.im.Faults) != 0 {
			t.Fatalf("wrote what cannot be read: %v", o.im.Faults)
		}
	})
}

// FuzzPages asks for any page of anything: no more than was asked for, and the
// next page goes on after it.
func FuzzPages(f *testing.F) {
	f.Fuzz(func(t *testing.T, token, name string, from, size int32) {
		h := newHub(t)
		h.topic("a", hostedBy(1), hostedBy(2), hostedBy(3))
		h.topic("b", hostedBy(1))
		if resp, err := listTopics(h.im, &pb.ListTopicsRequest{PageSize: size, PageToken: token}); err == nil {
			if n := len(resp.GetTopics()); size > 0 && n > int(size) || resp.GetNextPageToken() != "" && n == 0 {
				t.Errorf("%d topics of %d, then %q", n, size, resp.GetNextPageToken())
			}
		} else if ReasonOf(err) != cluster.InvalidRequest {
			t.Errorf("topics: %v", err)
		}
		if resp, err := describeTopic(View{Image: h.im, Pusher: h.p}, &pb.DescribeTopicRequest{Name: name, FromPartition: from, PageSize: size}); err == nil {
			n := len(resp.GetPartitions()) + len(resp.GetUnknown())
			if size > 0 && n > int(size) || resp.GetNextPartition() >= 0 && int(resp.GetNextPartition()) != int(from)+n {
				t.Errorf("%d partitions from %d, then %d", n, from, resp.GetNextPartition())
			}
		} else if ReasonOf(err) != cluster.InvalidRequest && ReasonOf(err) != cluster.UnknownTopicOrPartition {
			t.Errorf("partitions: %v", err)
		}
		if resp, err := listTerms(h.im, &pb.ListTermsRequest{Limit: size}); (err != nil) != (size < 0) || len(resp.GetTerms()) != 0 {
			t.Errorf("terms: %v %v", resp, err)
		}
	})
}

// FuzzBrokerSays has a broker say anything on its stream of commands, each
// with its length before it. Another broker is told all the same.
func FuzzBrokerSays(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte) {
		h := newHub(t)
		h.broker(1)
		h.broker(2)
		h.topic("a", hostedBy(1, 2))
		h.begin(1)
		h.step()
		h.opens(1)
		h.opens(2)
		h.step()
		for r := bytes.NewReader(stream); ; {
			m := &pb.CommandsResponse{}
			if protodelim.UnmarshalFrom(r, m) != nil {
				break
			}
			h.says(1, m)
			h.step()
		}
		h.applies(2)
		h.write(store.Delete(keys.Broker(1)))
		h.change("a", 0, elect(2))
		h.step()
		if len(h.unacked[2]) == 0 {
			t.Error("broker 2 does not hear of a change")
		}
		h.p.End()
	})
}

// FuzzWatchMetadata watches with any request: it is refused with a reason, or
// told of the topics that it names, and of no others.
func FuzzWatchMetadata(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.WatchMetadataRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		reader, err := newReader(r)
		if err != nil {
			if ReasonOf(err) == "" {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		x, m := newFeeding(t), newMirror(t)
		x.topic("a", hostedBy(1), hostedBy(2))
		x.topic("b", hostedBy(1))
		x.catchUp(reader, m)
		wants := func(name string) bool { return len(r.GetTopics()) == 0 || slices.Contains(r.GetTopics(), name) }
		for _, told := range m.topics {
			if name, _, _ := strings.Cut(told, " "); !wants(name) {
				t.Fatalf("told of %q, asked for %q", name, r.GetTopics())
			}
		}
		if d := m.differs(x.im, wants); d != "" && r.GetRevision() == 0 {
			t.Fatal(d)
		}
	})
}
