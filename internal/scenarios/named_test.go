package scenarios

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// named are the integration tests of Kafka's controller that need daemons or
// brokers, by Kafka's names. Leader epochs are bounds: at most Kafka's.
var named = map[string]func(*testing.T, *world){
	"testEmptyCluster": emptyCluster,
	"testControllerEpochPersistsWhenAllBrokersDown":         epochPersists,
	"testControllerMoveIncrementsControllerEpoch":           moveIncrementsEpoch,
	"testMetadataPropagationOnControlPlane":                 onControlPlane,
	"testMetadataPropagationOnBrokerChange":                 onBrokerChange,
	"testMetadataPropagationForOfflineReplicas":             forOfflineReplicas,
	"testMetadataPropagationOnBrokerShutdownWithNoReplicas": onShutdownWithNoReplicas,
	"testControllerMoveOnTopicCreation":                     moveOn("payments", createPayments),
	"testControllerMoveOnTopicDeletion":                     moveOn("orders", deleteOrders),
	"testControllerMoveOnPreferredReplicaElection":          moveOn("orders", electOrders),
	"testControllerMoveOnPartitionReassignment":             moveOn("orders", reassignOrders),
	"testPreemptionOnControllerShutdown":                    preempted(createPayments, deleteOrders),
	"testPreemptionWithCallbacks":                           preempted(createPayments, electOrders, reassignOrders),
	"testTopicIdsAreAdded":                                  topicIDsAreAdded,
	"testTopicIdMigrationAndHandling":                       topicIDHandling,
	"testTopicIdPersistsThroughControllerReelection":        topicIDPersists(true),
	"testTopicIdPersistsThroughControllerRestart":           topicIDPersists(false),
	"testLeaderElectionAndEpoch":                            leaderElectionAndEpoch,
}

// TestNamed plays them.
func TestNamed(t *testing.T) {
	t.Parallel()
	for name, play := range named {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t))
		})
	}
}

func (w *world) goes(id cluster.BrokerID) {
	w.t.Helper()
	w.await("the broker is gone", limit, func() bool { return !w.live(id) })
}

func emptyCluster(t *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	w.startBrokers(1)
	if claim, id := w.seat(); claim.Epoch != 1 || id != "a" {
		t.Errorf("%q holds the seat under epoch %d", id, claim.Epoch)
	}
}

// Nothing holds the seat any more, and the epoch stays.
func epochPersists(t *testing.T, w *world) {
	d := w.daemon("a")
	w.active(1, soon)
	b := w.startBrokers(1)[0]
	b.kill()
	d.stop()
	w.await("nobody holds the seat", soon, func() bool { return w.seatLease() == 0 })
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}
}

func moveIncrementsEpoch(_ *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon).stop()
	w.daemon("a")
	w.active(2, soon)
	w.startBrokers(1)
	w.converged(soon)
}

// Commands come on the control listener, over one stream, and nothing is said
// to the listener for everybody else.
func onControlPlane(t *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	data, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var dialed atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := data.Accept()
			if err != nil {
				return
			}
			dialed.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = data.Close(); <-done })
	b := w.broker(0, func(_ *node, cfg *broker.Config) {
		cfg.Endpoints = []broker.Endpoint{{Listener: "PLAINTEXT", Address: data.Addr().String()}}
	})
	w.registered(b)
	w.create("orders", 4, 1)
	w.converged(soon)
	if len(b.observed()) == 0 || b.streams.Load() != 1 || dialed.Load() != 0 {
		t.Errorf("%d commands on %d streams, %d connections to the data listener", len(b.observed()), b.streams.Load(), dialed.Load())
	}
}

// replicasAway are the replicas of a partition that metadata, as a broker has it,
// gives to brokers that are not live.
func (n *node) replicasAway(id cluster.PartitionID) (leader cluster.BrokerID, isr, away []cluster.BrokerID) {
	s, ok := n.Metadata(id)
	if !ok {
		return cluster.NoLeader, nil, nil
	}
	for _, r := range s.Replicas {
		if !slices.ContainsFunc(n.Live(), func(l broker.LiveBroker) bool { return l.ID == r }) {
			away = append(away, r)
		}
	}
	return s.Leader, s.ISR, away
}

