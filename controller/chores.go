package controller

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// maxChores bounds the chores of one kind in a plan.
const maxChores = 256

// Limits of single chores of a plan.
const (
	maxCompleted = 4096 // partitions of one topic
	maxSwept     = 2048 // blocks
	buryCost     = 4    // so many partitions of a topic that is deleted take as long as a write
)

// asideFor is for how long topics that cannot be completed are left alone.
const asideFor = time.Second

// maxGuarded is up to how many blocks of a topic are compared when it is
// deleted.
const maxGuarded = 100

// choresDue reports whether there is something to write that no request has
// asked for, beside the agenda.
func (l *Loop) choresDue() bool {
	return l.machine.TopicsDue() > len(l.aside) || len(l.aside) > 0 && l.now >= l.asideUntil || len(l.pusher.Confirmed()) > 0 || l.sweeping != 0 || l.marksDue() || len(l.pusher.Dead(l.im)) > 0 || l.balance.brokers != nil || l.queueDue() || l.pusher.LeftDue(l.im)
}

// doChores deletes the topics that are marked, makes the partitions that are
// wanted, deletes the keys of dead brokers, marks those that do not answer,
// takes those that have confirmed out of tombstones, deletes hidden blocks,
// and goes on with balancing leaders and with reassignments.
func (d *draft) doChores() {
	d.doTopics()
	d.buryBrokers()
	d.markBrokers()
	d.shrinkTombstones()
	d.sweep()
	d.balanceLeaders()
	d.clearLeft()
	d.moveQueued()
}

// topicsLeft reports whether a topic waits that the last plan has not come to.
func (l *Loop) topicsLeft() bool {
	return l.plan == nil && l.now >= l.pause && l.machine.TopicsDue() > len(l.aside)
}

// doTopics deletes topics and completes others. One that cannot be completed is
// set aside for a while, so that however many there are, they hold up no other
// and cost little.
func (d *draft) doTopics() {
	l := d.l
	if l.now >= l.asideUntil {
		clear(l.aside)
	}
	n := 0
	for t := range l.machine.Topics() {
		if n == maxChores || d.writes >= d.limit {
			break
		}
		if _, aside := l.aside[t.ID]; aside && !t.Deleting() {
			continue
		}
		n++
		if t.Deleting() {
			d.deleteTopic(t, 0)
		} else if !d.completeTopic(t, -int64(n)) {
			if len(l.aside) == 0 {
				l.asideUntil = l.now + asideFor
			}
			l.aside[t.ID] = struct{}{}
		}
	}
}

// completeTopic makes a slice of the partitions that a topic's record wants,
// the record after them. The owner, which is no request, keeps them together.
func (d *draft) completeTopic(t *cluster.Topic, owner int64) bool {
	im := d.l.im
	record, parts, rej := statemachine.Complete(im, d.term, t, maxCompleted, d.l.cfg.Rand.Uint64())
	if rej != nil {
		return false // a problem that is named
	}
	for _, w := range parts {
		if !d.put(w, owner) {
			return false
		}
	}
	d.altered[t.ID] = true
	key := im.Keys.Topic(t.Name)
	d.records = append(d.records, unit{
		conds:  []store.Cond{store.ModRevIs(key, t.ModRev)},
		ops:    []store.Op{store.Put(key, cluster.Encode(record))},
		owners: []int64{owner},
	})
	return true
}

// sweep deletes blocks that a creation which did not come to its end has left.
// A list has shown that the image knows all topic records, and nothing that
// would count the blocks can be on its way any more: they are of an earlier
// term, or older than the list before.
func (d *draft) sweep() {
	l := d.l
	upTo := l.sweeping
	l.sweeping = 0
	if upTo == 0 || l.im.UnreadableTopics() {
		return
	}
	n := 0
	for _, b := range l.im.HiddenBlocks() {
		t := l.im.TopicByID(b.ID.Topic)
		if b.ModRev > upTo || t != nil && (t.Deleting() || l.im.Had(t) > t.Wanted()) || d.making[b.ID.Topic] {
			continue
		}
		if n++; n > maxSwept {
			l.sweeping = upTo
			return
		}
		key := l.im.Keys.Block(b.ID)
		u := &unit{conds: []store.Cond{store.ModRevIs(key, b.ModRev)}, ops: []store.Op{store.Delete(key)}}
		if t != nil {
			u.conds = append(u.conds, store.ModRevIs(l.im.Keys.Topic(t.Name), t.ModRev))
		}
		d.chores = append(d.chores, u)
		l.Stats.Hidden++
	}
}

func (d *draft) shrinkTombstones() {
	confirmed := d.l.pusher.Confirmed()
	for _, id := range d.l.pusher.FirstConfirmed(maxChores) {
		t, brokers := d.l.im.Tombstones[id], confirmed[id]
		key := d.l.im.Keys.Tombstone(t.ID)
		op := store.Delete(key)
		if r := t.Without(func(id cluster.BrokerID) bool { return brokers[id] }); r != nil {
			op = store.Put(key, cluster.Encode(r))
		}
		d.chores = append(d.chores, &unit{conds: []store.Cond{store.ModRevIs(key, t.ModRev)}, ops: []store.Op{op}})
	}
}

