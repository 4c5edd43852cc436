package broker

import (
	"errors"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// workers are those partitions that have work. A partition that is at rest has
// none.
type workers map[cluster.PartitionID]*worker

// worker is the single worker of one partition: what it does, the newest that
// it does next, and who wants to hear how it ended.
type worker struct {
	current  *task
	cancel   func() // ends the context of current
	next     *task
	waiting  []waiter
	spoiled  bool // storage failed while current ran
	restored bool // it came back while current ran
}

// task is a call of the handler: ApplyPartition or StopReplica, or AdoptISR.
type task struct {
	state PartitionState
	apply bool
}

// waiter is a stream that named a state whose handler has not ended.
type waiter struct {
	to    *outbox
	state PartitionState
}

// admit hands over what the gate decided on a partition named by a stream. It
// reports whether a worker has to start.
func (ws workers) admit(d *fencing.Decision, from *outbox) (start bool) {
	id := d.State.Partition
	w := ws[id]
	busy := w != nil
	switch d.Action {
	case fencing.Inconsistent:
		from.result(&d.State, pb.PartitionResult_PARTITION_RESULT_INCONSISTENT_TOPIC_ID, "")
		return false
	case fencing.Fenced:
		from.result(&d.State, pb.PartitionResult_PARTITION_RESULT_FENCED_LEADER_EPOCH, "")
		return false
	case fencing.Already:
		if !busy || !w.applying() {
			from.result(&d.State, pb.PartitionResult_PARTITION_RESULT_ALREADY, "")
			return false
		}
	case fencing.IsrAdopted:
		if !busy || !w.applying() {
			from.result(&d.State, pb.PartitionResult_PARTITION_RESULT_ALREADY, "")
			return ws.adopt(d.State)
		}
		w.hand(task{state: d.State})
	case fencing.Admitted:
		if !busy {
			w = &worker{}
			ws[id] = w
		}
		w.hand(task{state: d.State, apply: true})
	}
	w.wait(waiter{from, d.State})
	return !busy
}

// stop hands over the end of a replica that no stream has asked for.
func (ws workers) stop(s PartitionState) (start bool) { return ws.hand(task{state: s, apply: true}) }

// adopt hands over a newer ISR of a leader epoch that was applied.
func (ws workers) adopt(s PartitionState) (start bool) { return ws.hand(task{state: s}) }

// hand gives a task that no stream waits for to the worker of its partition,
// and reports whether that is to be started.
func (ws workers) hand(t task) (start bool) {
	w := ws[t.state.Partition]
	if start = w == nil; start {
		w = &worker{}
		ws[t.state.Partition] = w
	}
	w.hand(t)
	return start
}

// hand puts a newer state in the place of the one that waits, if any. What had
// to be applied still has to.
func (w *worker) hand(t task) {
	if t.apply && w.current != nil {
		w.cancel()
	}
	if w.next != nil && w.next.apply {
		t.apply = true
	}
	w.next = &t
}

// applying reports whether a leader epoch is on its way through the handler.
func (w *worker) applying() bool {
	return w.current != nil && w.current.apply || w.next != nil && w.next.apply
}

// wait adds a stream to those that are told. Each stream hears of the newest
// state that it named.
func (w *worker) wait(n waiter) {
	w.waiting = slices.DeleteFunc(w.waiting, func(o waiter) bool {
		return o.to.closed || o.to == n.to && o.state.Compare(&n.state) <= 0
	})
	if !slices.ContainsFunc(w.waiting, func(o waiter) bool { return o.to == n.to }) {
		w.waiting = append(w.waiting, n)
	}
}

// begin takes the next task. cancel ends its context.
func (w *worker) begin(cancel func()) task {
	w.current, w.cancel, w.next, w.spoiled, w.restored = w.next, cancel, nil, false, false
	return *w.current
}

// end takes in how the current task of a partition ended. It reports whether
// there is another one, whether the newest leader epoch failed, and which
// streams were told so.
func (ws workers) end(id cluster.PartitionID, err error) (more, failed bool, told []*outbox) {
	w := ws[id]
	done := w.current
	w.current, w.cancel = nil, nil
	if done.apply {
		for _, n := range w.waiting {
			told = append(told, n.to)
		}
		failed = w.tell(&done.state, err)
	}
	if failed {
		w.next = nil // an ISR of a state that was never applied
	}
	if w.next == nil {
		delete(ws, id)
		return false, failed, told
	}
	return true, false, told
}

// tell answers the streams for which the end of a handler decides. If a newer
// leader epoch waits its turn, a handler that failed decides nothing, and the
// streams that named the newer one go on waiting.
func (w *worker) tell(done *PartitionState, err error) (failed bool) {
	overtaken := w.next != nil && w.next.apply
	if overtaken && err != nil {
		return false
	}
	var still []waiter
	for _, n := range w.waiting {
		age := n.state.CompareRuns(done)
		switch {
		case err != nil:
			n.to.result(&n.state, resultOf(err), err.Error())
		case age < 0:
			n.to.result(&n.state, pb.PartitionResult_PARTITION_RESULT_ALREADY, "")
		case age == 0:
			n.to.result(&n.state, pb.PartitionResult_PARTITION_RESULT_APPLIED, "")
		default:
			still = append(still, n)
		}
	}
	w.waiting = still
	return err != nil
}

func resultOf(err error) pb.PartitionResult {
	if errors.Is(err, ErrStorage) {
		return pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR
	}
	return pb.PartitionResult_PARTITION_RESULT_FAILED
}

// metadata is what the handler has not been told yet.
type metadata struct {
	running bool // the worker is up
	changed bool
	live    []LiveBroker
	states  []PartitionState
	removed []RemovedTopic
	set     map[string]string
	configs []TopicConfig
	at      map[cluster.PartitionID]int // in states
}

// admit takes in what became newer with a command, and reports whether the
// worker has to start.
func (m *metadata) admit(v *fencing.Verdict) (start bool) {
	if v.Live != nil {
		m.live, m.set, m.changed = v.Live, v.Settings, true
	}
	if len(v.Removed) > 0 {
		m.removed, m.changed = append(m.removed, v.Removed...), true
	}
	if len(v.Configs) > 0 {
		m.configs, m.changed = append(m.configs, v.Configs...), true
	}
	m.states = slices.Grow(m.states, len(v.Decisions))
	for i := range v.Decisions {
		if d := &v.Decisions[i]; d.Action == fencing.Admitted {
			m.add(&d.State)
		}
	}
	start = m.changed && !m.running
	m.running = m.running || start
	return start
}

func (m *metadata) add(s *PartitionState) {
	m.changed = true
	if i, ok := m.at[s.Partition]; ok {
		m.states[i] = *s
		return
	}
	if m.at == nil {
		m.at = make(map[cluster.PartitionID]int, cap(m.states))
	}
	m.at[s.Partition] = len(m.states)
	m.states = append(m.states, *s)
}

// take is what to tell next. Without anything the worker is done.
func (m *metadata) take() (MetadataUpdate, bool) {
	if !m.changed {
		m.running = false
		return MetadataUpdate{}, false
	}
	u := MetadataUpdate{Live: m.live, Partitions: m.states, Removed: m.removed, Settings: m.set, Configs: m.configs}
	m.changed, m.states, m.removed, m.configs, m.at = false, nil, nil, nil, nil
	return u, true
}
