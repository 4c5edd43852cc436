package broker

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/internal/durations"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Kinds of what a gate says.
const (
	refusals = pb.Refusal_REFUSAL_WRONG_BROKER + 1
	actions  = fencing.Fenced + 1
)

// Stats are what a broker is and has done, for metrics. Counters begin with the
// process.
type Stats struct {
	// Registered: the last that the broker has heard of its session is that it
	// stands. It may have expired since.
	Registered      bool
	BrokerEpoch     cluster.BrokerEpoch // 0 before the first registration
	ControllerEpoch cluster.Epoch       // the highest heard of
	// SinceRenewal is the time since the session was registered or renewed last,
	// 0 before the first time.
	SinceRenewal time.Duration
	SessionTTL   time.Duration // as the last registration says, 0 before it

	Registrations, Renewals int64
	SessionFailures         int64 // attempts at either that failed

	Streams        int // of commands, that are open
	fencing.Counts     // what is hosted, and changes of ISRs
	Working        int // partitions whose handler runs, or is to
	// Proposals are the ISR changes of ProposeISR that are neither decided nor
	// overtaken.
	Proposals int

	// Refused are commands that the gate has refused as a whole, and Decided its
	// decisions on partitions of the others, each by what an Observation says of
	// it as its Result.
	Refused, Decided map[string]int64

	// HandlerTime is how long ApplyPartition and StopReplica took; Failed of them
	// failed, StorageFailed of these with ErrStorage.
	HandlerTime           Histogram
	Failed, StorageFailed int64
}

// Histogram counts durations.
type Histogram = durations.Histogram

// measured is what is counted for Stats, under the broker's lock.
type measured struct {
	registered                       bool
	renewed                          time.Time
	ttl                              time.Duration
	registrations, renewals, failing int64

	refused               [refusals]int64
	decided               [actions]int64
	handlers              durations.Histogram
	failed, storageFailed int64
}

// verdict counts what the gate has said of a command.
func (m *measured) verdict(v *fencing.Verdict) {
	if v.Refused() {
		m.refused[v.Refusal]++
	}
	for i := range v.Decisions {
		m.decided[v.Decisions[i].Action]++
	}
}

func (m *measured) refusedBy() map[string]int64 {
	out := map[string]int64{}
	for i := range m.refused[1:] {
		r := pb.Refusal(i + 1)
		out[refusalName(r)] = m.refused[r]
	}
	return out
}

func (m *measured) decidedBy() map[string]int64 {
	out := map[string]int64{}
	for a, n := range m.decided {
		out[fencing.Action(a).String()] = n
	}
	return out
}
