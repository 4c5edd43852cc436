package rpc

import (
	"fmt"
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// Stuck are the partitions of which a broker's last result was a failure, as
// "broker 1 topic/partition: message": the first ones, at most so many, and how
// many there are beside them.
func (p *Pusher) Stuck(im *cluster.Image, most int) (named []string, more int) {
	for _, t := range p.order {
		some, beside := t.stuck(im, most)
		for _, what := range some {
			named = append(named, fmt.Sprintf("broker %d %s", t.id, what))
		}
		more += len(some) + beside
	}
	slices.Sort(named)
	named = named[:min(len(named), most)]
	return named, more - len(named)
}

// stuck are those of one broker.
func (t *target) stuck(im *cluster.Image, most int) (named []string, more int) {
	type failure struct {
		id cluster.PartitionID
		r  *retry
	}
	var first []failure
	for _, of := range []map[cluster.PartitionID]*retry{t.retries, t.offline} {
		for id, r := range of {
			if more++; len(first) == most && (most == 0 || id.Compare(first[most-1].id) > 0) {
				continue
			}
			i, _ := slices.BinarySearchFunc(first, id, func(f failure, id cluster.PartitionID) int { return f.id.Compare(id) })
			first = slices.Insert(first, i, failure{id, r})
			first = first[:min(len(first), most)]
		}
	}
	for _, f := range first {
		name := f.id.Topic.String()
		if topic := im.TopicByID(f.id.Topic); topic != nil {
			name = topic.Name
		}
		named = append(named, fmt.Sprintf("%s/%d: %s", name, f.id.Index, f.r.message))
	}
	burials := append(t.stuckBurials(im), t.stuckLeavers(im)...)
	more += len(burials)
	named = append(named, burials...)
	named = named[:min(len(named), most)]
	return named, more - len(named)
}

// stuckInShort names the first of them; empty: there is none.
func (t *target) stuckInShort(im *cluster.Image) string {
	named, more := t.stuck(im, 1)
	switch {
	case len(named) == 0:
		return ""
	case more == 0:
		return named[0]
	}
	return fmt.Sprintf("%s, and %d more", named[0], more)
}
