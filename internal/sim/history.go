package sim

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// history is what etcd holds and held. It reads the keys itself: a mistake of
// cluster.Image must not hide from the Checker.
type history struct {
	edited map[store.Rev]bool
	seat   cluster.Epoch // of the term that holds it, 0: empty
	epoch  cluster.Epoch // the highest that was ever won
	key    cluster.Epoch // what the epoch key holds, also if by hand; 0: nothing readable
	terms  map[cluster.Epoch]*pb.TermRecord

	live        map[cluster.BrokerID]cluster.BrokerEpoch
	liveChanged time.Duration
	draining    map[cluster.BrokerID]store.Rev // since when, in shutdown or unreachable
	joined      map[cluster.BrokerID]time.Duration
	topics      map[string]*pb.TopicRecord
	appeared    map[string]time.Duration   // topics
	ever        map[string]string          // names of topics by id
	newest      map[string]*pb.TopicRecord // the last readable one of a name; it outlives its key
	shapes      map[string]*pb.TopicRecord // the same by topic id
	records     map[cluster.PartitionID]*record
}

// record is the newest record of a partition. It outlives its key: epochs do
// not fall over a deletion either.
type record struct {
	*pb.PartitionRecord
	changed time.Duration
}

func (r *record) epochs() epochs {
	return epochs{cluster.LeaderEpoch(r.GetLeaderEpoch()), cluster.PartitionEpoch(r.GetPartitionEpoch())}
}

func newHistory() history {
	return history{
		edited:   map[store.Rev]bool{},
		terms:    map[cluster.Epoch]*pb.TermRecord{},
		live:     map[cluster.BrokerID]cluster.BrokerEpoch{},
		draining: map[cluster.BrokerID]store.Rev{},
		joined:   map[cluster.BrokerID]time.Duration{},
		topics:   map[string]*pb.TopicRecord{},
		appeared: map[string]time.Duration{},
		ever:     map[string]string{},
		newest:   map[string]*pb.TopicRecord{},
		shapes:   map[string]*pb.TopicRecord{},
		records:  map[cluster.PartitionID]*record{},
	}
}

// Watched takes in what happened in etcd. After a list, whose writers are not
// known, states are compared with what was known before.
func (c *Checker) Watched(at time.Duration, b store.Batch) {
	if b.Reset {
		c.listed(at, b)
		return
	}
	for rest := b.Changes; len(rest) > 0; {
		rev, n := rest[0].KV.ModRev, 1
		for n < len(rest) && rest[n].KV.ModRev == rev {
			n++
		}
		c.revision(at, rev, rest[:n])
		rest = rest[n:]
	}
}

// transaction is what one revision changed, and what stood before it.
type transaction struct {
	at      time.Duration
	rev     store.Rev
	trusted bool          // made by hand, or by nobody knows whom
	before  cluster.Epoch // who held the seat
	won     bool          // the seat was taken
	left    bool          // the seat was given up or lost
	keyed   bool          // the epoch key was changed
	minted  cluster.Epoch // to this; 0: it is gone or unreadable
}

func (c *Checker) revision(at time.Duration, rev store.Rev, changes []store.Change) {
	t := transaction{at: at, rev: rev, trusted: c.history.edited[rev], before: c.history.seat}
	for _, ch := range changes {
		switch ch.KV.Key {
		case c.keys.Controller():
			t.won, t.left = !ch.Deleted, ch.Deleted
		case c.keys.ControllerEpoch():
			t.keyed, t.minted = true, epochOf(ch)
		}
	}
	c.takeSeat(t)
	for _, ch := range changes {
		c.change(t, ch)
	}
}

func (c *Checker) listed(at time.Duration, b store.Batch) {
	h := &c.history
	held := false
	h.draining = map[cluster.BrokerID]store.Rev{}
	h.topics, h.live, h.liveChanged = map[string]*pb.TopicRecord{}, map[cluster.BrokerID]cluster.BrokerEpoch{}, at
	for _, ch := range b.Changes {
		held = held || ch.KV.Key == c.keys.Controller()
		if ch.KV.Key == c.keys.ControllerEpoch() {
			h.key = epochOf(ch)
			if h.key < h.epoch {
				c.violated(ErrEpochFell, at, "from %d to %d", h.epoch, h.key)
			}
		}
	}
	h.seat = 0
	if held {
		h.seat, h.epoch = h.key, max(h.epoch, h.key)
	}
	for _, ch := range b.Changes {
		c.change(transaction{at: at, rev: b.Rev, trusted: true}, ch)
	}
}

