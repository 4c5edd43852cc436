package statemachine

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// vector is one of Kafka's own test cases, or one derived from its rules.
type vector struct {
	Name     string
	Kind     string
	Input    json.RawMessage
	Expected json.RawMessage
}

// difference is a vector that is not followed on purpose.
type difference struct {
	want string // what is done instead
	why  string
}

// differences are all of them.
var differences = map[string]difference{
	"alterPartition: recovery state value 25": {
		"INVALID_REQUEST", "one malformed entry does not fail the whole request",
	},
	"alterPartition v0: ISR contains a down broker": {
		"INELIGIBLE_REPLICA", "there is one version of the request, the newest",
	},
	"alterPartition v1: ISR contains a down broker": {
		"INELIGIBLE_REPLICA", "there is one version of the request, the newest",
	},
	"alterPartition rule: controller epoch guard lost": {
		"", "the caller learns of it when it stores the write, and the term ends then",
	},
	"reject (brokers 0..4, broker 4 has no rack) one broker without rack": {
		"INVALID_REPLICA_ASSIGNMENT", "there is no error for operators only",
	},
	"offline: same but recovery state unsupported keeps RECOVERED": {
		"leader 3 isr [3] le 5 recovering", "every broker knows the recovery state",
	},
	"reassigning, new preferred is already leader and in ISR: still counted IMBALANCED (quirk)": {
		"true", "it leads",
	},
	"leader removed -> leader -1": {
		"write true leader -1 isr [1 2 3] le 4", "while nobody can lead the ISR stays: each of its members has all that was committed",
	},
	"partition OnlinePartition->NonExistentPartition": {
		"to NonExistentPartition", "a deletion is one transaction: it was offline for no revision",
	},
	"replica NonExistentReplica->NonExistentReplica": {
		"to NonExistentReplica", "a change of a partition is no change of who has no replica of it",
	},
	"replica NewReplica->NonExistentReplica": {
		"to NonExistentReplica", "who is to delete its replica is no replica any more: the record says that it has left",
	},
	"replica OnlineReplica->NonExistentReplica": {
		"to NonExistentReplica", "who is to delete its replica is no replica any more: the record says that it has left",
	},
	"replica OfflineReplica->NonExistentReplica": {
		"to NonExistentReplica", "who is to delete its replica is no replica any more: the record says that it has left",
	},
	"leader crash with controller failover costs two epochs": {
		"leader 1 le 1, leader 0 le 2", "taking out the dead leader and electing another is one write",
	},
}

// vectors are the copies of Kafka's that are played here.
func vectors(t *testing.T) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// players return what is done, and what Kafka does in the same words, by kind.
func players() map[string]func(*testing.T, vector) (got, want string) {
	return map[string]func(*testing.T, vector) (got, want string){
		"election.offline":                  playElection,
		"election.reassign":                 playElection,
		"election.preferred":                playElection,
		"election.controlledShutdown":       playElection,
		"electionResult.offline":            playElectionResult,
		"electionResult.controlledShutdown": playElectionResult,
		"partition.scenario":                playPartitionScenario,
		"election.scenario":                 playElectionScenario,
		"electLeaders.scenario":             playElectLeaders,
		"assignment.auto":                   playAutoAssign,
		"assignment.auto.error":             playAutoAssignError,
		"assignment.auto.property":          playAutoAssignProperty,
		"assignment.rackAlternated":         playRackAlternated,
		"alterPartition":                    playAlter,
		"topicDeletion":                     playDeletionVector,
		"topicDeletion.scenario":            playDeletionStory,
		"channel.offlineReplicas":           playOfflineReplicas,
		"topic.create":                      playCreateTopic,
		"topic.create.error":                playCreateTopic,
		"replica.isrRemoval":                playIsrRemoval,
		"assignment.reassignTo":             playReassignTo,
		"assignment.view":                   playAssignmentView,
		"reassign.complete":                 playReassignComplete,
		"reassign.walk":                     playReassignWalk,
		"reassign.validation":               playReassignValidation,
		"partition.transition":              playTransition,
		"replica.transition":                playTransition,
		"autoBalance.threshold":             playBalanceThreshold,
		"imbalance.predicate":               playImbalancePredicate,
		"assignment.addPartitions":          playAddPartitions,
		"assignment.addPartitions.error":    playAddPartitions,
	}
}

