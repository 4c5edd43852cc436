package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/statemachine"
)

// ErrUnstored is what only the simulation sees, which knows what etcd holds at
// each moment: a command or an answer that says what is not stored.
var ErrUnstored = errors.New("said before it was stored")

// checkStored holds a partition's state that somebody was told against etcd.
func (w *World) checkStored(id cluster.PartitionID, leader cluster.BrokerID, le cluster.LeaderEpoch, pe cluster.PartitionEpoch, who string) {
	r := w.checker.history.records[id]
	said := epochs{le, pe}
	switch {
	case r == nil, r.epochs().below(said):
		w.blame(ErrUnstored, "%s was told of leader epoch %d, partition epoch %d of %s", who, le, pe, w.checker.name(id))
	case r.epochs() == said && cluster.BrokerID(r.GetLeader()) != leader:
		w.blame(ErrUnstored, "%s was told of leader %d of %s, it is %d", who, leader, w.checker.name(id), r.GetLeader())
	}
}

// afterglow is how long all has to stay well at the end: longer than any lease
// that nobody needs is left.
const afterglow = 12 * time.Second

// calmDown heals everything.
func (w *World) calmDown() {
	w.tracef("CALM")
	w.calm, w.noise, w.etcd.model.NoSpace, w.etcd.losing = true, 0, false, 0
	w.trapped, w.torn, w.bouncing = false, [brokers]bool{}, false
	w.thawEtcd()
	for _, s := range w.spoiled {
		w.repair(s)
	}
	w.disturbed()
	w.calmed, w.well = w.now, -1
	for i := range w.daemons {
		w.healEtcd(i)
		for b := range w.brokers {
			w.healBroker(i, b)
		}
		if d := w.daemons[i]; d != nil {
			w.thaw(&d.process)
		}
		w.startDaemon(i)
	}
	for i, b := range w.brokers {
		w.undrain(cluster.BrokerID(i))
		b.mendStorage()
		w.thaw(&b.process)
		w.startBroker(i)
	}
	w.unfreeze()
	w.lookAround()
}

// lookAround looks now and then whether all is well, and what is not when the
// time is up.
func (w *World) lookAround() {
	what := w.amiss()
	switch {
	case what != "":
		w.well = -1
		if w.now-w.calmed > w.p.bounds().Converge {
			w.blame(ErrNotConverged, "%s", what)
		}
	case w.well < 0:
		w.well = w.now
	}
	w.after(400*time.Millisecond+w.upTo(200*time.Millisecond), w.lookAround) // not in step with what is done at intervals
}

// settled reports whether all has been well for a while.
func (w *World) settled() bool {
	if w.well < 0 || w.now-w.well < afterglow {
		return false
	}
	for _, d := range w.daemons {
		if n := d.loop.Sweep(); n > 0 {
			w.blame(ErrNotConverged, "agenda of %s misses or has too much: %d partitions", d.name, n)
		}
	}
	if n := len(w.etcd.model.Leases()); n != daemons+brokers {
		w.blame(ErrNotConverged, "%d leases are left, of %d daemons and %d brokers", n, daemons, brokers)
	}
	return true
}