// shows waits until a broker has metadata that says so of a partition.
func (w *world) shows(n *node, id cluster.PartitionID, leader cluster.BrokerID, isr, away []cluster.BrokerID) {
	w.t.Helper()
	if !poll(soon, func() bool {
		l, i, a := n.replicasAway(id)
		return l == leader && slices.Equal(i, isr) && slices.Equal(a, away)
	}) {
		l, i, a := n.replicasAway(id)
		w.t.Errorf("broker %d knows leader %d, ISR %v, away %v of partition %d, want %d, %v, %v", n.id, l, i, a, id.Index, leader, isr, away)
	}
}

// Broker 1 goes, and comes back: all brokers know, also those without replicas
// of its partitions.
func onBrokerChange(_ *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	for id := range cluster.BrokerID(4) {
		w.registered(w.broker(id, follows(w)))
	}
	topic := w.assigned("orders", []int32{0, 1}, []int32{2, 3})
	first, second := cluster.PartitionID{Topic: topic}, cluster.PartitionID{Topic: topic, Index: 1}
	w.converged(soon)
	w.brokers[1].kill()
	for _, i := range []int{0, 2, 3} {
		w.shows2(w.brokers[i], first, second, ids(0), ids(1))
	}
	w.registered(w.broker(1, follows(w)))
	for _, i := range []int{0, 2, 3, 4} {
		w.shows2(w.brokers[i], first, second, ids(0, 1), nil)
	}
	w.converged(soon)
}

// shows2 is shows for a partition that broker 0 leads, and one that is as it was.
func (w *world) shows2(n *node, first, second cluster.PartitionID, isr, away []cluster.BrokerID) {
	w.t.Helper()
	w.await("the broker is seen to come or go", limit, func() bool { return w.live(1) == (len(away) == 0) })
	w.shows(n, first, 0, isr, away)
	w.shows(n, second, 2, ids(2, 3), nil)
}

// The only replica is away: metadata has it, without a leader, also for brokers
// that come later.
func forOfflineReplicas(t *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	b := w.startBrokers(3)
	p := cluster.PartitionID{Topic: w.assigned("orders", []int32{2})}
	w.converged(soon)
	for _, n := range b {
		n.kill()
	}
	for _, n := range b {
		w.goes(n.id)
	}
	for id := range cluster.BrokerID(2) {
		n := w.broker(id)
		w.registered(n)
		w.shows(n, p, cluster.NoLeader, ids(2), ids(2))
	}
	w.converged(soon)
	if r := w.partition(p); r.LeaderEpoch != 1 {
		t.Errorf("leader epoch %d", r.LeaderEpoch)
	}
}

// A broker that hosts nothing goes: others are told, though nothing else changes.
func onShutdownWithNoReplicas(t *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	b := w.startBrokers(3)
	p := cluster.PartitionID{Topic: w.assigned("orders", []int32{0, 1})}
	w.converged(soon)
	b[2].kill()
	w.goes(2)
	for _, n := range b[:2] {
		w.await("the broker is not named as live any more", soon, func() bool { return len(n.Live()) == 2 })
		w.shows(n, p, 0, ids(0, 1), nil)
	}
	if r := w.partition(p); r.LeaderEpoch != 0 || r.PartitionEpoch != 0 {
		t.Errorf("epochs %d/%d", r.LeaderEpoch, r.PartitionEpoch)
	}
}

// ask is one request to a daemon, of which none repeats.
type ask func(context.Context, pb.AdminServiceClient) error

// failed are the errors of results in an answer, as one.
func failed(reasons ...string) error {
	for _, r := range reasons {
		if r != "" {
			return rpc.Error(cluster.Reason(r), nil, "%s", r)
		}
	}
	return nil
}

func createPayments(ctx context.Context, a pb.AdminServiceClient) error {
	resp, err := a.CreateTopics(ctx, &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "payments", Partitions: 1, ReplicationFactor: 2}}})
	if err != nil {
		return err
	}
	return failed(resp.GetResults()[0].GetError())
}