// TestVector plays all vectors; a vector of a kind that nobody plays fails.
func TestVector(t *testing.T) {
	unused := maps.Clone(differences)
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			play := players()[v.Kind]
			if play == nil {
				t.Fatalf("nobody plays vectors of kind %s", v.Kind)
			}
			got, want := play(t, v)
			if d, ok := differences[v.Name]; ok {
				if delete(unused, v.Name); d.want == want || d.why == "" {
					t.Errorf("listed as a difference without being one, or without a reason; Kafka: %s", want)
				}
				want = d.want
			}
			if got != want {
				t.Errorf("got  %s\nwant %s\ninput %s", got, want, v.Input)
			}
		})
	}
	for name := range unused {
		t.Errorf("difference %q: no such vector", name)
	}
}

func read[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var x T
	if err := json.Unmarshal(raw, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

type electionInput struct {
	Assignment                 []cluster.BrokerID
	TargetReplicas             []cluster.BrokerID
	ISR                        []cluster.BrokerID
	LiveReplicas               []cluster.BrokerID
	LiveOrShuttingDown         []cluster.BrokerID
	LiveOrShuttingDownReplicas []cluster.BrokerID
	ShuttingDownBrokers        []cluster.BrokerID
	UncleanEnabled             bool
	LeaderEpoch                cluster.LeaderEpoch
	LeaderRecoveryState        string
}

func elect(kind string, in electionInput) (Outcome, bool) {
	online := func(id cluster.BrokerID) bool { return slices.Contains(in.LiveReplicas, id) }
	switch {
	case strings.HasSuffix(kind, ".offline"):
		return ElectOffline(in.Assignment, in.ISR, online, in.UncleanEnabled)
	case strings.HasSuffix(kind, ".reassign"):
		return ElectReassign(in.TargetReplicas, in.ISR, online)
	case strings.HasSuffix(kind, ".preferred"):
		return ElectPreferred(in.Assignment, in.ISR, online)
	}
	live := append(slices.Clone(in.LiveOrShuttingDown), in.LiveOrShuttingDownReplicas...)
	return ElectControlledShutdown(in.Assignment, in.ISR,
		func(id cluster.BrokerID) bool { return slices.Contains(live, id) },
		func(id cluster.BrokerID) bool { return slices.Contains(in.ShuttingDownBrokers, id) })
}

func playElection(t *testing.T, v vector) (got, want string) {
	type expected struct {
		Leader            *cluster.BrokerID
		UncleanMeterMarks int
	}
	x := read[expected](t, v.Expected)
	name := func(leader cluster.BrokerID, ok bool, unclean int) string {
		if !ok {
			return "none"
		}
		return "leader " + strconv.Itoa(int(leader)) + " unclean " + strconv.Itoa(unclean)
	}
	want = name(cluster.NoLeader, false, 0)
	if x.Leader != nil {
		want = name(*x.Leader, true, x.UncleanMeterMarks)
	}
	o, ok := elect(v.Kind, read[electionInput](t, v.Input))
	unclean := 0
	if o.Unclean {
		unclean = 1
	}
	return name(o.Leader, ok, unclean), want
}

// playElectionResult does without the recipients: every live broker that has a
// replica is told of every change.
func playElectionResult(t *testing.T, v vector) (got, want string) {
	type expected struct {
		Elected             bool
		Leader              cluster.BrokerID
		LeaderEpoch         cluster.LeaderEpoch
		ISR                 []cluster.BrokerID
		LeaderRecoveryState string
	}
	in, x := read[electionInput](t, v.Input), read[expected](t, v.Expected)
	short := func(p cluster.Partition) string {
		p.PartitionEpoch = 0
		return strings.Replace(state(&p), " pe 0", "", 1)
	}
	want = "none"
	if x.Elected {
		want = short(cluster.Partition{Leader: x.Leader, LeaderEpoch: x.LeaderEpoch, ISR: x.ISR, Recovery: recovery(x.LeaderRecoveryState)})
	}
	o, ok := elect(v.Kind, in)
	if !ok {
		return "none", want
	}
	old := cluster.Partition{Replicas: in.Assignment, ISR: in.ISR, LeaderEpoch: in.LeaderEpoch, Recovery: recovery(in.LeaderRecoveryState)}
	return short(succeed(&old, View{}, o, pb.ChangeCause_CHANGE_CAUSE_UNSPECIFIED)), want
}

func recovery(name string) pb.RecoveryState {
	return pb.RecoveryState(pb.RecoveryState_value["RECOVERY_STATE_"+name])
}

// playElectionScenario tells the stories that the vectors hold as text.
func playElectionScenario(t *testing.T, v vector) (got, want string) {
	w := newWorld(t)
	w.up(0, 1)
	at := func(topic cluster.TopicID) string {
		p := w.partition(topic)
		return "leader " + strconv.Itoa(int(p.Leader)) + " le " + strconv.Itoa(int(p.LeaderEpoch))
	}
	create := func(replicas ...cluster.BrokerID) cluster.TopicID {
		return w.topic("t", newPartition(replicas, ViewOf(w.im)))
	}
	preferred := func(topic cluster.TopicID) {
		w.elect(topic, 0, Election{Type: pb.ElectionType_ELECTION_TYPE_PREFERRED})
	}
	switch v.Name {
	case "testPreferredReplicaLeaderElection", "testAutoPreferredReplicaLeaderElection":
		topic := create(1, 0)
		w.down(1)
		w.settle()
		got = at(topic)
		w.up(1)
		w.settle()
		w.alter(topic, 0, w.entry(w.partition(topic), 0, 1))
		preferred(topic)
		return got + ", " + at(topic), "leader 0 le 1, leader 1 le 2"
	case "testPreferredReplicaLeaderElectionWithOfflinePreferredReplica":
		topic := create(1, 0)
		w.down(1)
		w.settle()
		preferred(topic)
		return at(topic), "leader 0 le 1"
	case "testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled",
		"testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled":
		topic := create(1)
		w.down(1)
		w.settle()
		return state(w.partition(topic)), "leader -1 isr [1] le 1 pe 1"
	case "leader crash with controller failover costs two epochs":
		topic := create(0, 1)
		w.down(0)
		w.settle()
		got = at(topic)
		w.up(0)
		w.settle()
		w.alter(topic, 1, w.entry(w.partition(topic), 1, 0))
		w.down(1)
		w.settle()
		return got + ", " + at(topic), "leader 1 le 2, leader 0 le 4"
	}
	t.Fatalf("nobody tells this story: %s", v.Input)
	return "", ""
}

// playPartitionScenario puts a stored record among brokers of which some shut
// down, and takes a step.
func playPartitionScenario(t *testing.T, v vector) (got, want string) {
	type record struct {
		Leader                      cluster.BrokerID
		ISR                         []cluster.BrokerID
		LeaderEpoch, PartitionEpoch int32
	}
	type input struct {
		Live, ShuttingDown, Assignment []cluster.BrokerID
		Stored                         record
	}
	in, x := read[input](t, v.Input), read[struct{ Written record }](t, v.Expected).Written
	w := newWorld(t)
	w.up(in.Live...)
	p := newPartition(in.Assignment, ViewOf(w.im))
	p.Leader, p.ISR = in.Stored.Leader, in.Stored.ISR
	p.LeaderEpoch, p.PartitionEpoch = cluster.LeaderEpoch(in.Stored.LeaderEpoch), cluster.PartitionEpoch(in.Stored.PartitionEpoch)
	topic := w.topic("t", p)
	w.drain(in.ShuttingDown...)
	w.settle()
	return state(w.partition(topic)), state(&cluster.Partition{
		Leader: x.Leader, ISR: x.ISR, LeaderEpoch: cluster.LeaderEpoch(x.LeaderEpoch), PartitionEpoch: p.PartitionEpoch + 1,
	})
}

type assignInput struct {
	Brokers          map[string]*string
	Partitions, RF   int32
	FixedStartIndex  int
	StartPartitionID int32
}

func (in assignInput) sites() []Site { return sitesOf(in.Brokers) }

func sitesOf(racks map[string]*string) []Site {
	var out []Site
	for id, rack := range racks {
		n, _ := strconv.Atoi(id)
		s := Site{ID: cluster.BrokerID(n)}
		if rack != nil {
			s.Rack = *rack
		}
		out = append(out, s)
	}
	return out
}

func playAutoAssign(t *testing.T, v vector) (got, want string) {
	in := read[assignInput](t, v.Input)
	first := max(0, in.StartPartitionID)
	placed, rej := AutoAssign(in.sites(), in.Partitions, in.RF, in.FixedStartIndex, in.FixedStartIndex, first)
	if rej != nil {
		t.Fatal(rej)
	}
	byID := map[string][]cluster.BrokerID{}
	for i, replicas := range placed {
		byID[strconv.Itoa(int(first)+i)] = replicas
	}
	return encode(t, byID), encode(t, read[map[string][]cluster.BrokerID](t, v.Expected))
}

func encode(t *testing.T, x any) string {
	t.Helper()
	b, err := json.Marshal(x) // maps in order of key
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func playAutoAssignError(t *testing.T, v vector) (got, want string) {
	type input struct {
		Brokers        int
		Racks          map[string]*string
		Partitions, RF int32
	}
	in := read[input](t, v.Input)
	sites := sitesOf(in.Racks)
	for i := range in.Brokers {
		sites = append(sites, Site{ID: cluster.BrokerID(i)})
	}
	want, _, _ = strings.Cut(read[struct{ Error string }](t, v.Expected).Error, " ")
	if name, ok := map[string]cluster.Reason{
		"InvalidPartitions":        cluster.InvalidPartitions,
		"InvalidReplicationFactor": cluster.InvalidReplicationFactor,
	}[want]; ok {
		want = string(name)
	}
	_, rej := AutoAssign(sites, in.Partitions, in.RF, 0, 0, 0)
	return reason(rej), want
}

func reason(rej *Rejection) string {
	if rej == nil {
		return ""
	}
	return string(rej.Reason)
}

// playAutoAssignProperty tries every start and shift where Kafka's test draws
// them at random.
func playAutoAssignProperty(t *testing.T, v vector) (got, want string) {
	in := read[assignInput](t, v.Input)
	sites := in.sites()
	if in.FixedStartIndex >= 0 {
		return properties(t, in, in.FixedStartIndex, in.FixedStartIndex, v), string(v.Expected)
	}
	for start := range sites {
		for shift := range sites {
			if got := properties(t, in, start, shift, v); got != string(v.Expected) {
				return got, string(v.Expected)
			}
		}
	}
	return string(v.Expected), string(v.Expected)
}

// properties returns the expectation if it is met, else what was found.
func properties(t *testing.T, in assignInput, start, shift int, v vector) string {
	t.Helper()
	first := max(0, in.StartPartitionID)
	placed, rej := AutoAssign(in.sites(), in.Partitions, in.RF, start, shift, first)
	if rej != nil {
		t.Fatal(rej)
	}
	racks := map[cluster.BrokerID]string{}
	for _, s := range in.sites() {
		racks[s.ID] = s.Rack
	}
	found := map[string][]int{}
	leaders, replicas := map[cluster.BrokerID]int{}, map[cluster.BrokerID]int{}
	for _, p := range placed {
		distinct := map[string]bool{}
		leaders[p[0]]++
		for _, id := range p {
			distinct[racks[id]] = true
			replicas[id]++
		}
		found["distinctRacksPerPartition"] = append(found["distinctRacksPerPartition"], len(distinct))
		found["replicasPerPartition"] = append(found["replicasPerPartition"], len(p))
		if hasDuplicates(p) {
			return "duplicate in " + encode(t, p)
		}
	}
	for id := range racks {
		found["leadersPerBroker"] = append(found["leadersPerBroker"], leaders[id])
		found["replicasPerBroker"] = append(found["replicasPerBroker"], replicas[id])
	}
	for name, value := range read[map[string]any](t, v.Expected) {
		switch name {
		case "noDuplicateBrokerInPartition", "firstPartitionId": // seen above; a name only
			continue
		}
		for _, n := range found[name] {
			if float64(n) != value {
				return name + " of " + encode(t, found[name]) + " at start " + strconv.Itoa(start) + ", shift " + strconv.Itoa(shift)
			}
		}
		if found[name] == nil {
			return "nobody measures " + name
		}
	}
	return string(v.Expected)
}

func playRackAlternated(t *testing.T, v vector) (got, want string) {
	sites := sitesOf(read[map[string]*string](t, v.Input))
	slices.SortFunc(sites, func(a, b Site) int { return int(a.ID) - int(b.ID) })
	var order []cluster.BrokerID
	for _, s := range alternateRacks(sites) {
		order = append(order, s.ID)
	}
	return encode(t, order), encode(t, read[[]cluster.BrokerID](t, v.Expected))
}

// playOfflineReplicas says which replicas count as offline.
func playOfflineReplicas(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Replicas, Live, ShuttingDown []cluster.BrokerID
		OfflineDirs                  map[cluster.BrokerID][]string
	}](t, v.Input)
	out := read[struct{ OfflineReplicas []cluster.BrokerID }](t, v.Expected)
	w := newWorld(t)
	w.m.offline = func(b *cluster.Broker, _ cluster.PartitionID) bool { return len(in.OfflineDirs[b.ID]) > 0 }
	w.up(in.Live...)
	w.drain(in.ShuttingDown...)
	topic := w.topic("t", newPartition(in.Replicas, ViewOf(w.im)))
	id := cluster.PartitionID{Topic: topic}
	var offline []cluster.BrokerID
	for _, r := range in.Replicas {
		if ReplicaStateOf(w.im.Partition(id), r, w.m.At(id)) == ReplicaOffline {
			offline = append(offline, r)
		}
	}
	return join(offline), join(out.OfflineReplicas)
}
