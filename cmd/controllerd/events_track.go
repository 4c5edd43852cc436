package main

import (
	"cmp"
	"maps"
	"slices"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// tracker makes events out of what a watch tells, by comparing it with what it
// told before.
type tracker struct {
	emit func(event) error
	err  error // the first of emit
	now  int64 // when the answer came that is taken

	since    int64                    // up to which everything was told
	snapshot bool                     // everything is being told anew
	whole    bool                     // everything is known: some snapshot was told to its end
	told     bool                     // some revision was
	last     int64                    // the highest epoch that was told, 0: none
	open     map[int64]*pb.TermRecord // terms that have not ended, by epoch
	brokers  map[int32]*pb.BrokerStatus
	topics   map[string]*trackedTopic // by id
}

type trackedTopic struct {
	name  string
	told  bool // in the current snapshot
	parts map[int32]*pb.PartitionMetadata
}

func newTracker(emit func(event) error) *tracker {
	return &tracker{emit: emit, open: map[int64]*pb.TermRecord{}, brokers: map[int32]*pb.BrokerStatus{}, topics: map[string]*trackedTopic{}}
}

// head begins an event of some time, 0: now.
func (t *tracker) head(ms int64, kind, what string) eventHead {
	return eventHead{Time: cmp.Or(timeOf(ms), timeOf(t.now)), Type: kind, Event: what}
}

func (t *tracker) say(e event) {
	if t.err == nil {
		t.err = t.emit(e)
	}
}

// take tells what one answer means.
func (t *tracker) take(resp *pb.WatchMetadataResponse, now int64) error {
	t.now = now
	if resp.GetSnapshot() {
		t.begin()
	}
	t.seat(resp.GetSeat())
	if resp.GetLiveBrokers() != nil {
		t.everyBroker(resp.GetBrokers())
	}
	for _, m := range resp.GetTopics() {
		t.topic(m)
	}
	for _, id := range resp.GetGone() {
		t.gone(string(id))
	}
	if resp.GetRevision() != 0 {
		t.end(resp.GetRevision())
	}
	return t.err
}

// begin takes a snapshot's beginning.
func (t *tracker) begin() {
	if t.told || t.since != 0 {
		t.say(gapEvent{t.head(0, typeGap, "gap"), t.since, "the daemon does not know what happened since"})
	}
	t.snapshot = true
	for _, have := range t.topics {
		have.told = false
	}
}

// end takes the word that everything up to a revision was told.
func (t *tracker) end(revision int64) {
	if t.snapshot {
		for _, id := range slices.Sorted(maps.Keys(t.topics)) {
			if !t.topics[id].told {
				t.gone(id)
			}
		}
		t.whole, t.snapshot = true, false
	}
	t.told, t.since = true, revision
	t.say(revisionEvent{t.head(0, typeRevision, "revision"), revision})
}

func (t *tracker) seat(s *pb.Seat) {
	if s == nil {
		return
	}
	told := map[int64]bool{}
	for _, r := range s.GetTerms() {
		told[r.GetEpoch()] = true
	}
	for _, e := range slices.Sorted(maps.Keys(t.open)) { // whose end nobody wrote down
		if !told[e] {
			t.term(s, t.open[e])
		}
	}
	for _, r := range s.GetTerms() {
		t.term(s, r)
	}
}

// term tells what is new of a term.
func (t *tracker) term(s *pb.Seat, r *pb.TermRecord) {
	e := r.GetEpoch()
	if t.open[e] == nil && (e > t.last || t.last == 0) {
		if t.last != 0 && e > t.last+1 {
			t.say(gapEvent{t.head(0, typeGap, "gap"), t.since, "terms " + str(t.last+1) + " to " + str(e-1) + " were not told"})
		}
		t.say(termEvent{
			eventHead: t.head(r.GetBeganMs(), typeTerm, "began"), Epoch: e, Controller: r.GetController(), Endpoint: r.GetEndpoint(),
		})
		t.open[e], t.last = r, e
	}
	if t.open[e] == nil || r.GetEndCause() == pb.EndCause_END_CAUSE_UNSPECIFIED && s.GetControllerId() != "" && s.GetEpoch() == e {
		return
	}
	delete(t.open, e)
	v := termOf(r, false, 0)
	t.say(termEvent{t.head(r.GetEndedMs(), typeTerm, "ended"), e, v.Controller, v.Endpoint, v.Cause, v.Reason, v.Successor})
}

func (t *tracker) everyBroker(all []*pb.BrokerStatus) {
	known := map[int32]*pb.BrokerStatus{}
	for _, b := range all {
		known[b.GetId()] = b
		t.broker(t.brokers[b.GetId()], b)
	}
	for _, id := range slices.Sorted(maps.Keys(t.brokers)) {
		if known[id] == nil && t.brokers[id].GetLive() { // its node is forgotten too
			t.sayBroker("down", 0, &pb.BrokerStatus{Id: id})
		}
	}
	t.brokers = known
}

func (t *tracker) broker(old, now *pb.BrokerStatus) {
	switch {
	case old == nil && !t.told && (t.snapshot || now.GetBrokerEpoch() <= t.since):
		t.sayBroker("known", now.GetRegisteredMs(), now)
		return
	case now.GetLive() && !old.GetLive():
		t.sayBroker("up", now.GetRegisteredMs(), now)
		old = &pb.BrokerStatus{State: pb.BrokerState_BROKER_STATE_RUNNING}
	case !now.GetLive():
		if old.GetLive() {
			t.sayBroker("down", 0, now)
		}
		return
	case old.GetBrokerEpoch() != now.GetBrokerEpoch():
		t.sayBroker("restarted", now.GetRegisteredMs(), now)
		old = &pb.BrokerStatus{State: pb.BrokerState_BROKER_STATE_RUNNING}
	}
	if old.GetState() != now.GetState() {
		t.sayBroker(brokerState(now), 0, now)
	}
	if old.GetUnreachable() != now.GetUnreachable() {
		what := "reachable"
		if now.GetUnreachable() {
			what = "unreachable"
		}
		t.sayBroker(what, 0, now)
	}
}

func (t *tracker) sayBroker(what string, ms int64, b *pb.BrokerStatus) {
	t.say(brokerEvent{t.head(ms, typeBroker, what), b.GetId(), brokerState(b), b.GetUnreachable(), b.GetBrokerEpoch(), b.GetRack()})
}

func brokerState(b *pb.BrokerStatus) string {
	if !b.GetLive() {
		return "down"
	}
	return enum(b.GetState().String(), "BROKER_STATE_")
}

func (t *tracker) topic(m *pb.TopicMetadata) {
	id := string(m.GetTopicId())
	have := t.topics[id]
	if have == nil {
		have = &trackedTopic{parts: map[int32]*pb.PartitionMetadata{}}
		t.topics[id] = have
	}
	have.name, have.told = m.GetTopic(), true
	for _, p := range m.GetPartitions() {
		old := have.parts[p.GetPartition()]
		have.parts[p.GetPartition()] = p
		if what := t.whatHappened(old, p); what != "" {
			t.say(t.partitionEvent(what, m, old, p))
		}
	}
	for _, i := range m.GetUnknown() {
		t.say(t.partitionEvent("unknown", m, nil, &pb.PartitionMetadata{Partition: i, Leader: -1}))
	}
}

// whatHappened is what has become of a partition, empty if nothing.
func (t *tracker) whatHappened(old, now *pb.PartitionMetadata) string {
	switch {
	case old == nil && t.snapshot && !t.whole:
		return "known"
	case old == nil && (t.whole || now.GetPartitionEpoch() == 0):
		return "created"
	case old == nil:
		return "changed"
	case old.GetPartitionEpoch() == now.GetPartitionEpoch() && old.GetLeaderEpoch() == now.GetLeaderEpoch():
		return ""
	case now.GetLeader() < 0 && old.GetLeader() >= 0:
		return "offline"
	case now.GetLeader() != old.GetLeader() || now.GetLeaderEpoch() != old.GetLeaderEpoch():
		return "leader"
	case !sameBrokers(old.GetIsr(), now.GetIsr()):
		return "isr"
	case !slices.Equal(old.GetReplicas(), now.GetReplicas()):
		return "replicas"
	}
	return "changed"
}

// sameBrokers compares without regard to order.
func sameBrokers(a, b []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func (t *tracker) partitionEvent(what string, m *pb.TopicMetadata, old, p *pb.PartitionMetadata) partitionEvent {
	e := partitionEvent{
		eventHead: t.head(p.GetChangedMs(), typePartition, what), Topic: m.GetTopic(), TopicID: topicID(m.GetTopicId()), Partition: p.GetPartition(),
		Leader: p.GetLeader(), LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch(), ISR: list(p.GetIsr()), Replicas: list(p.GetReplicas()),
		Cause: enum(p.GetCause().String(), "CHANGE_CAUSE_"), ControllerEpoch: p.GetControllerEpoch(),
	}
	if old != nil {
		e.PreviousLeader, e.PreviousISR = new(old.GetLeader()), list(old.GetIsr())
		e.Skipped = max(p.GetPartitionEpoch()-old.GetPartitionEpoch()-1, 0)
	}
	return e
}

func (t *tracker) gone(id string) {
	if have := t.topics[id]; have != nil {
		t.say(topicEvent{t.head(0, typeTopic, "gone"), have.name, topicID([]byte(id))})
		delete(t.topics, id)
	}
}
