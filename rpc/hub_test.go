package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

var keys = cluster.KeysOf("test")

// hub is a pusher with a store, an image and a clock. The test plays the
// brokers: nothing opens, acknowledges or closes a stream by itself.
type hub struct {
	t   *testing.T
	m   *memstore.Model
	im  *cluster.Image
	p   *Pusher
	now time.Duration

	done    []string                                   // dials, hangups and doubts since the last look
	streams map[cluster.BrokerID]StreamID              // the newest of each broker
	sent    map[cluster.BrokerID][]*pb.CommandsRequest // since the last look
	unacked map[cluster.BrokerID][]*pb.Command
	synced  map[cluster.BrokerID][]*pb.FullSync // not in sent
	topics  map[string]cluster.TopicID

	observers []func([]cluster.Event) // besides the pusher
}

func newHub(t *testing.T) *hub {
	h := &hub{
		t: t, m: memstore.NewModel(), im: cluster.NewImage(keys), p: NewPusher("c1"), now: time.Hour,
		streams: map[cluster.BrokerID]StreamID{}, sent: map[cluster.BrokerID][]*pb.CommandsRequest{},
		unacked: map[cluster.BrokerID][]*pb.Command{}, topics: map[string]cluster.TopicID{},
		synced: map[cluster.BrokerID][]*pb.FullSync{},
	}
	h.write(store.Put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1})))
	return h
}

// write changes the store; the image and the pusher see it.
func (h *hub) write(ops ...store.Op) {
	h.t.Helper()
	for part := range slices.Chunk(ops, store.MaxOps) {
		r, err := h.m.Txn(store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: part})
		if err != nil || !r.Succeeded {
			h.t.Fatalf("write: %+v %v", r, err)
		}
		b, err := h.m.ChangesSince(keys.Prefix(), h.im.Rev)
		if err != nil {
			h.t.Fatal(err)
		}
		events := h.im.Apply(b)
		h.p.Observe(events)
		for _, observe := range h.observers {
			observe(events)
		}
	}
}

// broker writes a broker's key. Each registers once, or anew after gone.
func (h *hub) broker(id cluster.BrokerID, change ...func(*pb.BrokerRecord)) {
	h.t.Helper()
	r := &pb.BrokerRecord{
		NodeUuid: "n", Nonce: "x", ControlAddress: fmt.Sprintf("b%d:1", id), MetadataScope: pb.MetadataScope_METADATA_SCOPE_ALL,
	}
	for _, fn := range change {
		fn(r)
	}
	h.write(store.Put(keys.Broker(id), cluster.Encode(r)))
}

func (h *hub) gone(id cluster.BrokerID) { h.t.Helper(); h.write(store.Delete(keys.Broker(id))) }

func scope(s pb.MetadataScope) func(*pb.BrokerRecord) {
	return func(r *pb.BrokerRecord) { r.MetadataScope = s }
}

func hostedBy(replicas ...cluster.BrokerID) cluster.Partition {
	return cluster.Partition{Replicas: replicas, ISR: replicas, Leader: replicas[0], ControllerEpoch: 1}
}

// topic makes a topic with one block per partition.
func (h *hub) topic(name string, parts ...cluster.Partition) {
	h.t.Helper()
	id := cluster.TopicID{byte(len(h.topics) + 1), byte(len(h.topics) >> 8)}
	h.topics[name] = id
	var ops []store.Op
	for i := range parts {
		ops = append(ops, h.block(id, int32(i), &parts[i]))
	}
	h.write(append(ops, store.Put(keys.Topic(name), cluster.Encode(&pb.TopicRecord{
		TopicId: id[:], PartitionsWanted: int32(len(parts)), PartitionsMade: int32(len(parts)), BlockSize: 1,
	})))...)
}

func (h *hub) block(id cluster.TopicID, index int32, p *cluster.Partition) store.Op {
	b := (*cluster.Block)(nil).With(map[int32]*cluster.Partition{index: p}, nil)
	return store.Put(keys.Block(cluster.BlockID{Topic: id, Index: index}), b.Encode())
}

