package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// createTopic asks some daemon for a topic, again with the same request id
// until there is an answer.
func (w *World) createTopic() {
	if w.topics == 4 {
		return
	}
	w.topics++
	t := &pb.NewTopic{
		Name: topicName(w.topics), Partitions: 1 + w.rng.Int32N(12), ReplicationFactor: replication, BlockSize: w.p.blockSize,
	}
	if w.chance(0.05) {
		t.Partitions = 150 // at block size 1 more than a transaction holds
	}
	r := rpc.CreateTopics{CreateTopicsRequest: &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{t}, RequestId: t.GetName()}}
	w.insist(r)
}

// writeTopic puts the record of a topic by hand: the active makes the
// partitions.
func (w *World) writeTopic() {
	if w.topics == 4 {
		return
	}
	r := &pb.TopicRecord{
		TopicId: make([]byte, 16), PartitionsWanted: 1 + w.rng.Int32N(12), ReplicationFactor: replication, BlockSize: w.p.blockSize,
	}
	for i := range r.TopicId {
		r.TopicId[i] = byte(w.rng.Uint32())
	}
	if w.chance(0.2) {
		r.PartitionsWanted = 150
	}
	key := w.keys.Topic(topicName(w.topics + 1))
	res, err := w.etcd.byHand(store.Txn{If: []store.Cond{store.Missing(key)}, Then: []store.Op{store.Put(key, cluster.Encode(r))}})
	if err == nil && res.Succeeded {
		w.topics++
	}
}

// insist asks one daemon after the other until the topic is there.
func (w *World) insist(r rpc.CreateTopics) {
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, r, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err == nil && resp.(*pb.CreateTopicsResponse).GetResults()[0].GetError() == string(cluster.TopicAlreadyExists) &&
				len(w.checker.history.ever) >= w.topics {
				return // it was made, deleted, and made again, before an answer came
			}
			if err != nil || resp.(*pb.CreateTopicsResponse).GetResults()[0].GetError() != "" {
				w.after(w.upTo(time.Second), func() { w.insist(r) })
				return
			}
			id := resp.(*pb.CreateTopicsResponse).GetResults()[0].GetTopicId()
			if w.checker.history.ever[string(id)] == "" {
				w.blame(ErrUnstored, "the operator was told that topic %x exists", id)
			}
		})
}

// deleteTopic asks some daemon to delete a topic, again until there is an
// answer, and sometimes to create one of that name after it.
func (w *World) deleteTopic() {
	if w.topics == 0 || w.chance(0.6) { // topics should live a while
		return
	}
	name := topicName(1 + w.rng.IntN(w.topics))
	t := w.checker.history.topics[name]
	if t != nil {
		w.doom(name, t)
	}
}

// doom has a topic deleted, unless that was asked for already.
func (w *World) doom(name string, t *pb.TopicRecord) {
	id := string(t.GetTopicId())
	if w.isDoomed(id) {
		return
	}
	w.doomed[id] = w.now
	w.insistOnDeletion(&pb.TopicToDelete{Name: name, TopicId: t.GetTopicId()}, w.chance(0.9))
}

// isDoomed reports whether somebody has asked to delete the topic of that id.
func (w *World) isDoomed(id string) bool {
	_, asked := w.doomed[id]
	return asked
}

func (w *World) insistOnDeletion(t *pb.TopicToDelete, again bool) {
	r := rpc.DeleteTopics{DeleteTopicsRequest: &pb.DeleteTopicsRequest{Topics: []*pb.TopicToDelete{t}}}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, r, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err == nil {
				err = w.refusedDeletion(resp.(*pb.DeleteTopicsResponse).GetResults()[0])
			}
			if err != nil {
				w.after(w.upTo(time.Second), func() { w.insistOnDeletion(t, again) })
				return
			}
			w.deleted(t, again)
		})
}

// refusedDeletion is why a topic was not deleted. One that is unknown was
// deleted by an attempt whose answer was lost, or the daemon has not heard of
// it.
func (w *World) refusedDeletion(r *pb.DeleteTopicResult) error {
	switch {
	case r.GetError() == "":
		return nil
	case r.GetError() == string(cluster.UnknownTopicID) && w.truth().TopicByID(cluster.TopicID(r.GetTopicId())) == nil:
		return nil
	}
	return errors.New(r.GetError())
}