func deleteOrders(ctx context.Context, a pb.AdminServiceClient) error {
	resp, err := a.DeleteTopics(ctx, &pb.DeleteTopicsRequest{Topics: []*pb.TopicToDelete{{Name: "orders"}}})
	if err != nil {
		return err
	}
	return failed(resp.GetResults()[0].GetError())
}

// electOrders wants the preferred leader, which is not the one that leads.
func electOrders(ctx context.Context, a pb.AdminServiceClient) error {
	resp, err := a.ElectLeaders(ctx, &pb.ElectLeadersRequest{
		Type: pb.ElectionType_ELECTION_TYPE_PREFERRED, Topics: []*pb.TopicPartitions{{Topic: "orders"}},
	})
	if err != nil {
		return err
	}
	return failed(resp.GetResults()[0].GetError())
}

func reassignOrders(ctx context.Context, a pb.AdminServiceClient) error {
	resp, err := a.AlterPartitionReassignments(ctx, &pb.AlterPartitionReassignmentsRequest{
		Partitions: []*pb.PartitionReassignment{{Topic: "orders", Target: &pb.ReplicaAssignment{Replicas: []int32{2}}}},
	})
	if err != nil {
		return err
	}
	return failed(resp.GetResults()[0].GetError())
}

// withOrders has three brokers, and a topic on brokers 0 and 1 that 1 leads.
func (w *world) withOrders() (cluster.PartitionID, cluster.Partition) {
	w.t.Helper()
	w.startBrokers(3, withSession(patient))
	p := cluster.PartitionID{Topic: w.assigned("orders", []int32{0, 1})}
	if _, err := w.someAdmin(0).ElectLeaders(w.call(), &pb.ElectLeadersRequest{
		Type: pb.ElectionType_ELECTION_TYPE_DESIGNATED, Leader: 1, Topics: []*pb.TopicPartitions{{Topic: "orders"}},
	}); err != nil {
		w.t.Fatal(err)
	}
	w.awaitRecord("broker 1 leads", p, func(r cluster.Partition) bool { return r.Leader == 1 })
	w.converged(soon)
	return p, w.partition(p)
}

// unchanged fails if etcd shows something of what the requests want.
func (w *world) unchanged(p cluster.PartitionID, before cluster.Partition) {
	w.t.Helper()
	r := w.partition(p)
	if r.Leader != before.Leader || r.LeaderEpoch != before.LeaderEpoch || r.PartitionEpoch != before.PartitionEpoch || !slices.Equal(r.Replicas, before.Replicas) {
		w.t.Errorf("orders/0 is %+v, was %+v", r, before)
	}
	w.tape.look(func(im *cluster.Image) {
		if im.Topics["payments"] != nil || im.Topics["orders"] == nil || im.Topics["orders"].Deleting() {
			w.t.Errorf("topics: payments %v, orders %v", im.Topics["payments"], im.Topics["orders"])
		}
	})
}

// moveOn lets another daemon take the seat while the first write of a request is
// on its way: it fails on its guard, and so does the term; the caller is told
// that the controller has moved.
func moveOn(topic string, what ask) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		a := w.daemon("a")
		w.active(1, soon)
		w.daemon("b")
		w.candidateLease("b", 0)
		p, before := w.withOrders()
		prefix := w.keys.Prefix() + "partitions/"
		if topic == "orders" { // the mark of a deletion is in the topic's record
			prefix = w.keys.Prefix()
		}
		held := a.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: writes(prefix)})
		answer := make(chan error, 1)
		go func() { answer <- what(w.call(), a.admin) }()
		<-held.Hit()
		defer holdClaims(a).Remove()
		w.revoke(w.seatLease())
		if d := w.active(2, soon); d.ID != "b" {
			t.Fatalf("%s follows", d.ID)
		}
		held.Remove()
		select {
		case err := <-answer:
			if got := rpc.ReasonOf(err); got != cluster.NotController {
				t.Errorf("answered with %v: %v", got, err)
			}
		case <-time.After(limit):
			t.Fatal("not answered")
		}
		w.await("the first term has ended", soon, func() bool { _, active := a.active(); return !active })
		w.unchanged(p, before)
		w.converged(soon)
		if err := what(w.call(), w.daemons[1].admin); err != nil {
			t.Errorf("asked again: %v", err)
		}
	}
}

