package rpc

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
)

// heard compares a broker's highest controller epoch with ours.
func (p *Pusher) heard(now time.Duration, t *target, e cluster.Epoch, out []PushAction) []PushAction {
	if e <= p.claim.Epoch {
		return out
	}
	if t.knows == 0 {
		t.knowsSince = now
	}
	t.knows = max(t.knows, e)
	return append(out, Doubt{t.id, e})
}

// outdatedAfter is how long brokers must have known a higher epoch than ours to
// be counted: a controller that was replaced hears of it within moments.
const outdatedAfter = time.Second

// Outdated is how many brokers know of a higher controller epoch than that of
// the term and obey nothing of it, though etcd still holds the term, and the
// highest that they know.
func (p *Pusher) Outdated(now time.Duration) (brokers int, e cluster.Epoch) {
	for _, t := range p.targets {
		if t.knows > p.claim.Epoch && now-t.knowsSince >= outdatedAfter {
			brokers, e = brokers+1, max(e, t.knows)
		}
	}
	return brokers, e
}