// amiss says what is not as it should be in the end; empty: nothing.
func (w *World) amiss() string {
	active := w.activeDaemon()
	if active == nil {
		return "nobody is active"
	}
	if !active.loop.Idle() {
		return active.name + " has something to do"
	}
	truth := w.truth()
	for _, d := range w.daemons {
		if d.loop.Image().Rev < truth.Rev {
			return d.name + " has not seen the newest revision"
		}
		if n := len(d.streams); (d == active) != (n == brokers) || d != active && n > 0 {
			return fmt.Sprintf("%s has %d streams to brokers", d.name, n)
		}
	}
	if len(truth.Candidates) != daemons || len(truth.Brokers) != brokers {
		return fmt.Sprintf("%d candidates, %d brokers", len(truth.Candidates), len(truth.Brokers))
	}
	for _, b := range truth.SortedBrokers() {
		if b.Draining() {
			return fmt.Sprintf("broker %d is draining", b.ID)
		}
	}
	if what := cmp.Or(w.topicsAmiss(truth), w.diskAmiss(truth), w.metadataAmiss(truth), w.straysAmiss(active)); what != "" {
		return what
	}
	if n := truth.MovesOfAll(); n.Moving+n.Queued+n.Leaving > 0 {
		for _, id := range active.loop.View().Moving(cluster.PartitionID{}, 1) {
			_, words := active.loop.View().WaitsFor(id)
			return fmt.Sprintf("reassignments are not at their end: %+v, %s, %+v, waits for %s", n, w.checker.name(id), *truth.Partition(id), words)
		}
	}
	if what := outOfBalance(truth); what != "" {
		return what
	}
	for _, b := range w.brokers {
		if !maps.Equal(b.gate.Settings(), truth.Settings.Record.GetConfig()) {
			return fmt.Sprintf("%s has settings %v, there are %v", b.name, b.gate.Settings(), truth.Settings.Record.GetConfig())
		}
		for _, t := range truth.SortedTopics() {
			if have := b.gate.TopicConfig(t.ID); !maps.Equal(have, t.Record.GetConfig()) {
				return fmt.Sprintf("%s has config %v of %s, there is %v", b.name, have, t.Name, t.Record.GetConfig())
			}
		}
	}
	for _, t := range truth.SortedTopics() {
		if t.Made() < t.Wanted() {
			return fmt.Sprintf("%s has %d of %d partitions", t.Name, t.Made(), t.Wanted())
		}
		if what := w.incomplete(truth, t); what != "" {
			return what
		}
	}
	list := w.etcd.model.List(w.keys.Prefix(), true)
	for _, d := range w.daemons {
		if keys := d.loop.Image().Differences(list); len(keys) > 0 {
			return d.name + " has another value of " + keys[0]
		}
	}
	return ""
}

// outOfBalance says which broker should get leaderships back, if somebody has
// set that it is looked at often.
func outOfBalance(truth *cluster.Image) string {
	s := truth.Settings
	if s.Frozen() {
		return "automation stands still"
	}
	if s.Number(cluster.ImbalanceInterval) > 10 {
		return ""
	}
	for _, id := range statemachine.Imbalanced(truth, s.Number(cluster.ImbalancePercentage)) {
		return fmt.Sprintf("broker %d leads too few of its partitions: %+v", id, truth.Load(id))
	}
	return ""
}

// topicsAmiss says which topic is missing, or there though it was deleted.
func (w *World) topicsAmiss(truth *cluster.Image) string {
	if n := len(w.checker.history.ever); n < w.topics {
		return fmt.Sprintf("of %d topics that were asked for %d were made", w.topics, n)
	}
	for _, id := range slices.Sorted(maps.Keys(w.checker.history.ever)) {
		name := w.checker.history.ever[id]
		if exists := truth.TopicByID(cluster.TopicID([]byte(id))) != nil; exists == w.isDoomed(id) {
			return fmt.Sprintf("topic %s is there: %v, its deletion was asked for: %v", name, exists, w.isDoomed(id))
		}
	}
	if n := len(truth.Tombstones); n > 0 {
		return fmt.Sprintf("%d tombstones are left", n)
	}
	for _, b := range w.brokers {
		for _, id := range b.gate.Replicas() {
			if truth.Partition(id) == nil {
				return fmt.Sprintf("%s hosts %s, which does not exist", b.name, id)
			}
		}
	}
	return ""
}

// incomplete says which replica of a topic does not do its part.
func (w *World) incomplete(im *cluster.Image, t *cluster.Topic) (what string) {
	im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
		if what != "" {
			return
		}
		name := id.String()
		switch {
		case p == nil:
			what = name + " has no readable record"
			return
		case p.Leader == cluster.NoLeader:
			what = name + " has no leader"
		case len(p.ISR) < len(p.Replicas):
			what = name + " has replicas out of sync"
		}
		for i, b := range w.brokers {
			if s, ok := b.gate.Metadata(id); !ok || s.LeaderEpoch != p.LeaderEpoch || s.PartitionEpoch != p.PartitionEpoch {
				what = b.name + " has other metadata of " + name
			}
			if s, ok := b.gate.Replica(id); slices.Contains(p.Replicas, cluster.BrokerID(i)) &&
				(!ok || b.done[id] != p.LeaderEpoch || s.LeaderEpoch != p.LeaderEpoch || s.PartitionEpoch != p.PartitionEpoch || !slices.Equal(s.ISR, p.ISR)) {
				what = b.name + " has another state of " + name
			}
		}
	})
	return what
}
