package controller

import (
	"math"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/statemachine"
)

// balance moves leaderships back to the first replicas by itself: Kafka's
// automatic preferred leader election.
type balance struct {
	// since is when the last run ended, or the term began if there was none.
	since   time.Duration
	ran     bool
	brokers []cluster.BrokerID // that are to get leaderships back; nil: no run is under way
	place   int32              // of the first of them, see Image.HostedFrom
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// balanceAt is when the next run is due, by the settings as they are.
func (l *Loop) balanceAt() time.Duration {
	s, name := l.im.Settings, cluster.ImbalanceInterval
	if s.Frozen() || !s.On(cluster.AutoRebalance) {
		return never
	}
	if !l.balance.ran {
		name = cluster.ImbalanceFirst
	}
	return l.balance.since + s.Seconds(name)
}

// checkBalance begins a run when one is due, and ends it when it is done or must
// not go on.
func (l *Loop) checkBalance() {
	b, due := &l.balance, l.balanceAt()
	switch {
	case b.brokers == nil && l.now >= due:
		b.brokers, b.place = statemachine.Imbalanced(l.im, l.im.Settings.Number(cluster.ImbalancePercentage)), 0
		b.ran, b.since = true, l.now
		if len(b.brokers) > 0 {
			l.Stats.Balances++
		}
	case b.brokers != nil && due == never:
		b.brokers = nil
	}
}

// balancing reports whether the run can go on with no event.
func (l *Loop) balancing() bool {
	return l.balance.brokers != nil && l.plan == nil && l.now >= l.pause
}

// balanceLeaders goes on with the run for a slice of what a broker hosts. What
// fails is left to the next run.
func (d *draft) balanceLeaders() {
	b := &d.l.balance
	for limit := d.l.cfg.Slice; len(b.brokers) > 0 && limit > 0 && d.writes < d.limit; {
		id, more := b.brokers[0], false
		b.place, more = d.l.im.HostedFrom(id, b.place, min(limit, d.limit-d.writes), func(_ *cluster.Topic, p cluster.PartitionID, _ *cluster.Partition) {
			limit--
			if d.taken(p) {
				return
			}
			if w := d.l.machine.Rebalance(d.term, p, id); w != nil && d.put(*w, 0) {
				d.l.Stats.Balanced++
			}
		})
		if !more {
			b.brokers, b.place = b.brokers[1:], 0
			limit--
		}
	}
	if len(b.brokers) == 0 && b.brokers != nil {
		b.brokers, b.since = nil, d.l.now
	}
}