// deleted holds the answer against etcd.
func (w *World) deleted(t *pb.TopicToDelete, again bool) {
	w.seen["topic deleted"]++
	if have := w.truth().Topics[t.GetName()]; have != nil && string(have.ID[:]) == string(t.GetTopicId()) {
		w.blame(ErrUnstored, "the operator was told that topic %s is deleted", t.GetName())
	}
	if !again || w.truth().Topics[t.GetName()] != nil {
		return
	}
	w.insist(rpc.CreateTopics{CreateTopicsRequest: &pb.CreateTopicsRequest{
		Topics: []*pb.NewTopic{{
			Name: t.GetName(), Partitions: 1 + w.rng.Int32N(12), ReplicationFactor: replication, BlockSize: w.p.blockSize,
		}},
		RequestId: fmt.Sprintf("%s after %x", t.GetName(), t.GetTopicId()),
	}})
}

// operate asks for elections now and then, all the time.
func (w *World) operate() {
	w.after(w.upTo(5*time.Second), func() {
		if !w.calm {
			switch {
			case w.chance(0.3):
				w.alterSettings()
			case w.chance(0.2):
				w.alterTopic()
			case w.chance(0.3):
				w.createPartitions()
			case w.chance(0.6):
				w.reassign()
			default:
				w.electLeaders()
			}
			w.operate()
		}
	})
}

// reassign asks some daemon for other replicas of some partitions, or takes that
// back, once.
func (w *World) reassign() {
	if w.topics == 0 {
		return
	}
	t := w.truth().Topics[topicName(1+w.rng.IntN(w.topics))]
	if t == nil || t.Made() == 0 {
		return
	}
	r := &pb.AlterPartitionReassignmentsRequest{Reason: "asked to"}
	if w.chance(0.3) {
		most := pick(w, int32(0), 1, 2, 5)
		r.MaxMoves = &most
	}
	switch {
	case w.chance(0.1):
		r.CancelAll = true
	case w.chance(0.1):
		r.Topics = []*pb.TopicReplicationFactor{{Topic: t.Name, ReplicationFactor: 1 + w.rng.Int32N(brokers)}}
	default:
		for i := w.rng.Int32N(t.Made()); i < t.Made() && len(r.Partitions) < 8; i += 1 + w.rng.Int32N(3) {
			m := &pb.PartitionReassignment{Topic: t.Name, Partition: i}
			if w.chance(0.85) {
				m.Target = &pb.ReplicaAssignment{}
				for _, id := range w.rng.Perm(brokers)[:1+w.rng.IntN(4)] {
					m.Target.Replicas = append(m.Target.Replicas, int32(id))
				}
			}
			r.Partitions = append(r.Partitions, m)
		}
	}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) {
			d.decide(c, rpc.AlterPartitionReassignments{AlterPartitionReassignmentsRequest: r}, true)
		},
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err != nil {
				return
			}
			a := resp.(*pb.AlterPartitionReassignmentsResponse)
			w.seen["partition moving"] += int(a.GetMoving())
			w.seen["partition queued to move"] += int(a.GetQueued())
			w.seen["move cancelled"] += int(a.GetCancelled())
		})
}

// drainBroker asks some daemon to drain a broker, once.
func (w *World) drainBroker(id cluster.BrokerID) {
	r := &pb.DrainBrokerRequest{BrokerId: int32(id), Reason: "asked to"}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.DrainBroker{DrainBrokerRequest: r}, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err == nil && resp.(*pb.DrainBrokerResponse).GetChanged() {
				w.seen["broker drained as asked"]++
			}
		})
}

// createPartitions asks some daemon for more partitions of a topic, once.
func (w *World) createPartitions() {
	if w.topics == 0 {
		return
	}
	t := w.truth().Topics[topicName(1+w.rng.IntN(w.topics))]
	if t == nil || t.Wanted() > 40 {
		return
	}
	np := &pb.NewPartitions{Topic: t.Name, Count: t.Wanted() + 1 + w.rng.Int32N(5)}
	for i := t.Wanted(); w.chance(0.9) && i < np.GetCount(); i++ { // mostly as given
		first := w.rng.Int32N(brokers)
		np.Assignments = append(np.Assignments, &pb.ReplicaAssignment{Replicas: []int32{first, (first + 1) % brokers, (first + 3) % brokers}})
	}
	r := &pb.CreatePartitionsRequest{Topics: []*pb.NewPartitions{np}, RequestId: fmt.Sprint(w.now), Reason: "asked to"}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.CreatePartitions{CreatePartitionsRequest: r}, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err != nil {
				return
			}
			result := resp.(*pb.CreatePartitionsResponse).GetResults()[0]
			if result.GetError() != "" {
				return
			}
			w.seen["topic expanded"]++
			if now := w.truth().TopicByID(cluster.TopicID(result.GetTopicId())); now != nil && now.Wanted() < result.GetPartitions() && !w.isDoomed(string(now.ID[:])) {
				w.blame(ErrUnstored, "the operator was told that topic %s has %d partitions, it has %d", t.Name, result.GetPartitions(), now.Wanted())
			}
		})
}