// change writes the next state of a partition.
func (h *hub) change(name string, index int32, fn func(*cluster.Partition)) {
	h.t.Helper()
	id := h.topics[name]
	next := h.im.Partition(cluster.PartitionID{Topic: id, Index: index}).Clone()
	next.PartitionEpoch++
	fn(&next)
	h.write(h.block(id, index, &next))
}

func elect(leader cluster.BrokerID) func(*cluster.Partition) {
	return func(p *cluster.Partition) { p.Leader = leader; p.LeaderEpoch++ }
}

func (h *hub) begin(e cluster.Epoch) { h.p.Begin(h.now, epoch.Claim{Epoch: e, Rev: h.m.Rev()}) }

// step lets the pusher do what is due.
func (h *hub) step() {
	h.t.Helper()
	h.note(h.p.Step(h.now, h.im))
	if w := h.p.Wake(h.now); w < h.now {
		h.t.Fatalf("wakes at %v, it is %v", w, h.now)
	}
}

func (h *hub) note(actions []PushAction) {
	h.t.Helper()
	for _, a := range actions {
		switch a := a.(type) {
		case Dial:
			h.streams[a.Stream.Broker] = a.Stream
			h.done = append(h.done, fmt.Sprintf("dial %d at %s", a.Stream.Broker, a.Address))
		case Hangup:
			h.done = append(h.done, fmt.Sprintf("hangup %d", a.Stream.Broker))
		case Redial:
			h.done = append(h.done, fmt.Sprintf("redial %d at %s", a.Stream.Broker, a.Address))
		case Proven:
			h.done = append(h.done, fmt.Sprintf("proven %d at %s", a.Broker, a.Address))
		case Reread:
			h.done = append(h.done, fmt.Sprintf("reread %d", a.Broker))
		case Doubt:
			h.done = append(h.done, fmt.Sprintf("doubt %d knows %d", a.Broker, a.Epoch))
		case Send:
			id := a.Stream.Broker
			if a.Stream != h.streams[id] {
				h.t.Fatalf("sent on stream %+v, the newest is %+v", a.Stream, h.streams[id])
			}
			if fs := a.Request.GetCommand().GetFullSync(); fs != nil {
				h.synced[id] = append(h.synced[id], fs)
			} else {
				h.sent[id] = append(h.sent[id], a.Request)
			}
			if c := a.Request.GetCommand(); c != nil {
				h.unacked[id] = append(h.unacked[id], c)
			}
		}
	}
}

// after lets time pass, with a step whenever the pusher asks for one.
func (h *hub) after(d time.Duration) {
	h.t.Helper()
	for end := h.now + d; ; {
		h.step()
		if h.now == end {
			return
		}
		h.now = min(max(h.p.Wake(h.now), h.now+time.Millisecond), end)
	}
}

func (h *hub) take(ev PushEvent) { h.t.Helper(); h.note(h.p.Take(h.now, ev)) }

func (h *hub) opens(id cluster.BrokerID) {
	h.t.Helper()
	h.greets(id, &pb.Hello{})
}

// resumes opens the stream of a broker that says what it knows.
func (h *hub) resumes(id cluster.BrokerID, from *pb.ResumePoint) {
	h.t.Helper()
	h.greets(id, &pb.Hello{Resume: from})
}

// greets opens the stream of a broker with that hello.
func (h *hub) greets(id cluster.BrokerID, hello *pb.Hello) {
	h.t.Helper()
	hello.BrokerId = int32(id)
	h.unacked[id] = nil
	h.take(Opened{h.streams[id], hello})
}

func (h *hub) closes(id cluster.BrokerID, err error) {
	h.t.Helper()
	h.take(Closed{Stream: h.streams[id], Err: err})
}

func (h *hub) says(id cluster.BrokerID, r *pb.CommandsResponse) {
	h.t.Helper()
	h.take(Received{h.streams[id], r})
}

func (h *hub) pong(id cluster.BrokerID) {
	h.t.Helper()
	h.says(id, &pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: &pb.Pong{}}})
}

// admits lets a broker's gate admit the oldest command, and returns it.
func (h *hub) admits(id cluster.BrokerID) *pb.Command {
	h.t.Helper()
	return h.acks(id, pb.Refusal_REFUSAL_UNSPECIFIED, 0)
}

