package rpc

import (
	"fmt"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// maxChunk bounds the encoded size of a command in bytes: below 1 MiB with
// room for what the estimate does not count.
const maxChunk = 900 << 10

type targetPhase uint8

const (
	idle targetPhase = iota
	dialing
	open
)

// target is one incarnation of a broker as the active sees it.
type target struct {
	id      cluster.BrokerID
	epoch   cluster.BrokerEpoch
	address string

	phase     targetPhase
	stream    StreamID
	notBefore time.Duration // the next dial or send
	again     int           // failures since a command was admitted
	problem   string

	cursor   int64 // in the change list
	brokers  int64 // the set of live brokers sent last
	sequence int64
	since    int64 // answers to commands up to this one are of no interest any more
	unacked  int
	ping     time.Duration // sent last
	pong     time.Duration // heard last

	pending map[cluster.PartitionID]cluster.LeaderEpoch // sent, result not known
	retries map[cluster.PartitionID]*retry
}

type retry struct {
	at      time.Duration
	wait    time.Duration
	epoch   cluster.LeaderEpoch // of the state that failed
	message string
}

// state is one partition as a command will carry it.
type state struct {
	topic *cluster.Topic
	id    cluster.PartitionID
	p     *cluster.Partition
}

// opened begins a stream from nothing: the broker hears everything.
func (t *target) opened(now time.Duration) {
	t.phase, t.ping, t.pong, t.sequence = open, now, now, 0
	t.problem = ""
	t.fromStart()
}

func (t *target) fromStart() {
	t.cursor, t.brokers, t.unacked, t.since = 0, -1, 0, t.sequence
	t.pending = map[cluster.PartitionID]cluster.LeaderEpoch{}
	t.retries = map[cluster.PartitionID]*retry{}
}

// restart says everything again on the same stream, after a while.
func (t *target) restart(now time.Duration) {
	t.fromStart()
	t.notBefore = now + backoff(t.again, MaxRetry)
	t.again++
}

func (t *target) closed(now time.Duration) {
	t.phase, t.pending, t.retries = idle, nil, nil
	t.notBefore = max(t.notBefore, now+backoff(t.again, maxRedial))
	t.again++
}

func backoff(again int, most time.Duration) time.Duration {
	return min(MinRetry<<min(again, 20), most)
}

func (t *target) done(id cluster.PartitionID, le cluster.LeaderEpoch) {
	if sent, ok := t.pending[id]; ok && sent <= le {
		delete(t.pending, id)
	}
	if r := t.retries[id]; r != nil && r.epoch <= le {
		delete(t.retries, id)
	}
}

func (t *target) failed(now time.Duration, id cluster.PartitionID, le cluster.LeaderEpoch, message string) {
	if sent, ok := t.pending[id]; ok && sent > le {
		return // a newer state is on its way
	}
	delete(t.pending, id)
	r := t.retries[id]
	if r == nil {
		r = &retry{wait: MinRetry}
		t.retries[id] = r
	} else {
		r.wait = min(2*r.wait, MaxRetry)
	}
	r.at, r.epoch, r.message = now+r.wait, le, message
}

func (t *target) wake(now time.Duration) time.Duration {
	next := now + PingInterval
	if t.phase == open {
		next = min(t.ping+PingInterval, t.pong+PingTimeout)
	}
	if t.notBefore > now {
		next = min(next, t.notBefore)
	}
	if t.unacked >= window {
		return next // an answer has to come first
	}
	for id, r := range t.retries {
		if _, sent := t.pending[id]; !sent {
			next = min(next, max(r.at, now))
		}
	}
	return next
}

// stepTarget opens the broker's stream and sends what is due on it.
func (p *Pusher) stepTarget(now time.Duration, im *cluster.Image, t *target, out []PushAction) []PushAction {
	if now < t.notBefore && t.phase != open {
		return out
	}
	switch t.phase {
	case idle:
		p.streams++
		t.stream = StreamID{t.id, t.epoch, p.streams}
		t.phase = dialing
		return append(out, Dial{t.stream, t.address})
	case open:
		if now-t.pong >= PingTimeout {
			t.problem = "ping unanswered"
			p.closing[t.stream] = true
			stream := t.stream
			t.closed(now)
			return append(out, Hangup{stream})
		}
		if now-t.ping >= PingInterval {
			t.ping = now
			out = append(out, Send{t.stream, &pb.CommandsRequest{Request: &pb.CommandsRequest_Ping{Ping: &pb.Ping{}}}})
		}
		if now >= t.notBefore {
			out = p.sendDue(now, im, t, out)
		}
	}
	return out
}

// sendDue sends live brokers first, then partitions that are tried again, then
// what changed after the cursor.
func (p *Pusher) sendDue(now time.Duration, im *cluster.Image, t *target, out []PushAction) []PushAction {
	if t.brokers != p.brokers && t.unacked < window {
		t.brokers = p.brokers
		out = p.send(im, t, &pb.Command{Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{LiveBrokers: liveBrokers(im)}}}, out)
	}
	if again := t.retriesDue(now, im); len(again) > 0 && t.unacked < window {
		out = p.sendStates(im, t, again, out)
	}
	for t.unacked+2 <= window { // a chunk takes up to two commands
		hosted, all := p.nextChunk(im, t)
		if len(all) == 0 {
			break
		}
		out = p.sendStates(im, t, hosted, out)
		if scope := metadataScope(im, t); scope != pb.MetadataScope_METADATA_SCOPE_NONE {
			if scope == pb.MetadataScope_METADATA_SCOPE_HOSTED {
				all = hosted
			}
			if len(all) > 0 {
				out = p.send(im, t, &pb.Command{Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{Topics: p.topicStates(all)}}}, out)
			}
		}
	}
	return out
}