// takeSeat checks the change of the seat and of the epoch key (I2).
func (c *Checker) takeSeat(t transaction) {
	h := &c.history
	if !t.trusted {
		switch {
		case t.keyed && t.minted == 0:
			c.violated(ErrEpochFell, t.at, "epoch key lost at revision %d", t.rev)
		case t.minted != 0 && t.minted <= max(h.epoch, h.key):
			c.violated(ErrEpochFell, t.at, "from %d to %d at revision %d", max(h.epoch, h.key), t.minted, t.rev)
		case t.minted != 0 && !t.won:
			c.violated(ErrEpochFell, t.at, "rose to %d at revision %d, but nobody took the seat", t.minted, t.rev)
		case t.won && t.minted == 0:
			c.violated(ErrEpochFell, t.at, "seat taken at revision %d without a new epoch", t.rev)
		case t.won && t.before != 0:
			c.violated(ErrEpochFell, t.at, "seat of epoch %d taken at revision %d while it was held", t.before, t.rev)
		}
	}
	switch {
	case t.trusted && (t.won || t.left || t.keyed): // the claim does not stand any more
		h.seat = 0
	case t.won && t.minted != 0:
		h.seat = t.minted
		h.epoch = max(h.epoch, t.minted)
	case t.left:
		h.seat = 0
	}
	if t.keyed {
		h.key = t.minted
	}
}

func epochOf(ch store.Change) cluster.Epoch {
	var r pb.EpochRecord
	if ch.Deleted || proto.Unmarshal(ch.KV.Value, &r) != nil || r.GetEpoch() >= int64(cluster.MaxEpoch) {
		return 0
	}
	return cluster.Epoch(r.GetEpoch())
}

// change takes in one key.
func (c *Checker) change(t transaction, ch store.Change) {
	rest, _ := strings.CutPrefix(ch.KV.Key, c.keys.Prefix())
	dir, name, _ := strings.Cut(rest, "/")
	switch dir {
	case "brokers":
		c.brokerChanged(t, name, ch)
	case "terms":
		c.termChanged(t, name, ch)
	case "topics":
		c.topicChanged(t, name, ch)
	case "partitions":
		c.blockChanged(t, name, ch)
	}
}

func (c *Checker) brokerChanged(t transaction, name string, ch store.Change) {
	n, err := strconv.Atoi(name)
	if err != nil {
		return
	}
	h, id := &c.history, cluster.BrokerID(n)
	was, now := h.live[id], cluster.BrokerEpoch(ch.KV.CreateRev)
	if ch.Deleted {
		now = 0
		delete(h.live, id)
	} else {
		h.live[id] = now
	}
	if was != now {
		h.liveChanged, h.joined[id] = t.at, t.at
		delete(h.draining, id)
	}
	r := &pb.BrokerRecord{}
	switch {
	case ch.Deleted || proto.Unmarshal(ch.KV.Value, r) != nil || r.GetState() != pb.BrokerState_BROKER_STATE_DRAINING && !r.GetUnreachable():
		delete(h.draining, id)
	case h.draining[id] == 0:
		h.draining[id] = ch.KV.ModRev
	}
}

// Missed says that some daemon will not hear of the last change of a key: what
// it decides about a draining broker is excused until that key changes again.
func (c *Checker) Missed(key string) {
	if name, ok := strings.CutPrefix(key, c.keys.Prefix()+"brokers/"); ok {
		if n, err := strconv.Atoi(name); err == nil {
			delete(c.history.draining, cluster.BrokerID(n))
		}
	}
}

func (c *Checker) termChanged(t transaction, name string, ch store.Change) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return
	}
	e := cluster.Epoch(n)
	own := t.won && t.minted == e || t.left && t.before == e || t.won && ch.Deleted
	if !t.trusted && !own {
		c.violated(ErrLateWrite, t.at, "history of epoch %d changed at revision %d by another", e, t.rev)
	}
	r := &pb.TermRecord{}
	if ch.Deleted || proto.Unmarshal(ch.KV.Value, r) != nil {
		return
	}
	c.history.terms[e] = r
	c.checkSender(t.at, e)
}

func (c *Checker) topicChanged(t transaction, name string, ch store.Change) {
	c.checkWriter(t, ch.KV.Key)
	h := &c.history
	r := &pb.TopicRecord{}
	if ch.Deleted {
		c.checkTopicGone(t, name)
	}
	if ch.Deleted || proto.Unmarshal(ch.KV.Value, r) != nil {
		delete(h.topics, name)
		return
	}
	h.topics[name], h.appeared[name] = r, t.at
	h.ever[string(r.GetTopicId())] = name
	h.newest[name], h.shapes[string(r.GetTopicId())] = r, r
}

// checkWriter refuses changes while nobody holds the seat (I3).
func (c *Checker) checkWriter(t transaction, key string) {
	if !t.trusted && t.before == 0 {
		c.violated(ErrLateWrite, t.at, "key %s changed at revision %d while the seat was empty", key, t.rev)
	}
}