func (h *hub) acks(id cluster.BrokerID, refusal pb.Refusal, highest cluster.Epoch) *pb.Command {
	h.t.Helper()
	if len(h.unacked[id]) == 0 {
		h.t.Fatalf("broker %d has nothing to answer", id)
	}
	c := h.unacked[id][0]
	h.unacked[id] = h.unacked[id][1:]
	h.says(id, &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{
		Sequence: c.GetSequence(), Refusal: refusal, ControllerEpoch: int64(highest),
	}}})
	return c
}

// result reports what became of one partition.
func (h *hub) result(id cluster.BrokerID, topic string, index int32, le int32, r pb.PartitionResult) {
	h.t.Helper()
	tid := h.topics[topic]
	h.says(id, &pb.CommandsResponse{Response: &pb.CommandsResponse_Results{Results: &pb.PartitionResults{Outcomes: []*pb.PartitionOutcome{
		{TopicId: tid[:], Partition: index, LeaderEpoch: le, Result: r, Message: "because"},
	}}}})
}

// applies lets a broker admit and apply all that it was sent, and is sent in
// turn.
func (h *hub) applies(id cluster.BrokerID) {
	h.t.Helper()
	for len(h.unacked[id]) > 0 {
		c := h.admits(id)
		for _, topic := range c.GetLeaderAndIsr().GetTopics() {
			for _, p := range topic.GetPartitions() {
				h.result(id, topic.GetTopic(), p.GetPartition(), p.GetLeaderEpoch(), pb.PartitionResult_PARTITION_RESULT_APPLIED)
			}
		}
		h.step()
	}
}

// wants checks the dials, hangups and doubts since the last time.
func (h *hub) wants(want ...string) {
	h.t.Helper()
	if !slices.Equal(h.done, want) {
		h.t.Fatalf("it did %q, want %q", h.done, want)
	}
	h.done = nil
}

// hears checks what a broker was sent since the last time.
func (h *hub) hears(id cluster.BrokerID, want ...string) {
	h.t.Helper()
	var got []string
	for _, r := range h.sent[id] {
		got = append(got, describe(r))
	}
	if !slices.Equal(got, want) {
		h.t.Fatalf("broker %d was sent %q, want %q", id, got, want)
	}
	h.sent[id] = nil
}

// describe is a request in short: "live" brokers, LeaderAndIsr ("lai"),
// UpdateMetadata ("meta") and StopReplica ("stop") with
// topic/partition@leader epoch, "!" for a new one, "-" for a removed topic.
func describe(r *pb.CommandsRequest) string {
	if r.GetPing() != nil {
		return "ping"
	}
	words := []string{"lai"}
	topics := r.GetCommand().GetLeaderAndIsr().GetTopics()
	if m := r.GetCommand().GetUpdateMetadata(); m != nil {
		words, topics = []string{"meta"}, m.GetTopics()
		if m.GetLiveBrokers() != nil {
			words = []string{"live"}
		}
		for _, b := range m.GetLiveBrokers().GetBrokers() {
			words = append(words, fmt.Sprint(b.GetId()))
		}
	}
	for _, t := range topics {
		for _, p := range t.GetPartitions() {
			word := fmt.Sprintf("%s/%d@%d", t.GetTopic(), p.GetPartition(), p.GetLeaderEpoch())
			if p.GetIsNew() {
				word += "!"
			}
			words = append(words, word)
		}
	}
	for _, t := range r.GetCommand().GetUpdateMetadata().GetRemovedTopics() {
		words = append(words, "-"+t.GetTopic())
	}
	if stop := r.GetCommand().GetStopReplica(); stop != nil {
		words = []string{"stop"}
		for _, t := range stop.GetTopics() {
			for _, p := range t.GetPartitions() {
				words = append(words, fmt.Sprintf("%s/%d@%d", t.GetTopic(), p.GetPartition(), p.GetLeaderEpoch()))
			}
		}
	}
	return strings.Join(words, " ")
}

// stuck are all partitions of which a broker's last result was a failure.
func (h *hub) stuck() []string {
	named, _ := h.p.Stuck(h.im, 1<<20)
	return named
}