func metadataScope(im *cluster.Image, t *target) pb.MetadataScope {
	if b := im.Brokers[t.id]; b != nil {
		return b.Record.GetMetadataScope()
	}
	return pb.MetadataScope_METADATA_SCOPE_NONE
}

// nextChunk takes what changed after the cursor, up to the size of one
// command, and moves the cursor behind it.
func (p *Pusher) nextChunk(im *cluster.Image, t *target) (hosted, all []state) {
	size, end := 0, p.changes.last
	p.changes.after(t.cursor, func(c change) bool {
		topic := im.TopicByID(c.id.Topic)
		part := im.Partition(c.id)
		if topic == nil || part == nil {
			return true
		}
		size += estimate(topic, part)
		if size > maxChunk && len(all) > 0 { // a state that is larger goes alone
			end = c.seq - 1
			return false
		}
		s := state{topic, c.id, part}
		all = append(all, s)
		if slices.Contains(part.Replicas, t.id) {
			hosted = append(hosted, s)
		}
		return true
	})
	t.cursor = end
	return hosted, all
}

// estimate is an upper bound of the encoded size of one state in bytes, with
// its topic's header.
func estimate(topic *cluster.Topic, p *cluster.Partition) int {
	return 96 + len(topic.Name) + 6*(len(p.Replicas)+len(p.ISR)+len(p.Adding)+len(p.Removing))
}

// retriesDue are the partitions to be tried again, up to the size of one
// command.
func (t *target) retriesDue(now time.Duration, im *cluster.Image) []state {
	var due []state
	for id, r := range t.retries {
		if r.at > now {
			continue
		}
		part := im.Partition(id)
		if part == nil || !slices.Contains(part.Replicas, t.id) {
			delete(t.retries, id)
			continue
		}
		if _, sent := t.pending[id]; !sent {
			due = append(due, state{im.TopicByID(id.Topic), id, part})
		}
	}
	slices.SortFunc(due, byTopic)
	size := 0
	for i, s := range due {
		if size += estimate(s.topic, s.p); size > maxChunk && i > 0 {
			return due[:i]
		}
	}
	return due
}

// sendStates sends the LeaderAndIsr of partitions that the broker hosts.
func (p *Pusher) sendStates(im *cluster.Image, t *target, hosted []state, out []PushAction) []PushAction {
	if len(hosted) == 0 {
		return out
	}
	for _, s := range hosted {
		t.pending[s.id] = s.p.LeaderEpoch
	}
	p.Stats.Sent += int64(len(hosted))
	return p.send(im, t, &pb.Command{Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: p.topicStates(hosted)}}}, out)
}

func (p *Pusher) send(im *cluster.Image, t *target, c *pb.Command, out []PushAction) []PushAction {
	t.sequence++
	t.unacked++
	c.Sequence = t.sequence
	term := fencing.Term{ClusterUUID: im.Cluster.GetUuid(), ControllerID: p.self, Epoch: p.claim.Epoch}
	c.Stamp = term.Stamp(fencing.Target{Broker: t.id, Epoch: t.epoch}, im.Rev)
	return append(out, Send{t.stream, &pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: c}}})
}

// topicStates groups states by topic: half the bytes of naming it each time.
func (p *Pusher) topicStates(states []state) []*pb.TopicStates {
	slices.SortFunc(states, byTopic)
	var out []*pb.TopicStates
	for _, s := range states {
		if n := len(out); n == 0 || out[n-1].GetTopic() != s.topic.Name {
			out = append(out, &pb.TopicStates{TopicId: s.topic.ID[:], Topic: s.topic.Name})
		}
		last := out[len(out)-1]
		last.Partitions = append(last.Partitions, s.p.State(s.id.Index, p.isNew(s.p)))
	}
	return out
}

// isNew allows brokers to create the replica: it has just been made, in this
// term.
func (p *Pusher) isNew(part *cluster.Partition) bool {
	return part.LeaderEpoch == 0 && part.PartitionEpoch == 0 && part.ControllerEpoch == p.claim.Epoch
}

func liveBrokers(im *cluster.Image) *pb.LiveBrokers {
	live := &pb.LiveBrokers{}
	for _, b := range im.SortedBrokers() {
		live.Brokers = append(live.Brokers, &pb.LiveBroker{
			Id: int32(b.ID), BrokerEpoch: int64(b.Epoch), Endpoints: b.Record.GetEndpoints(), Rack: b.Record.GetRack(),
		})
	}
	return live
}

// Stuck are the partitions of which a broker's last result was a failure, as
// "broker topic/partition: message".
func (p *Pusher) Stuck(im *cluster.Image) []string {
	var out []string
	for _, t := range p.targets {
		for id, r := range t.retries {
			name := id.Topic.String()
			if topic := im.TopicByID(id.Topic); topic != nil {
				name = topic.Name
			}
			out = append(out, fmt.Sprintf("broker %d %s/%d: %s", t.id, name, id.Index, r.message))
		}
	}
	slices.Sort(out)
	return out
}
