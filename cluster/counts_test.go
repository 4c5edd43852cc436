package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// countsDiffer reports how the counts that an image keeps are others than a
// walk over all partitions gives.
func countsDiffer(im *Image) error {
	var all Health
	var wanted int64
	loads, alike := map[BrokerID]Load{}, map[string]int{}
	count := func(id BrokerID, fn func(*Load)) {
		l := loads[id]
		fn(&l)
		loads[id] = l
	}
	for _, t := range im.Topics {
		h := Health{Partitions: t.Made()}
		im.Partitions(t, func(_ PartitionID, p *Partition) {
			if p == nil {
				h.Unknown++
				return
			}
			if p.Leader == NoLeader {
				h.Offline++
			} else {
				count(p.Leader, func(l *Load) {
					if l.Leaders++; len(p.Replicas) == 1 {
						l.Alone++
					}
				})
			}
			if len(p.ISR) < len(p.Replicas) {
				h.UnderReplicated++
			}
			count(p.Replicas[0], func(l *Load) { l.Preferred++ })
			if !p.LedByPreferred() {
				h.NotPreferred++
				count(p.Replicas[0], func(l *Load) { l.Imbalanced++ })
			}
			for _, id := range p.Replicas {
				count(id, func(l *Load) { l.Replicas++ })
			}
		})
		if got := im.Health(t); got != h {
			return fmt.Errorf("health of topic %s is %+v, want %+v", t.Name, got, h)
		}
		all = Health{
			all.Partitions + h.Partitions, all.Unknown + h.Unknown, all.Offline + h.Offline, all.UnderReplicated + h.UnderReplicated,
			all.NotPreferred + h.NotPreferred,
		}
		wanted += int64(max(t.Made(), t.Wanted()))
		alike[MetricName(t.Name)]++
	}
	if got := im.HealthOfAll(); got != all {
		return fmt.Errorf("health is %+v, want %+v", got, all)
	}
	if got := im.Wanted(); got != wanted {
		return fmt.Errorf("%d partitions are wanted, want %d", got, wanted)
	}
	for id := range BrokerID(8) {
		if got := im.Load(id); got != loads[id] {
			return fmt.Errorf("load of broker %d is %+v, want %+v", id, got, loads[id])
		}
	}
	names := slices.Sorted(maps.Keys(im.Topics))
	if got := namesOf(im.SortedTopics()); !slices.Equal(got, names) {
		return fmt.Errorf("topics in order are %v, want %v", got, names)
	}
	for _, name := range names {
		if got := len(im.TopicsLike(name)); got != alike[MetricName(name)] {
			return fmt.Errorf("%d topics are like %s, want %d", got, name, alike[MetricName(name)])
		}
	}
	for metric, names := range im.counts.alike {
		if alike[metric] == 0 {
			return fmt.Errorf("topics like %s are %v, want none", metric, names)
		}
	}
	if len(im.counts.topics) > len(im.Topics) {
		return fmt.Errorf("%d topics are counted of %d", len(im.counts.topics), len(im.Topics))
	}
	return nil
}

func namesOf(topics []*Topic) []string {
	var out []string
	for _, t := range topics {
		out = append(out, t.Name)
	}
	return out
}

func TestTopicsAfter(t *testing.T) {
	f := newFixture()
	for i, name := range []string{"d", "b", "a.c", "a_c"} {
		id := TopicID{byte(i + 1)}
		f.set(testKeys.Topic(name), &pb.TopicRecord{TopicId: id[:], BlockSize: 1})
	}
	for _, c := range []struct {
		after string
		limit int
		want  []string
	}{
		{"", 10, []string{"a.c", "a_c", "b", "d"}},
		{"", 2, []string{"a.c", "a_c"}},
		{"a_c", 1, []string{"b"}},
		{"a_d", 9, []string{"b", "d"}},
		{"d", 9, nil},
	} {
		if got := namesOf(f.im.TopicsAfter(c.after, c.limit)); !slices.Equal(got, c.want) {
			t.Errorf("after %q at most %d: %v, want %v", c.after, c.limit, got, c.want)
		}
	}
	if got := f.im.TopicsLike("a.c"); len(got) != 2 {
		t.Errorf("topics like a.c are %v", got)
	}
	f.unset(testKeys.Topic("a.c"))
	if got := f.im.TopicsLike("a.c"); !slices.Equal(got, []string{"a_c"}) {
		t.Errorf("topics like a.c are %v, want a_c", got)
	}
}
