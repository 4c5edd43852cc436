package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// set changes settings of the cluster until that is answered.
func (w *world) set(set map[string]string, unset ...string) {
	insist(w, "settings", func(ctx context.Context, a pb.AdminServiceClient) (*pb.AlterSettingsResponse, error) {
		return a.AlterSettings(ctx, &pb.AlterSettingsRequest{Set: set, Unset: unset, Reason: "test"})
	}, func(*pb.AlterSettingsResponse) error { return nil })
}

// configure changes settings of a topic until that is answered.
func (w *world) configure(topic string, set map[string]string, unset ...string) {
	insist(w, "topic settings", func(ctx context.Context, a pb.AdminServiceClient) (*pb.AlterTopicsResponse, error) {
		return a.AlterTopics(ctx, &pb.AlterTopicsRequest{Topics: []string{topic}, Set: set, Unset: unset, Reason: "test"})
	}, func(resp *pb.AlterTopicsResponse) error {
		if got := resp.GetResults()[0].GetError(); got != "" {
			return errors.New(got)
		}
		return nil
	})
}

// Partitions whose only replica in sync is gone: the setting of the cluster, that
// of the topic, both and neither, turned on while they are offline. The topic's
// value wins, also "false"; what is turned on acts within seconds; turned off again
// it elects nobody, also after a failover.
func TestTP7UncleanElectionBySettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.allowUnclean = true
	w.daemon("a")
	w.daemon("b")
	w.active(1, soon)
	const name = cluster.UncleanElection
	var brokers []*node
	for id := range cluster.BrokerID(3) {
		brokers = append(brokers, w.broker(id))
		w.registered(brokers[id])
	}
	topics := []string{"neither", "topic-on", "topic-off", "later"}
	for _, topic := range topics {
		resp, err := w.someAdmin(0).CreateTopics(w.call(), &pb.CreateTopicsRequest{
			Topics: []*pb.NewTopic{{Name: topic, Assignments: []*pb.ReplicaAssignment{{Replicas: []int32{0, 1}}}}}, RequestId: topic,
		})
		if err != nil || resp.GetResults()[0].GetError() != "" {
			t.Fatal(resp, err)
		}
	}
	w.configure("topic-off", map[string]string{name: "false"})
	w.converged(soon)
	for _, topic := range topics {
		var id cluster.PartitionID
		w.inTruth(topic, func(_ *cluster.Image, t *cluster.Topic) bool { id.Topic = t.ID; return true })
		if r, err := w.shrink(w.call(), brokers, id); err != nil || r[0].Reason != "" {
			t.Fatalf("%s: %v, %v", topic, r, err)
		}
	}
	brokers[0].kill()
	led := func(topic string) bool {
		return w.inTruth(topic, func(im *cluster.Image, t *cluster.Topic) bool {
			return every(im, t, func(p *cluster.Partition) bool { return p.Leader == 1 })
		})
	}
	w.await("all are offline", limit, func() bool { return w.offline() == len(topics) })

	w.configure("topic-on", map[string]string{name: "true"})
	w.await("the topic that is turned on has a leader", soon, func() bool { return led("topic-on") })
	if n := w.offline(); n != 3 {
		t.Errorf("%d are offline, want 3", n)
	}
	w.resign()
	w.set(map[string]string{name: "true"})
	w.await("the cluster is turned on", soon, func() bool { return led("neither") && led("later") })
	w.resign()
	w.active(3, limit)
	pass(longOr(soon, soon/10))
	if led("topic-off") || w.offline() != 1 {
		t.Error("a topic that says false has had an unclean election")
	}
	w.configure("topic-off", nil, name)
	w.await("without a value of its own that of the cluster holds", soon, func() bool { return led("topic-off") })

	// Turned off again: broker 1 goes, and broker 0, which is back, was not in sync.
	w.set(nil, name)
	brokers[0] = w.broker(0)
	w.registered(brokers[0])
	brokers[1].kill()
	w.await("only topic-on may", limit, func() bool {
		return w.offline() == 3 && w.inTruth("topic-on", func(im *cluster.Image, t *cluster.Topic) bool {
			return every(im, t, func(p *cluster.Partition) bool { return p.Leader == 0 })
		})
	})
}

// What is set for the cluster and for topics reaches brokers, also those that were
// away or restarted meanwhile, whoever is active; what is taken back is forgotten.
func TestSettingsReachBrokers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.daemon("b")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	id := w.create("orders", 3, 2)
	told := func(settings, config map[string]string) {
		t.Helper()
		w.await(fmt.Sprintf("brokers know %v and %v", settings, config), soon, func() bool {
			for _, b := range brokers {
				if b.alive() && (!maps.Equal(b.Settings(), settings) || !maps.Equal(b.TopicConfig(id), config)) {
					return false
				}
			}
			return true
		})
	}
	told(nil, nil)
	w.set(map[string]string{"min.insync.replicas": "2", "my.own": "x"})
	w.configure("orders", map[string]string{"retention.ms": "1000", "min.insync.replicas": "1"})
	told(map[string]string{"min.insync.replicas": "2", "my.own": "x"}, map[string]string{"retention.ms": "1000", "min.insync.replicas": "1"})
	brokers[2].kill()
	w.resign()
	w.set(nil, "my.own")
	w.configure("orders", map[string]string{"retention.ms": "2"}, "min.insync.replicas")
	brokers[2] = w.broker(2)
	w.registered(brokers[2])
	told(map[string]string{"min.insync.replicas": "2"}, map[string]string{"retention.ms": "2"})
	w.resign()
	w.configure("orders", nil, "retention.ms")
	w.set(nil, "min.insync.replicas")
	told(nil, nil)
}
