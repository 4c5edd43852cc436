package controller

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/durations"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// Snapshot is what one look at a daemon shows, for metrics and health. It
// shares nothing with the daemon, and making it takes time with the number of
// brokers only.
type Snapshot struct {
	At       time.Duration // when it was made, by election.Clock
	Claim    cluster.Epoch // under which the daemon acts; 0: it does not
	Epoch    cluster.Epoch // of the image
	Revision store.Rev     // of the image; 0: nothing was read yet
	Standing election.Standing
	Unfit    []string // why it cannot do its work, in sentences; none: it can
	Blind    bool     // it does not see what happens
	Refused  bool     // the store takes no writes
	Frozen   bool     // automation stands still

	Problems    int // of all kinds, as they were looked at last; set by Controller
	SkippedKeys int
	Candidates  int
	Topics      int
	TopicsDue   int // to be deleted or completed
	Tombstones  int
	Partitions  cluster.Health
	Agenda      int // partitions for which a rule would do something
	Requests    int // that wait for a plan
	Pending     int // partition states that brokers have yet to confirm
	Offline     int // replicas whose storage has failed
	// Live brokers: those that run, that are on their way out, and that have a
	// session and answer no commands.
	Running, Draining, Unreachable int
	Backlogs                       []rpc.Backlog // of those that commands are sent to

	Stats Stats
	Push  rpc.PushStats
	Owner OwnerStats
}

// OwnerStats are about the goroutine that owns the Loop, since the process
// began.
type OwnerStats struct {
	QueueTime   durations.Histogram // for how long they have waited
	StepTime    durations.Histogram // of one step
	LongestStep time.Duration       // or of looks of callers
}

// Snapshot is the daemon as it is. The image must be whole.
func (l *Loop) Snapshot() *Snapshot {
	s := &Snapshot{
		At: l.now, Epoch: l.im.Epoch, Revision: l.im.Rev, Standing: l.candidate.Standing(l.now, l.im),
		Unfit: l.unfit(), Blind: l.candidate.Blind(l.now) > 0, Refused: l.refused != nil, Frozen: l.im.Settings.Frozen(),
		SkippedKeys: len(l.im.Faults), Candidates: len(l.im.Candidates), Topics: len(l.im.Topics),
		TopicsDue: l.machine.TopicsDue(), Tombstones: len(l.im.Tombstones), Partitions: l.im.HealthOfAll(),
		Stats: l.Stats, Push: l.pusher.Stats,
	}
	if !l.active {
		return s
	}
	s.Claim, s.Agenda, s.Requests = l.claim.Epoch, l.machine.Agenda(), len(l.requests)
	s.Pending, s.Offline = l.pusher.Pending(), l.pusher.OfflineAll()
	s.Backlogs = l.pusher.Backlogs()
	for _, b := range l.im.Brokers {
		switch {
		case b.Unreachable():
			s.Unreachable++
		case b.Draining():
			s.Draining++
		default:
			s.Running++
		}
	}
	return s
}
