package statemachine

import (
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// playElectLeaders tells the stories of KIP-460 that the vectors hold as text.
// An entry is "partition: what came of it"; those of a request for everything
// that need no election are left out.
func playElectLeaders(t *testing.T, v vector) (got, want string) {
	preferred := Election{Type: pb.ElectionType_ELECTION_TYPE_PREFERRED}
	unclean := Election{Type: pb.ElectionType_ELECTION_TYPE_UNCLEAN}
	w := newWorld(t)
	w.up(0, 1, 2, 3)
	place := func(parts ...[]cluster.BrokerID) cluster.TopicID {
		var out []cluster.Partition
		for _, replicas := range parts {
			out = append(out, newPartition(replicas, ViewOf(w.im)))
		}
		return w.topic("t", out...)
	}
	ask := func(topic cluster.TopicID, e Election, all bool, indices ...int32) string {
		var out []string
		for _, i := range indices {
			if r := w.elect(topic, i, e); !all || r != string(cluster.ElectionNotNeeded) {
				out = append(out, string('0'+i)+": "+r)
			}
		}
		return strings.Join(out, ", ")
	}
	// leaderless is a topic on brokers 1 and 2 whose data is with 1, which is
	// dead, in all partitions but those on 0 and 3.
	leaderless := func(parts ...[]cluster.BrokerID) cluster.TopicID {
		topic := place(parts...)
		for _, ids := range [][]cluster.BrokerID{{2}, {1}} {
			w.down(ids...)
			w.settle()
		}
		w.up(2)
		w.settle()
		return topic
	}
	lost, alive := ids(1, 2), ids(3, 0)
	switch strings.TrimPrefix(strings.TrimPrefix(v.Name, "testElect"), "ed") {
	case "PreferredLeaders#noop":
		return ask(place(ids(0, 1)), preferred, false, 0), "0: ELECTION_NOT_NEEDED"
	case "PreferredLeaders#noop-null":
		return ask(place(ids(0, 1), ids(1, 0)), preferred, true, 0, 1), ""
	case "PreferredLeaders#real", "PreferredLeaders#null":
		topic := place(ids(1, 0), ids(1, 0))
		w.down(1)
		w.settle()
		w.up(1)
		w.settle()
		for i := range int32(2) {
			e := w.entry(w.im.Partition(cluster.PartitionID{Topic: topic, Index: i}), 0, 1)
			e.Partition = i
			w.alter(topic, 0, e)
		}
		if v.Name == "testElectPreferredLeaders#real" {
			got = ask(topic, preferred, false, 0)
			return got + ", then " + ask(topic, preferred, false, 1), "0: leader 1, then 1: leader 1"
		}
		ask(topic, preferred, false, 0)
		return ask(topic, preferred, true, 0, 1), "1: leader 1"
	case "PreferredLeaders#unknown", "UncleanLeadersForUnknownPartitions":
		place(ids(0, 1))
		return ask(cluster.TopicID{9}, preferred, false, 0) + ", " + ask(topicID("t"), unclean, false, 7),
			"0: UNKNOWN_TOPIC_OR_PARTITION, 7: UNKNOWN_TOPIC_OR_PARTITION"
	case "PreferredLeaders#down":
		topic := place(ids(1, 0))
		w.down(1)
		w.settle()
		got = ask(topic, preferred, false, 0) + ", " + ask(topic, preferred, true, 0)
		return got + ", " + state(w.partition(topic)),
			"0: PREFERRED_LEADER_NOT_AVAILABLE, 0: PREFERRED_LEADER_NOT_AVAILABLE, leader 0 isr [0] le 1 pe 1"
	case "UncleanLeadersForOnePartition":
		return ask(leaderless(lost), unclean, false, 0), "0: leader 2"
	case "UncleanLeadersForManyPartitions":
		return ask(leaderless(lost, lost), unclean, false, 0, 1), "0: leader 2, 1: leader 2"
	case "UncleanLeadersForAllPartitions":
		return ask(leaderless(lost, alive), unclean, true, 0, 1), "0: leader 2"
	case "UncleanLeadersAndNoop":
		return ask(leaderless(lost, alive), unclean, false, 0, 1), "0: leader 2, 1: ELECTION_NOT_NEEDED"
	case "UncleanLeadersWhenNoLiveBrokers":
		topic := leaderless(lost)
		w.down(2)
		w.settle()
		return ask(topic, unclean, false, 0), "0: ELIGIBLE_LEADERS_NOT_AVAILABLE"
	}
	t.Fatalf("nobody tells this story: %s", v.Input)
	return "", ""
}
