package dev

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// maxSingle is how many changes of one cause are told one by one.
const maxSingle = 4

// changes are those of brokers and partitions that were not told yet.
type changes struct {
	since    time.Time // of the first, zero: there is none
	up, down []cluster.BrokerID
	bounced  []cluster.BrokerID
	groups   []*group // by cause, in the order of their first
}

// group are the changes of one cause.
type group struct {
	why   string
	list  []*change
	known map[cluster.PartitionID]*change
}

// change is what became of one partition. old is nil for a new one, new for one
// that is gone.
type change struct {
	name     string
	old, new *cluster.Partition
}

// add takes in one event. The image is that after the event.
func (c *changes) add(t time.Time, im *cluster.Image, ev cluster.Event) {
	switch ev := ev.(type) {
	case cluster.BrokerUp:
		c.up = append(c.up, ev.Broker.ID)
	case cluster.BrokerDown:
		c.down = append(c.down, ev.Broker.ID)
	case cluster.BrokerRestarted:
		c.bounced = append(c.bounced, ev.New.ID)
	case cluster.PartitionChanged:
		c.partition(im, ev)
	default:
		return
	}
	if c.since.IsZero() {
		c.since = t
	}
}

func (c *changes) partition(im *cluster.Image, ev cluster.PartitionChanged) {
	why := "deleted"
	if ev.New != nil {
		why = reason(im, ev.Old, ev.New)
	}
	i := slices.IndexFunc(c.groups, func(g *group) bool { return g.why == why })
	if i < 0 {
		i = len(c.groups)
		c.groups = append(c.groups, &group{why: why, known: map[cluster.PartitionID]*change{}})
	}
	g := c.groups[i]
	if have := g.known[ev.ID]; have != nil {
		have.new = ev.New
		return
	}
	ch := &change{name: fmt.Sprintf("%s-%d", ev.Topic.Name, ev.ID.Index), old: ev.Old, new: ev.New}
	g.known[ev.ID] = ch
	g.list = append(g.list, ch)
}

// reason says why a record was changed, and which brokers are behind it.
func reason(im *cluster.Image, old, now *cluster.Partition) string {
	if old == nil {
		old = &cluster.Partition{Leader: cluster.NoLeader}
	}
	lost := minus(old.ISR, now.ISR)
	if old.Leader != now.Leader && old.Leader != cluster.NoLeader && !slices.Contains(lost, old.Leader) {
		lost = append(lost, old.Leader)
	}
	gained := minus(now.ISR, old.ISR)
	who := func(ids []cluster.BrokerID, verb string) string {
		if len(ids) == 0 {
			return "a broker " + verb
		}
		return brokers(ids) + " " + verb
	}
	switch now.Cause {
	case pb.ChangeCause_CHANGE_CAUSE_CREATED, pb.ChangeCause_CHANGE_CAUSE_EXPANDED:
		return "created"
	case pb.ChangeCause_CHANGE_CAUSE_BROKER_DOWN:
		dead := slices.DeleteFunc(slices.Clone(lost), func(id cluster.BrokerID) bool { return im.Brokers[id] != nil })
		if len(dead) == 0 {
			dead = lost
		}
		return who(dead, "down")
	case pb.ChangeCause_CHANGE_CAUSE_BROKER_UP:
		return who([]cluster.BrokerID{now.Leader}, "up")
	case pb.ChangeCause_CHANGE_CAUSE_BROKER_RESTARTED:
		if len(lost) == 0 && now.Leader != cluster.NoLeader {
			lost = []cluster.BrokerID{now.Leader}
		}
		return who(lost, "restarted")
	case pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED:
		if len(gained) > 0 {
			return who(gained, "caught up")
		}
		return who(lost, "fell behind")
	case pb.ChangeCause_CHANGE_CAUSE_CONTROLLED_SHUTDOWN:
		return who(lost, "shuts down")
	case pb.ChangeCause_CHANGE_CAUSE_UNSPECIFIED:
		return "no cause given"
	}
	name := strings.TrimPrefix(now.Cause.String(), "CHANGE_CAUSE_")
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}

// minus are the brokers in a that are not in b.
func minus(a, b []cluster.BrokerID) []cluster.BrokerID {
	return slices.DeleteFunc(slices.Clone(a), func(id cluster.BrokerID) bool { return slices.Contains(b, id) })
}

// lines tell all changes.
func (c *changes) lines() []string {
	var out []string
	for _, b := range []struct {
		ids  []cluster.BrokerID
		verb string
	}{{c.down, "down"}, {c.bounced, "restarted"}, {c.up, "up"}} {
		if len(b.ids) > 0 {
			out = append(out, brokers(b.ids)+" "+b.verb)
		}
	}
	for _, g := range c.groups {
		out = append(out, g.lines()...)
	}
	return out
}

// lines tell a few changes one by one and many summed up.
func (g *group) lines() []string {
	if len(g.list) > maxSingle {
		return []string{g.sum()}
	}
	var out []string
	for _, ch := range g.list {
		out = append(out, fmt.Sprintf("%s: %s", ch.name, strings.Join(append(ch.words(), g.why), ", ")))
	}
	return out
}

func (ch *change) words() []string {
	if ch.new == nil {
		return nil
	}
	var out []string
	isr := fmt.Sprintf("isr %v", ch.new.ISR)
	switch {
	case ch.old == nil:
		return []string{"leader " + leaderName(ch.new.Leader), isr}
	case ch.old.Leader != ch.new.Leader:
		out = append(out, fmt.Sprintf("leader %s -> %s", leaderName(ch.old.Leader), leaderName(ch.new.Leader)))
	case ch.old.LeaderEpoch != ch.new.LeaderEpoch:
		out = append(out, fmt.Sprintf("leader %s stays, leader epoch %d", leaderName(ch.new.Leader), ch.new.LeaderEpoch))
	}
	if len(out) > 0 || !slices.Equal(ch.old.ISR, ch.new.ISR) {
		out = append(out, isr)
	}
	return out
}

func leaderName(id cluster.BrokerID) string {
	if id == cluster.NoLeader {
		return "none"
	}
	return fmt.Sprint(id)
}

// sum tells all changes of a group in one line.
func (g *group) sum() string {
	var moved, elected, lost, shrunk, grown int
	for _, ch := range g.list {
		if ch.old == nil || ch.new == nil {
			continue
		}
		switch {
		case ch.old.Leader == ch.new.Leader:
		case ch.new.Leader == cluster.NoLeader:
			lost++
		case ch.old.Leader == cluster.NoLeader:
			elected++
		default:
			moved++
		}
		if len(minus(ch.old.ISR, ch.new.ISR)) > 0 {
			shrunk++
		}
		if len(minus(ch.new.ISR, ch.old.ISR)) > 0 {
			grown++
		}
	}
	parts := []string{}
	for _, p := range []struct {
		n    int
		what string
	}{
		{moved, "leaders moved"}, {elected, "got a leader"}, {lost, "lost their leader"},
		{shrunk, "isrs shrunk"}, {grown, "isrs grown"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d partitions: %s", len(g.list), g.why)
	}
	return fmt.Sprintf("%d partitions: %s, %s", len(g.list), strings.Join(parts, ", "), g.why)
}