// preempted lets a daemon stop in order while requests wait behind a write that
// does not end: each is answered, and nothing comes of those that waited.
func preempted(first ask, waiting ...ask) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		a := w.daemon("a")
		w.active(1, soon)
		p, before := w.withOrders()
		held := a.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: writes(w.keys.Prefix() + "partitions/")})
		defer held.Remove()
		answers := make(chan error, len(waiting)+1)
		send := func(what ask) { go func() { answers <- what(w.call(), a.admin) }() }
		send(first)
		<-held.Hit()
		for _, what := range waiting {
			send(what)
		}
		w.await("all wait in the queue", soon, func() bool { return a.Controller.Snapshot().Requests >= len(waiting) })
		a.stop()
		for range cap(answers) {
			select {
			case err := <-answers:
				if got := rpc.ReasonOf(err); got != cluster.NotController {
					t.Errorf("answered with %v: %v", got, err)
				}
			case <-time.After(limit):
				t.Fatal("not answered")
			}
		}
		held.Remove()
		w.daemon("b")
		w.active(2, soon)
		w.unchanged(p, before)
	}
}

func topicIDsAreAdded(t *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	b := w.startBrokers(1)[0]
	first := w.create("orders", 1, 1)
	second := w.create("payments", 1, 1)
	w.converged(soon)
	if first == second || first == (cluster.TopicID{}) || second == (cluster.TopicID{}) {
		t.Errorf("ids %v and %v", first, second)
	}
	for name, id := range map[string]cluster.TopicID{"orders": first, "payments": second} {
		s, ok := b.Partition(cluster.PartitionID{Topic: id})
		if !ok || s.Topic != name || !w.inTruth(name, func(_ *cluster.Image, t *cluster.Topic) bool { return t.ID == id }) {
			t.Errorf("topic %s: the broker has %v, %+v", name, ok, s)
		}
	}
	w.erase("orders", first)
	if again := w.create("orders", 1, 1); again == first {
		t.Errorf("a topic that was made again has the id of the one before")
	}
	w.converged(soon)
}

// The id survives more partitions, and goes with the topic.
func topicIDHandling(t *testing.T, w *world) {
	w.daemon("a")
	w.active(1, soon)
	b := w.startBrokers(1)[0]
	id := w.create("orders", 1, 1)
	resp, err := w.someAdmin(0).CreatePartitions(w.call(), &pb.CreatePartitionsRequest{Topics: []*pb.NewPartitions{{Topic: "orders", Count: 2}}})
	if err != nil || resp.GetResults()[0].GetError() != "" {
		t.Fatalf("more partitions: %v, %v", resp, err)
	}
	w.await("both partitions are there under the id", soon, func() bool {
		return w.inTruth("orders", func(_ *cluster.Image, t *cluster.Topic) bool { return t.ID == id && t.Made() == 2 })
	})
	w.converged(soon)
	if _, ok := b.Partition(cluster.PartitionID{Topic: id, Index: 1}); !ok {
		t.Error("the broker does not know the new partition by the id")
	}
	w.erase("orders", id)
	w.await("the broker has forgotten the id", soon, func() bool {
		_, known := b.Metadata(cluster.PartitionID{Topic: id})
		return !known && len(b.Partitions()) == 0
	})
}

// The id stays when another daemon is active, or the same one again.
func topicIDPersists(another bool) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		a := w.daemon("a")
		w.active(1, soon)
		w.startBrokers(2)
		id := w.create("orders", 1, 2)
		if another {
			w.daemon("b")
			w.candidateLease("b", 0)
		}
		at := a.Endpoint
		a.stop()
		if !another {
			w.daemon("a", listen(at))
		}
		w.active(2, soon)
		w.converged(soon)
		if !w.inTruth("orders", func(_ *cluster.Image, t *cluster.Topic) bool { return t.ID == id }) {
			t.Error("the topic has another id")
		}
		if r := w.partition(cluster.PartitionID{Topic: id}); r.LeaderEpoch != 0 {
			t.Errorf("leader epoch %d", r.LeaderEpoch)
		}
	}
}