// alterSettings asks some daemon for other settings, once.
func (w *World) alterSettings() {
	frozen := w.chance(0.3)
	r := &pb.AlterSettingsRequest{
		Set: map[string]string{
			cluster.ImbalanceInterval:   pick(w, "1", "3"),
			cluster.ImbalanceFirst:      pick(w, "0", "2"),
			cluster.ImbalancePercentage: pick(w, "0", "10"),
			cluster.UncleanElection:     pick(w, "false", "false", "true"),
		},
		Freeze: &frozen, Reason: "asked to",
	}
	w.unclean = w.unclean || r.GetSet()[cluster.UncleanElection] == "true"
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.AlterSettings{AlterSettingsRequest: r}, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err == nil {
				w.seen["settings altered"]++
				w.checkSettings(resp.(*pb.AlterSettingsResponse))
			}
		})
}

// alterTopic asks some daemon for other settings of a topic, once.
func (w *World) alterTopic() {
	if w.topics == 0 {
		return
	}
	r := &pb.AlterTopicsRequest{Topics: []string{topicName(1 + w.rng.IntN(w.topics))}, Reason: "asked to"}
	if w.chance(0.3) {
		r.Unset = []string{"a", cluster.MinInSyncReplicas}
	} else {
		r.Set = map[string]string{"a": fmt.Sprint(w.rng.IntN(9)), cluster.MinInSyncReplicas: pick(w, "1", "2")}
	}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.AlterTopics{AlterTopicsRequest: r}, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err == nil && resp.(*pb.AlterTopicsResponse).GetResults()[0].GetError() == "" {
				w.seen["topic altered"]++
			}
		})
}

// checkSettings holds an answer against etcd.
func (w *World) checkSettings(resp *pb.AlterSettingsResponse) {
	if have := w.truth().Settings; resp.GetChanged() && have.ModRev == 0 {
		w.blame(ErrUnstored, "the operator was told that the settings are changed")
	}
}

// unfreeze lets automation go on, as fast as it can, until that is so.
func (w *World) unfreeze() {
	if s := w.truth().Settings; !s.Frozen() && !s.On(cluster.UncleanElection) && s.Number(cluster.MaxMoves) == 0 {
		return
	}
	r := &pb.AlterSettingsRequest{Freeze: new(bool), Unset: []string{cluster.UncleanElection}, Set: map[string]string{cluster.MaxMoves: "0"}}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.AlterSettings{AlterSettingsRequest: r}, true) },
		func(any, error) { w.after(w.upTo(time.Second), w.unfreeze) })
}

// electLeaders asks some daemon for other leaders, once.
func (w *World) electLeaders() {
	unclean := pb.ElectionType_ELECTION_TYPE_UNCLEAN // seldom finds a partition that nobody leads
	kind := pick(w, unclean, unclean, unclean, pb.ElectionType_ELECTION_TYPE_PREFERRED, pb.ElectionType_ELECTION_TYPE_DESIGNATED)
	r := &pb.ElectLeadersRequest{Type: kind, Reason: "asked to"}
	switch named := r.GetType() == pb.ElectionType_ELECTION_TYPE_DESIGNATED || w.chance(0.2); {
	case !named:
		r.All = true
	case w.topics == 0:
		return
	default:
		r.Topics = []*pb.TopicPartitions{{Topic: topicName(1 + w.rng.IntN(w.topics)), Partitions: []int32{w.rng.Int32N(12), 12 + w.rng.Int32N(3)}}}
	}
	if r.GetType() == pb.ElectionType_ELECTION_TYPE_DESIGNATED {
		r.Leader = int32(pick(w, w.brokers[:]...).id)
	}
	w.ask(nil, &link{}, w.rng.IntN(daemons), 5*time.Second,
		func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.ElectLeaders{ElectLeadersRequest: r}, true) },
		func(resp any, err error) {
			w.tracef("operator: %v, %v", resp, err)
			if err != nil {
				return
			}
			for _, result := range resp.(*pb.ElectLeadersResponse).GetResults() {
				if result.GetError() == "" {
					w.seen[r.GetType().String()]++
				}
			}
		})
}

// resign asks the active to give up.
func (w *World) resign() {
	d := w.activeDaemon()
	switch {
	case d == nil:
	case w.chance(0.5):
		d.submit(rpc.Resign{ResignControllerRequest: &pb.ResignControllerRequest{Reason: "asked to"}}, func(rpc.Answer) { w.disturbed() })
	default: // perhaps one that is away, or itself
		r := &pb.TransferControllerRequest{Successor: w.daemons[w.rng.IntN(daemons)].id, Reason: "asked to"}
		d.submit(rpc.Transfer{TransferControllerRequest: r}, func(a rpc.Answer) {
			if a.Err == nil {
				w.seen["seat handed to a named daemon"]++
				w.disturbed()
			}
		})
	}
}