// deleteTopics decides a request to delete topics. It takes two plans at least:
// the mark, then the deletion. A topic that is gone by then was deleted.
func (d *draft) deleteTopics(a *asked, r rpc.DeleteTopics) {
	if a.deletes == nil {
		a.deletes = d.l.toDelete(r.GetTopics())
	}
	more := false
	for _, result := range a.deletes {
		if result.GetError() != "" {
			continue
		}
		if d.writes >= d.limit {
			more = true
			break
		}
		switch t := d.l.im.TopicByID(cluster.TopicID(result.GetTopicId())); {
		case t == nil:
			again := &pb.TopicToDelete{Name: result.GetName(), TopicId: result.GetTopicId()}
			if _, rej := statemachine.FindTopic(d.l.im, again); rej.Reason == cluster.KafkaStorageError {
				result.Error, result.Message = string(rej.Reason), rej.Message
			}
		case d.altered[t.ID]:
			more = true
		case t.Deleting():
			d.deleteTopic(t, a.id)
		default:
			d.markTopic(t, r.GetReason(), a.id)
			more = true
		}
	}
	if !more {
		d.answers[a.id] = rpc.Answer{Response: &pb.DeleteTopicsResponse{Results: a.deletes}}
	}
}

// toDelete are the results of a request as far as they are known: the topics
// that it means, and why others cannot be deleted.
func (l *Loop) toDelete(topics []*pb.TopicToDelete) []*pb.DeleteTopicResult {
	times := map[cluster.TopicID]int{}
	for _, asked := range topics {
		if t, rej := statemachine.FindTopic(l.im, asked); rej == nil {
			times[t.ID]++
		}
	}
	var out []*pb.DeleteTopicResult
	for _, asked := range topics {
		result := &pb.DeleteTopicResult{Name: asked.GetName(), TopicId: asked.GetTopicId()}
		t, rej := statemachine.FindTopic(l.im, asked)
		switch {
		case rej != nil:
			result.Error, result.Message = string(rej.Reason), rej.Message
		case times[t.ID] > 1:
			result.Error, result.Message = string(cluster.InvalidRequest), "the request names the topic more than once"
		case !t.Deleting() && !l.im.Settings.On(cluster.DeleteTopics):
			result.Error, result.Message = string(cluster.TopicDeletionDisabled), "no topic may be deleted while setting "+cluster.DeleteTopics+" is false"
		case !t.Deleting() && t.DeleteProtected():
			result.Error, result.Message = string(cluster.PolicyViolation), "its setting "+cluster.DeleteProtection+" is true"
		default:
			result.Name, result.TopicId = t.Name, t.ID[:]
		}
		out = append(out, result)
	}
	return out
}

// markTopic writes the mark, once in a plan.
func (d *draft) markTopic(t *cluster.Topic, reason string, owner int64) {
	if u := d.deleted[t.ID]; u != nil {
		u.owners = append(u.owners, owner)
		return
	}
	key := d.l.im.Keys.Topic(t.Name)
	d.chore(t.ID, &unit{
		conds:  []store.Cond{store.ModRevIs(key, t.ModRev)},
		ops:    []store.Op{store.Put(key, cluster.Encode(statemachine.MarkDeleting(t, reason)))},
		owners: []int64{owner},
	})
}

// deleteTopic deletes a topic that is marked, in one transaction, once in a
// plan. Only the record has to be as it was: nobody writes the blocks of a
// topic that is marked. As many as fit are compared all the same.
func (d *draft) deleteTopic(t *cluster.Topic, owner int64) {
	u := d.deleted[t.ID]
	if u == nil {
		im := d.l.im
		key := im.Keys.Topic(t.Name)
		u = &unit{conds: []store.Cond{store.ModRevIs(key, t.ModRev)}}
		if blocks := im.BlocksOf(t.ID); len(blocks) <= maxGuarded {
			for _, n := range blocks {
				block := im.Keys.Block(cluster.BlockID{Topic: t.ID, Index: n})
				u.conds = append(u.conds, store.ModRevIs(block, im.ModRev(block)))
			}
		}
		d.writes += int(t.Made()) / buryCost
		if r := statemachine.Bury(im, d.term, t); r != nil { // first: who watches knows then why the rest goes
			u.ops = append(u.ops, store.Put(im.Keys.Tombstone(t.ID), cluster.Encode(r)))
		}
		u.ops = append(u.ops, store.Delete(key), store.DeletePrefix(im.Keys.Blocks(t.ID)))
		d.chore(t.ID, u)
	}
	if owner != 0 {
		u.owners = append(u.owners, owner)
	}
}

func (d *draft) chore(id cluster.TopicID, u *unit) {
	d.deleted[id] = u
	d.add(u)
}