// The leader dies with the active, twice. Kafka spends two leader epochs each
// time, 0 -> 2 -> 4.
func leaderElectionAndEpoch(t *testing.T, w *world) {
	w.daemon("a", brief)
	w.active(1, soon)
	w.daemon("b", brief)
	w.candidateLease("b", 0)
	for id := range cluster.BrokerID(2) {
		w.registered(w.broker(id, follows(w)))
	}
	p := cluster.PartitionID{Topic: w.assigned("orders", []int32{0, 1})}
	w.converged(soon)
	var before cluster.LeaderEpoch
	for round, leader := range []cluster.BrokerID{0, 1} {
		_, id := w.seat()
		active := w.daemons[slices.IndexFunc(w.daemons, func(d *daemon) bool { return d.ID == id && d.alive() })]
		at := active.Endpoint
		w.brokers[slices.IndexFunc(w.brokers, func(n *node) bool { return n.id == leader && n.alive() })].kill()
		active.kill()
		w.awaitRecord("the other broker leads", p, func(r cluster.Partition) bool { return r.Leader == 1-leader })
		r := w.partition(p)
		if most := cluster.LeaderEpoch(2 * (round + 1)); r.LeaderEpoch <= before || r.LeaderEpoch > most {
			t.Errorf("leader epoch %d after %d, at most %d", r.LeaderEpoch, before, most)
		}
		before = r.LeaderEpoch
		if round == 0 {
			w.daemon(id, brief, listen(at))
			w.registered(w.broker(leader, follows(w)))
			w.awaitRecord("both are in sync", p, func(r cluster.Partition) bool { return len(r.ISR) == 2 })
			w.converged(soon)
		}
	}
}

// elsewhere are the names that tests stand for which have no table of names: tests
// of this package, and vectors that statemachine plays.
var elsewhere = map[string]string{
	"testControllerDetectsBouncedBrokers":                               "func TestBR1BouncedInsideTTL(",
	"testIOExceptionDuringCheckpoint":                                   "func TestStorageOfALeaderFails(",
	"testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch": "func TestControllerRejectControlledShutdownRequestWithStaleBrokerEpoch(",

	"testPreferredReplicaLeaderElection":                                   vectors,
	"testPreferredReplicaLeaderElectionWithOfflinePreferredReplica":        vectors,
	"testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled": vectors,
}

// notPlayed are the names that do not apply, and why.
var notPlayed = map[string]string{
	"testTopicIdsAreNotAdded":                                                "no older protocol: every topic has an id",
	"testNoTopicIdPersistsThroughControllerReelection":                       "no topics without an id",
	"testTopicIdMigrationAndHandlingWithOlderVersion":                        "no topics without an id",
	"testTopicIdCreatedOnUpgrade":                                            "no topics without an id",
	"testTopicIdCreatedOnUpgradeMultiBrokerScenario":                         "no topics without an id",
	"shouldTriggerReassignmentOnControllerStartup":                           "no key with requests: a reassignment is in the records of its partitions",
	"shouldDeleteReassignmentZnodeAfterApiReassignmentForPartitionCompletes": "no key with requests",
}

const (
	files   = "../../statemachine/testdata/scenarios/kafka"
	vectors = "../../statemachine/testdata/vectors.json"
)

