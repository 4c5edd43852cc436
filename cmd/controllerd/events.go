package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newEvents() *cobra.Command {
	c := &client{}
	var follow bool
	w := &watcher{client: c, details: true}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show terms, brokers and partitions, and then what happens to them",
		Long: `Show the last terms, the brokers and the partitions as they are and, with --follow,
what happens to them until interrupted. If the daemon goes away, another one goes on
from the same revision; --timeout says how long to look for one.

JSON has one object a line. "type" and "event" say what it is:

  term       began, ended (with the cause as in "controller history")
  broker     known, up, down, restarted, draining, running, unreachable, reachable
  partition  known, created, leader, offline, isr, replicas, changed, unknown
  topic      gone (deleted, or its record cannot be read any more)
  revision   everything up to it was told: --since goes on from there
  gap        what happened before is not known: the daemon was asked for more than
             it remembers; what follows is the difference that it made

The newest state of each partition is told: "skipped" counts the changes of it in
between that were not told one by one. With --since, what was before is not known:
a term near that revision may be told again, and a partition is "changed".`,
		Example: `  controllerd events --follow -o json --server 10.0.0.1:7070,10.0.0.2:7070
  controllerd events --since 4711 -o json | jq 'select(.event == "offline")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(utf8Args(w.topics...), w.validate()); err != nil {
				return err
			}
			w.once = !follow
			t := newTracker(func(e event) error { return c.showEvent(cmd.OutOrStdout(), e) })
			t.since = w.revision
			return w.run(cmd.Context(), func(resp *pb.WatchMetadataResponse) error {
				return t.take(resp, time.Now().UnixMilli())
			})
		},
	}
	c.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&follow, "follow", false, "go on until interrupted")
	f.Int64Var(&w.revision, "since", 0, "only what happened after this `revision`, if the daemon still knows")
	f.StringArrayVar(&w.topics, "topic", nil, "`name` of a topic to follow; repeat it for more (default: all)")
	c.completeTopicFlag(cmd, "topic")
	return cmd
}

// showEvent shows one event on a line, or as a YAML document. People do not
// need revisions.
func (o *output) showEvent(w io.Writer, e event) error {
	if o.format != "table" {
		return o.line(w, e)
	}
	h, subject, details := e.words()
	if h.Type == typeRevision {
		return nil
	}
	line := fmt.Sprintf("%-24s  %-9s  %-18s  %-11s  %s", h.Time, h.Type, printable(subject), h.Event, printable(details))
	_, err := fmt.Fprintln(w, strings.TrimRight(line, " "))
	return err
}

// event is one thing that has happened. Its JSON is an interface to scripts:
// fields are only ever added.
type event interface {
	// words are what it is about, and what has become of that.
	words() (h eventHead, subject, details string)
}

// Types of events.
const (
	typeTerm      = "term"
	typeBroker    = "broker"
	typePartition = "partition"
	typeTopic     = "topic"
	typeRevision  = "revision"
	typeGap       = "gap"
)

// eventHead begins each event.
type eventHead struct {
	// When it happened by the clock of who wrote it down, or else when this
	// command heard of it.
	Time  string `json:"time"`
	Type  string `json:"type"`
	Event string `json:"event"`
}

type termEvent struct {
	eventHead
	Epoch      int64  `json:"epoch"`
	Controller string `json:"controller"`
	Endpoint   string `json:"endpoint"`
	Cause      string `json:"cause"` // empty: it has not ended
	Reason     string `json:"reason"`
	Successor  string `json:"successor"`
}

func (e termEvent) words() (eventHead, string, string) {
	details := []string{e.Controller}
	for _, d := range [][2]string{{"cause", e.Cause}, {"successor", e.Successor}, {"reason", e.Reason}} {
		if d[1] != "" {
			details = append(details, d[0]+" "+d[1])
		}
	}
	return e.eventHead, str(e.Epoch), strings.Join(details, ", ")
}

type brokerEvent struct {
	eventHead
	Broker      int32  `json:"broker"`
	State       string `json:"state"` // running, draining or down
	Unreachable bool   `json:"unreachable"`
	BrokerEpoch int64  `json:"broker_epoch"` // 0: it is down
	Rack        string `json:"rack"`
}

func (e brokerEvent) words() (eventHead, string, string) {
	details := e.State
	if e.Unreachable {
		details += ", unreachable"
	}
	return e.eventHead, str(e.Broker), details
}

type partitionEvent struct {
	eventHead
	Topic           string  `json:"topic"`
	TopicID         string  `json:"topic_id"`
	Partition       int32   `json:"partition"`
	Leader          int32   `json:"leader"` // -1: none
	LeaderEpoch     int32   `json:"leader_epoch"`
	PartitionEpoch  int32   `json:"partition_epoch"`
	ISR             []int32 `json:"isr"`
	Replicas        []int32 `json:"replicas"`
	Cause           string  `json:"cause"`
	ControllerEpoch int64   `json:"controller_epoch"`
	PreviousLeader  *int32  `json:"previous_leader"` // null: what was before is not known
	PreviousISR     []int32 `json:"previous_isr"`    // null as well
	Skipped         int32   `json:"skipped"`
}

func (e partitionEvent) words() (eventHead, string, string) {
	subject := e.Topic + "/" + str(e.Partition)
	if e.Event == "unknown" {
		return e.eventHead, subject, "its record is missing or unreadable"
	}
	leader := leaderWord(e.Leader)
	if p := e.PreviousLeader; p != nil && *p != e.Leader {
		leader = leaderWord(*p) + " -> " + leader
	}
	isr := join(e.ISR)
	if was := join(e.PreviousISR); e.PreviousISR != nil && was != isr {
		isr = was + " -> " + isr
	}
	return e.eventHead, subject, fmt.Sprintf("leader %s, ISR %s, %s", leader, isr, e.Cause)
}

func leaderWord(id int32) string {
	if id < 0 {
		return "none"
	}
	return str(id)
}

type topicEvent struct {
	eventHead
	Topic   string `json:"topic"`
	TopicID string `json:"topic_id"`
}

func (e topicEvent) words() (eventHead, string, string) { return e.eventHead, e.Topic, "" }

type revisionEvent struct {
	eventHead
	Revision int64 `json:"revision"`
}

func (e revisionEvent) words() (eventHead, string, string) {
	return e.eventHead, str(e.Revision), ""
}

type gapEvent struct {
	eventHead
	Revision int64  `json:"revision"` // after which something is not known; 0: not known either
	Reason   string `json:"reason"`
}

func (e gapEvent) words() (eventHead, string, string) { return e.eventHead, str(e.Revision), e.Reason }
