package election

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// MinQuiet is the least time before the lease can expire at which the holder
// goes quiet.
const MinQuiet = 500 * time.Millisecond

// Keeper decides when to renew one lease and until when it can be relied on.
// Times are readings of one clock that does not stop in a suspend.
type Keeper struct {
	Lease store.LeaseID
	ttl   time.Duration

	renewed   time.Duration // when the last successful renewal was sent: the store counts from later
	sent      time.Duration // when the last renewal was sent
	seen      bool          // some read was answered, and the image has reached it
	proven    time.Duration // when the last read was sent whose revision the image has reached
	probeSent time.Duration
	probes    []probe // answered reads whose revision the image has yet to reach
}

type probe struct {
	sent time.Duration
	read store.Snapshot
}

// NewKeeper keeps a lease that was asked for at sent.
func NewKeeper(l store.Lease, sent time.Duration) *Keeper {
	return &Keeper{Lease: l.ID, ttl: l.TTL, renewed: sent, sent: sent, proven: sent, probeSent: sent - l.TTL}
}

// Deadline is when the store may let the lease go.
func (k *Keeper) Deadline() time.Duration { return k.renewed + k.ttl }

// Quiet is when the holder must stop to act on the lease: some time before it
// can expire, and at the latest a TTL after something last proved that the
// holder sees what happens. Renewals that pass do not help one who is blind.
func (k *Keeper) Quiet() time.Duration {
	return min(k.Deadline()-quietTime(k.ttl), k.proven+k.ttl)
}

// quietTime is how long before its end a lease is not acted on any more.
func quietTime(ttl time.Duration) time.Duration { return max(ttl/5, MinQuiet) }

// Hung reports whether a write has been unanswered for a whole TTL.
func (k *Keeper) Hung(now, oldestWrite time.Duration) bool { return now-oldestWrite >= k.ttl }

// Proven reports whether a linearizable read was answered, and the watch seen
// to be as new as it, not longer ago than half the TTL. The answer comes
// through the same queue as work does, so it also proves that the queue moves.
func (k *Keeper) Proven(now time.Duration) bool { return now-k.proven < k.ttl/2 }

// RenewDue reports whether a renewal is to be sent, given when the oldest
// write that is still unanswered was sent (now, if there is none). A hung
// owner never asks; a dead path to the store or a blind watch lets the lease
// go.
func (k *Keeper) RenewDue(now, oldestWrite time.Duration) bool {
	return now-k.sent >= k.ttl/4 && k.Proven(now) && now-oldestWrite < k.ttl/2
}

// ProbeDue reports whether the next read is to be sent.
func (k *Keeper) ProbeDue(now time.Duration) bool { return now-k.probeSent >= k.ttl/8 }

// Sent notes a renewal that was sent now.
func (k *Keeper) Sent(now time.Duration) { k.sent = now }

// ProbeSent notes a read that was sent now.
func (k *Keeper) ProbeSent(now time.Duration) { k.probeSent = now }

// Renewed takes in the answer to a renewal sent at that time.
func (k *Keeper) Renewed(sent, ttl time.Duration) {
	if sent >= k.renewed {
		k.renewed, k.ttl = sent, ttl
	}
}

// Probed takes in the answer to a read sent at that time.
func (k *Keeper) Probed(sent time.Duration, read store.Snapshot) {
	const most = 16
	if len(k.probes) == most {
		k.probes = k.probes[1:]
	}
	k.probes = append(k.probes, probe{sent, read})
}

// Observe looks which reads the image has reached.
func (k *Keeper) Observe(im *cluster.Image) {
	kept := k.probes[:0]
	for _, p := range k.probes {
		if im.Rev >= p.read.Rev {
			k.proven, k.seen = max(k.proven, p.sent), true
		} else {
			kept = append(kept, p)
		}
	}
	k.probes = kept
}

// Wake is when to look again if nothing happens.
func (k *Keeper) Wake(now time.Duration) time.Duration {
	next := min(k.Quiet(), k.probeSent+k.ttl/8)
	if renew := k.sent + k.ttl/4; renew > now {
		next = min(next, renew)
	}
	return next
}