// kafkas are names of Kafka's integration tests: of ControllerIntegrationTest those
// that are not about AlterPartition, of which there are vectors, LeaderElectionTest,
// UncleanLeaderElectionTest, of LogDirFailureTest those about the controller, and of
// ReassignPartitionsClusterTest and ReassignPartitionsIntegrationTest those about
// reassignments that are cancelled, superseded and stacked.
var kafkas = strings.Fields(`
testEmptyCluster
testControllerEpochPersistsWhenAllBrokersDown
testControllerMoveIncrementsControllerEpoch
testMetadataPropagationOnControlPlane
testMetadataPropagationOnBrokerChange
testMetadataPropagationForOfflineReplicas
testMetadataPropagationOnBrokerShutdownWithNoReplicas
testTopicCreation
testTopicCreationWithOfflineReplica
testTopicPartitionExpansion
testTopicPartitionExpansionWithOfflineReplica
testPartitionReassignment
testPartitionReassignmentToBrokerWithOfflineLogDir
testPartitionReassignmentWithOfflineReplicaHaltingProgress
testPartitionReassignmentResumesAfterReplicaComesOnline
testPreferredReplicaLeaderElection
testBackToBackPreferredReplicaLeaderElections
testPreferredReplicaLeaderElectionWithOfflinePreferredReplica
testAutoPreferredReplicaLeaderElection
testAutoPreferredReplicaLeaderElectionWithOtherReassigningPartitions
testAutoPreferredReplicaLeaderElectionWithSamePartitionBeingReassigned
testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled
testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled
testControlledShutdown
testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch
testControllerMoveOnTopicCreation
testControllerMoveOnTopicDeletion
testControllerMoveOnPreferredReplicaElection
testControllerMoveOnPartitionReassignment
testControllerDetectsBouncedBrokers
testPreemptionOnControllerShutdown
testPreemptionWithCallbacks
testTopicIdsAreAdded
testTopicIdsAreNotAdded
testTopicIdMigrationAndHandling
testTopicIdMigrationAndHandlingWithOlderVersion
testTopicIdPersistsThroughControllerReelection
testTopicIdPersistsThroughControllerRestart
testTopicIdCreatedOnUpgrade
testTopicIdCreatedOnUpgradeMultiBrokerScenario
testNoTopicIdPersistsThroughControllerReelection
testTopicIdUpgradeAfterReassigningPartitions
testLeaderElectionAndEpoch
testUncleanLeaderElectionEnabled
testUncleanLeaderElectionDisabled
testUncleanLeaderElectionEnabledByTopicOverride
testUncleanLeaderElectionDisabledByTopicOverride
testUncleanLeaderElectionInvalidTopicOverride
testTopicUncleanLeaderElectionEnableWithAlterTopicConfigs
testIOExceptionDuringLogRoll
testIOExceptionDuringCheckpoint
shouldBeAbleToCancelThroughApi
testCancellation
testCancelAndSetSomeReassignments
znodeReassignmentShouldOverrideApiTriggeredReassignment
shouldUseLatestOrderingIfTwoConsecutiveReassignmentsHaveSameSetButDifferentOrdering
shouldBeAbleToIncrementallyStackDifferentReassignments
shouldCreatePartitionsForTopicNotInReassignment
shouldTriggerReassignmentOnControllerStartup
shouldDeleteReassignmentZnodeAfterApiReassignmentForPartitionCompletes
`)

// Each name is accounted for exactly once, and what is named is there.
func TestNamesAreAccountedFor(t *testing.T) {
	t.Parallel()
	places := map[string][]string{}
	for name := range named {
		places[name] = append(places[name], "TestNamed")
	}
	entries, err := os.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".txt")
		places[name] = append(places[name], e.Name())
	}
	for name, why := range notPlayed {
		places[name] = append(places[name], why)
	}
	for name, place := range elsewhere {
		places[name] = append(places[name], place)
		if !inSource(t, name, place) {
			t.Errorf("%s: nothing is at %s", name, place)
		}
	}
	for _, name := range kafkas {
		if n := len(places[name]); n != 1 {
			t.Errorf("%s is accounted for %d times: %q", name, n, places[name])
		}
		delete(places, name)
	}
	for name, at := range places {
		t.Errorf("%q: %s is not a name of Kafka's, or is twice in the list", at, name)
	}
}

// inSource reports whether there is a vector of that name, or a test of this package that
// begins as the place says.
func inSource(t *testing.T, name, place string) bool {
	t.Helper()
	paths, want := []string{vectors}, `"name": "`+name+`"`
	if place != vectors {
		var err error
		if paths, err = filepath.Glob("*_test.go"); err != nil {
			t.Fatal(err)
		}
		want = "\n" + place
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), want)
	})
}
