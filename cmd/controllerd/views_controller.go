package main

import (
	"fmt"
	"maps"
	"math"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// statusView is the cluster as one daemon sees it.
type statusView struct {
	ID                        string   `json:"id"`
	Role                      string   `json:"role"`
	Version                   string   `json:"version"`
	ClusterUUID               string   `json:"cluster_uuid"`
	ControllerID              string   `json:"controller_id"`
	ControllerEndpoint        string   `json:"controller_endpoint"`
	Epoch                     int64    `json:"epoch"`
	Revision                  int64    `json:"revision"`
	Brokers                   int32    `json:"brokers"`
	Topics                    int32    `json:"topics"`
	Partitions                int32    `json:"partitions"`
	OfflinePartitions         int32    `json:"offline_partitions"`
	UnderReplicatedPartitions int32    `json:"under_replicated_partitions"`
	UnknownPartitions         int32    `json:"unknown_partitions"`
	UnreachableBrokers        []int32  `json:"unreachable_brokers"`
	Problems                  []string `json:"problems"`
	SessionState              string   `json:"session_state"` // of the daemon that answers, with etcd
	// Lease is that of the daemon that answers; null: it holds none.
	Lease  *leaseView  `json:"lease"`
	Freeze *freezeView `json:"freeze"` // null: automation does its work
	// Counters are what the daemon has counted since it started.
	Counters map[string]int64 `json:"counters"`
}

// leaseView is a lease, and how near its renewals came to its end.
type leaseView struct {
	TTLMS         int64 `json:"ttl_ms"`
	MarginMS      int64 `json:"margin_ms"` // the least time that was left, in the last ten minutes
	UsualMarginMS int64 `json:"usual_margin_ms"`
}

func leaseViewOf(l *pb.DaemonLease) *leaseView {
	if l == nil {
		return nil
	}
	return &leaseView{TTLMS: l.GetTtlMs(), MarginMS: l.GetMarginMs(), UsualMarginMS: l.GetUsualMarginMs()}
}

// freezeView says that automation stands still.
type freezeView struct {
	Reason string `json:"reason"`
	Since  string `json:"since"`
}

func freezeOf(f *pb.Freeze) *freezeView {
	if f == nil {
		return nil
	}
	return &freezeView{Reason: f.GetReason(), Since: timeOf(f.GetSinceMs())}
}

func (v *freezeView) String() string {
	text := "automation stands still"
	if v.Since != "" {
		text += " since " + v.Since
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}

func statusOf(r *pb.DescribeControllerResponse) *statusView {
	return &statusView{
		ID: r.GetId(), Role: r.GetRole(), Version: r.GetVersion(), ClusterUUID: r.GetClusterUuid(),
		ControllerID: r.GetControllerId(), ControllerEndpoint: r.GetControllerEndpoint(), Epoch: r.GetEpoch(),
		Revision: r.GetRevision(), Brokers: r.GetBrokers(), Topics: r.GetTopics(), Partitions: r.GetPartitions(),
		OfflinePartitions: r.GetOfflinePartitions(), UnderReplicatedPartitions: r.GetUnderReplicatedPartitions(),
		UnknownPartitions: r.GetUnknownPartitions(), Problems: append([]string{}, r.GetProblems()...),
		UnreachableBrokers: list(r.GetUnreachableBrokers()), SessionState: r.GetSessionState(),
		Lease:    leaseViewOf(r.GetLease()),
		Freeze:   freezeOf(r.GetFreeze()),
		Counters: maps.Clone(r.GetCounters()),
	}
}

func (v *statusView) table() table {
	active := "none"
	if v.ControllerID != "" {
		active = fmt.Sprintf("%s at %s", v.ControllerID, v.ControllerEndpoint)
	}
	t := table{rows: [][]string{
		{"Controller:", active},
		{"Epoch:", str(v.Epoch)},
		{"Cluster:", v.ClusterUUID},
		{"Brokers:", brokersIn(v)},
		{"Topics:", str(v.Topics)},
		{"Partitions:", fmt.Sprintf("%d: %d offline, %d under-replicated, %d unknown",
			v.Partitions, v.OfflinePartitions, v.UnderReplicatedPartitions, v.UnknownPartitions)},
		{"Answered by:", fmt.Sprintf("%s (%s), version %s, revision %d", v.ID, v.Role, v.Version, v.Revision)},
	}}
	if v.Freeze != nil {
		t.rows = append(t.rows, []string{"Frozen:", v.Freeze.String()})
	}
	switch {
	case len(v.Problems) > 0:
	case v.Role != "active" && v.ControllerID != "":
		t.rows = append(t.rows, []string{"Problems:", "none seen from here; the active sees more: --server " + v.ControllerEndpoint})
	default:
		t.rows = append(t.rows, []string{"Problems:", "none"})
	}
	for _, p := range v.Problems {
		t.rows = append(t.rows, []string{"Problem:", p})
	}
	return t
}

// brokersIn counts the live brokers, and names those that do not answer.
func brokersIn(v *statusView) string {
	if len(v.UnreachableBrokers) == 0 {
		return str(v.Brokers)
	}
	return fmt.Sprintf("%d: unreachable %s", v.Brokers, join(v.UnreachableBrokers))
}

type controllersView struct {
	Controllers []controllerView `json:"controllers"`
	Revision    int64            `json:"revision"`
}

type controllerView struct {
	ID       string `json:"id"`
	Active   bool   `json:"active"`
	Endpoint string `json:"endpoint"`
	Version  string `json:"version"`
	Nonce    string `json:"nonce"`
	Started  string `json:"started"`
}

func controllersOf(resp *pb.ListControllersResponse) *controllersView {
	v := &controllersView{Controllers: []controllerView{}, Revision: resp.GetRevision()}
	for _, c := range resp.GetControllers() {
		v.Controllers = append(v.Controllers, controllerView{
			ID: c.GetId(), Active: c.GetActive(), Endpoint: c.GetEndpoint(), Version: c.GetVersion(),
			Nonce: c.GetNonce(), Started: timeOf(c.GetStartedMs()),
		})
	}
	return v
}

func (v *controllersView) table() table {
	t := table{head: []string{"ID", "ROLE", "ENDPOINT", "VERSION", "STARTED"}}
	for _, c := range v.Controllers {
		role := "standby"
		if c.Active {
			role = "active"
		}
		t.rows = append(t.rows, []string{c.ID, role, c.Endpoint, c.Version, c.Started})
	}
	return t
}

// The causes of a term that has none in its record.
const (
	causeCurrent = "current"
	causeLost    = "lost"
)

type historyView struct {
	Terms    []termView `json:"terms"`
	Revision int64      `json:"revision"`
}

type termView struct {
	Epoch      int64  `json:"epoch"`
	Controller string `json:"controller"`
	Endpoint   string `json:"endpoint"`
	Nonce      string `json:"nonce"`
	Began      string `json:"began"`
	Ended      string `json:"ended"`
	Cause      string `json:"cause"`
	Reason     string `json:"reason"`
	Successor  string `json:"successor"`   // that it was handed over to
	DurationMS *int64 `json:"duration_ms"` // null: not known
	// The term after it, by the clocks of both controllers. Null: not known.
	FollowedBy       string `json:"followed_by"`         // empty: not known, or nobody yet
	VacantMS         *int64 `json:"vacant_ms"`           // from its end
	DurationAtMostMS *int64 `json:"duration_at_most_ms"` // from its begin
}

func historyOf(resp *pb.ListTermsResponse, now *pb.DescribeControllerResponse, nowMs int64) *historyView {
	v := &historyView{Terms: []termView{}, Revision: resp.GetRevision()}
	for i, r := range resp.GetTerms() {
		t := termOf(r, now.GetControllerId() != "" && now.GetEpoch() == r.GetEpoch(), nowMs)
		if i > 0 {
			t.follow(r, resp.GetTerms()[i-1])
		}
		v.Terms = append(v.Terms, t)
	}
	return v
}

// follow notes the term after it.
func (t *termView) follow(r, next *pb.TermRecord) {
	t.FollowedBy = next.GetController()
	if next.GetBeganMs() == 0 {
		return
	}
	if r.GetEndedMs() != 0 {
		t.VacantMS = new(span(r.GetEndedMs(), next.GetBeganMs()))
	}
	if r.GetBeganMs() != 0 {
		t.DurationAtMostMS = new(span(r.GetBeganMs(), next.GetBeganMs()))
	}
}

// termOf shows a term. A term whose end nobody wrote down has ended at some
// time that nobody knows, unless it runs.
func termOf(r *pb.TermRecord, running bool, nowMs int64) termView {
	t := termView{
		Epoch: r.GetEpoch(), Controller: r.GetController(), Endpoint: r.GetEndpoint(), Nonce: r.GetNonce(),
		Began: timeOf(r.GetBeganMs()), Ended: timeOf(r.GetEndedMs()), Reason: r.GetEndReason(), Successor: r.GetSuccessor(),
	}
	endedMs := r.GetEndedMs()
	switch {
	case r.GetEndCause() != pb.EndCause_END_CAUSE_UNSPECIFIED:
		t.Cause = enum(r.GetEndCause().String(), "END_CAUSE_")
	case running:
		t.Cause, endedMs = causeCurrent, nowMs
	default:
		t.Cause = causeLost
	}
	if r.GetBeganMs() != 0 && endedMs != 0 {
		d := span(r.GetBeganMs(), endedMs)
		t.DurationMS = &d
	}
	return t
}

func (v *historyView) table() table {
	t := table{head: []string{"EPOCH", "CONTROLLER", "BEGAN", "ENDED", "DURATION", "CAUSE", "SUCCESSOR", "REASON"}}
	for _, r := range v.Terms {
		lived := duration(r.DurationMS)
		if most := duration(r.DurationAtMostMS); r.Cause == causeLost && most != "" {
			lived = "<" + most
		}
		t.rows = append(t.rows, []string{str(r.Epoch), r.Controller, r.Began, r.Ended, lived, r.Cause, successorOf(r), r.Reason})
	}
	return t
}

// successorOf is who followed, and who should have.
func successorOf(t termView) string {
	switch {
	case t.FollowedBy == "":
		return t.Successor
	case t.Successor == "" || t.Successor == t.FollowedBy:
		return t.FollowedBy
	}
	return t.FollowedBy + ", not " + t.Successor
}

func duration(ms *int64) string {
	if ms == nil || *ms > math.MaxInt64/int64(time.Millisecond) {
		return ""
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}

// age is a duration as people read an age, empty if it is not known.
func age(ms *int64) string {
	if ms == nil || *ms > math.MaxInt64/int64(time.Millisecond) {
		return ""
	}
	return (time.Duration(*ms) * time.Millisecond).Round(time.Second).String()
}

// resignedView is the term that ended and, if that was waited for, the one that
// followed.
type resignedView struct {
	Epoch          int64  `json:"epoch"`
	NextEpoch      int64  `json:"next_epoch"` // 0: not known
	NextController string `json:"next_controller"`
}

func (v *resignedView) table() table {
	text := fmt.Sprintf("the controller of epoch %d has resigned", v.Epoch)
	if v.NextEpoch != 0 {
		text += fmt.Sprintf(", %s follows with epoch %d", v.NextController, v.NextEpoch)
	}
	return table{rows: [][]string{{text}}}
}
