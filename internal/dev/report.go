package dev

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Report is what a run came to.
type Report struct {
	Epoch      int64      `json:"epoch"`
	Terms      []Term     `json:"terms"` // of this run
	Brokers    Brokers    `json:"brokers"`
	Partitions Partitions `json:"partitions"`
	Commands   Commands   `json:"commands"`
	Violations []string   `json:"invariant_violations"`

	stuck  []string // partitions without a leader that could have one
	unseen []string // invariants that were never looked at
}

// Term is one controller's time in the seat.
type Term struct {
	Epoch      int64  `json:"epoch"`
	Controller string `json:"controller"`
	// Cause says why it ended: killed, resigned, shutdown, self_fenced,
	// proven_dead, transferred or lost; current if it has not ended.
	Cause string `json:"cause"`
	// TakeoverMs runs from the end of the term before to the first command of
	// this one that a broker accepted; null if either is missing.
	TakeoverMs *int64 `json:"takeover_ms"`
}

// Brokers are those with a session.
type Brokers struct {
	Live int `json:"live"`
}

// Partitions are online if their leader is live.
type Partitions struct {
	Total   int `json:"total"`
	Online  int `json:"online"`
	Offline int `json:"offline"`
}

// Commands are what controllers sent and what brokers said to it. A LeaderAndIsr
// counts once for each of its partitions, an UpdateMetadata once, and so does a
// command that was refused as a whole. Sent are more than the others together
// if some were lost on the way.
type Commands struct {
	Sent    int64 `json:"sent"`
	Applied int64 `json:"applied"` // as news
	Already int64 `json:"already"` // the broker knew it, or something newer
	// RefusedStale were of a controller that had been replaced, or for a broker
	// process that had.
	RefusedStale int64 `json:"refused_stale"`
}

// Err says what the run must not come to, nil if all is well.
func (r Report) Err() error {
	var faults []error
	if n := len(r.Violations); n > 0 {
		faults = append(faults, fmt.Errorf("%s broken, the first: %s", count(n, "invariant"), r.Violations[0]))
	}
	if n := len(r.stuck); n > 0 {
		faults = append(faults, fmt.Errorf("%s could be online and %s not: %s",
			count(n, "partition"), map[bool]string{true: "is", false: "are"}[n == 1], strings.Join(r.stuck[:min(n, 5)], ", ")))
	}
	return errors.Join(faults...)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "EPOCH\tCONTROLLER\tEND\tTOOK OVER IN")
	for _, term := range r.Terms {
		took := "-"
		if term.TakeoverMs != nil {
			took = fmt.Sprintf("%d ms", *term.TakeoverMs)
		}
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", term.Epoch, term.Controller, term.Cause, took)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
brokers:    %d live
partitions: %d, %d online, %d offline
commands:   %d sent, %d applied, %d already known, %d refused as stale
invariants: %s
`, r.Brokers.Live, r.Partitions.Total, r.Partitions.Online, r.Partitions.Offline,
		r.Commands.Sent, r.Commands.Applied, r.Commands.Already, r.Commands.RefusedStale, r.invariants())
	return err
}

func (r Report) invariants() string {
	switch {
	case len(r.Violations) == 0 && len(r.unseen) == 0:
		return "I1 to I6 held"
	case len(r.Violations) == 0:
		return "no violation, but never looked at " + strings.Join(r.unseen, " and ")
	}
	return count(len(r.Violations), "violation") + "\n  " + strings.Join(r.Violations, "\n  ")
}
