package main

import (
	"fmt"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// reassignedView is the answer to a change of replicas.
type reassignedView struct {
	Results   []reassignedOne `json:"results"`
	Moving    int64           `json:"moving"`
	Queued    int64           `json:"queued"`
	Done      int64           `json:"done"`
	Cancelled int64           `json:"cancelled"`
	Failed    int64           `json:"failed"`
	DryRun    bool            `json:"dry_run"`
	Revision  int64           `json:"revision"`
}

type reassignedOne struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	State     string  `json:"state"`
	Target    []int32 `json:"target"`
	Error     string  `json:"error"`
	Message   string  `json:"message"`
}

func reassignedOf(resp *pb.AlterPartitionReassignmentsResponse, dryRun bool) *reassignedView {
	v := &reassignedView{
		Results: []reassignedOne{}, Moving: resp.GetMoving(), Queued: resp.GetQueued(), Done: resp.GetDone(),
		Cancelled: resp.GetCancelled(), Failed: resp.GetFailed(), DryRun: dryRun, Revision: resp.GetRevision(),
	}
	for _, r := range resp.GetResults() {
		v.Results = append(v.Results, reassignedOne{
			r.GetTopic(), r.GetPartition(), reassignmentState(r.GetState()), list(r.GetTarget()), r.GetError(), r.GetMessage(),
		})
	}
	return v
}

// reassignmentState is a state as people and scripts read it, empty for none.
func reassignmentState(s pb.ReassignmentState) string {
	if s == pb.ReassignmentState_REASSIGNMENT_STATE_UNSPECIFIED {
		return ""
	}
	return enum(s.String(), "REASSIGNMENT_STATE_")
}

// table shows what was begun; errors are reported apart.
func (v *reassignedView) table() table {
	title := fmt.Sprintf("%d moving, %d queued, %d done, %d cancelled, %d failed", v.Moving, v.Queued, v.Done, v.Cancelled, v.Failed)
	if v.DryRun {
		title = "would be: " + title
	}
	t := table{title: []string{title}, head: []string{"PARTITION", "STATE", "TARGET"}}
	for _, r := range v.Results {
		if r.Error == "" {
			t.rows = append(t.rows, []string{fmt.Sprintf("%s/%d", r.Topic, r.Partition), r.State, join(r.Target)})
		}
	}
	if t.rows == nil {
		t.head = nil
	}
	return t
}

// reassignmentsView are reassignments that are under way or wait.
type reassignmentsView struct {
	Reassignments []reassignmentView `json:"reassignments"`
	// Of the whole cluster: partitions that are being reassigned, that wait for
	// it, of which former replicas have yet to be deleted, and that are adding
	// replicas, of which so many may at once (0: any number).
	Moving   int64       `json:"moving"`
	Queued   int64       `json:"queued"`
	Leaving  int64       `json:"leaving"`
	Adding   int64       `json:"adding"`
	MaxMoves int32       `json:"max_moves"`
	Freeze   *freezeView `json:"freeze"`
	Revision int64       `json:"revision"`
}

type reassignmentView struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	State     string  `json:"state"`
	Replicas  []int32 `json:"replicas"`
	Adding    []int32 `json:"adding"`
	Removing  []int32 `json:"removing"`
	Target    []int32 `json:"target"`
	ISR       []int32 `json:"isr"`
	Leader    int32   `json:"leader"`
	WaitsFor  string  `json:"waits_for"`
	Reason    string  `json:"reason"`
	Changed   string  `json:"changed"`
}

func reassignmentOf(m *pb.OngoingReassignment) reassignmentView {
	return reassignmentView{
		Topic: m.GetTopic(), Partition: m.GetPartition(), State: reassignmentState(m.GetState()), Replicas: list(m.GetReplicas()),
		Adding: list(m.GetAdding()), Removing: list(m.GetRemoving()), Target: list(m.GetTarget()), ISR: list(m.GetIsr()),
		Leader: m.GetLeader(), WaitsFor: m.GetWaitsFor(), Reason: m.GetReason(), Changed: timeOf(m.GetChangedMs()),
	}
}

func (v *reassignmentsView) table() table {
	t := table{
		title: []string{v.summary()},
		head:  []string{"PARTITION", "STATE", "REPLICAS", "ADDING", "REMOVING", "TARGET", "ISR", "WAITS FOR", "REASON"},
	}
	if v.Freeze != nil {
		t.title = append(t.title, v.Freeze.String())
	}
	for _, m := range v.Reassignments {
		t.rows = append(t.rows, []string{
			fmt.Sprintf("%s/%d", m.Topic, m.Partition), m.State, join(m.Replicas), join(m.Adding), join(m.Removing), join(m.Target), join(m.ISR), m.WaitsFor, m.Reason,
		})
	}
	if t.rows == nil {
		t.head = nil
	}
	return t
}

func (v *reassignmentsView) summary() string {
	most := "any number"
	if v.MaxMoves > 0 {
		most = str(v.MaxMoves)
	}
	return fmt.Sprintf("In the cluster: %d moving, %d queued, %d with former replicas to delete; %d are adding replicas, %s may at once",
		v.Moving, v.Queued, v.Leaving, v.Adding, most)
}

// progressView is how far reassignments have come. It names the first of them.
type progressView struct {
	reassignmentsView
	Left  int `json:"left"`
	Ended int `json:"ended"` // since it was looked at first
	// How many end in a second, and in how many seconds all may have; 0: not
	// known.
	Rate        float64 `json:"rate"`
	RestSeconds float64 `json:"rest_seconds"`
}

// line is the progress on a line.
func (v *progressView) line() string {
	text := fmt.Sprintf("%d left, %d ended", v.Left, v.Ended)
	if v.Rate > 0 && v.Left > 0 {
		text += fmt.Sprintf(", %.1f a second, about %v to go", v.Rate, (time.Duration(v.RestSeconds) * time.Second).Round(time.Second))
	}
	if v.Freeze != nil {
		text += "; " + v.Freeze.String()
	}
	if len(v.Reassignments) > 0 {
		m := v.Reassignments[0]
		text += fmt.Sprintf("; %s/%d waits for %s", m.Topic, m.Partition, orDash(m.WaitsFor))
	}
	return printable(text)
}

func (v *progressView) table() table {
	t := v.reassignmentsView.table()
	text := fmt.Sprintf("%d left, %d ended", v.Left, v.Ended)
	if v.Rate > 0 && v.Left > 0 {
		text += fmt.Sprintf(", %.1f a second, about %v to go", v.Rate, (time.Duration(v.RestSeconds) * time.Second).Round(time.Second))
	}
	t.title = append(t.title, text)
	if more := v.Left - len(v.Reassignments); more > 0 {
		t.rows = append(t.rows, []string{fmt.Sprintf("and %d more", more)})
	}
	return t
}
